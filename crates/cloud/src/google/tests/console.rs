//! The logs of workers: what their machines write to their consoles.

use serde_json::json;

use super::fake::OnFake;
use crate::tests::suite::Fixture as _;
use crate::tests::values::edit;
use crate::{CloudError, LogEnd, MAX_WORKER_LOG_BYTES, Machines as _, WorkerLog};

fn kept(bytes: &[u8], is_cut: bool) -> WorkerLog {
    let bytes = bytes.to_vec();
    WorkerLog::Kept(LogEnd { bytes, is_cut })
}

#[tokio::test]
async fn the_log_of_a_worker_is_the_console_of_its_machine() {
    let fake = OnFake::start().await;
    let worker = fake.launch(1).await.unwrap().remove(0);
    assert_eq!(fake.provider.read_log(&worker).await, Ok(kept(b"", false)));
    let console = format!("console/{}", worker.key.id);
    let text = "worker: cannot resolve fleet.example.com \u{1f980}\n";
    fake.google.act(&console, &json!({"text": text})).await;
    let log = fake.provider.read_log(&worker).await;
    assert_eq!(log, Ok(kept(text.as_bytes(), false)));
    let long = "x".repeat(MAX_WORKER_LOG_BYTES) + text;
    fake.google.act(&console, &json!({"text": long})).await;
    let Ok(WorkerLog::Kept(log)) = fake.provider.read_log(&worker).await else {
        panic!("it has a log");
    };
    assert!(log.is_cut && log.bytes.ends_with(text.as_bytes()));
    assert_eq!(log.bytes.len(), MAX_WORKER_LOG_BYTES);

    fake.provider.end(&worker).await.unwrap();
    fake.settle().await;
    fake.settle().await;
    let log = fake.provider.read_log(&worker).await;
    assert_eq!(log, Ok(WorkerLog::Missing));
}

#[tokio::test]
async fn the_console_of_a_machine_that_is_not_ours_is_not_read() {
    let fake = OnFake::start().await;
    let theirs = fake.foreigner().await.unwrap();
    let refused = fake.provider.read_log(&theirs).await.unwrap_err();
    assert!(matches!(refused, CloudError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("does not have our labels"));
    let call = "instances.getSerialPortOutput";
    assert_eq!(fake.google.n_calls(call).await, 0);
    // Google may lose a machine between two calls.
    let mut unknown = theirs.clone();
    edit(&mut unknown, |it| {
        it.key.id = "1234567890123456789".parse().unwrap()
    });
    let log = fake.provider.read_log(&unknown).await;
    assert_eq!(log, Ok(WorkerLog::Missing));
}

#[tokio::test]
async fn failures_of_the_console_have_their_cause() {
    let fake = OnFake::start().await;
    let worker = fake.launch(1).await.unwrap().remove(0);
    for (status, reason) in [
        (403, "forbidden"),
        (403, "rateLimitExceeded"),
        (404, "notFound"),
    ] {
        let fault = json!({"status": status, "reason": reason});
        let call = "instances.getSerialPortOutput";
        fake.google.fail(call, fault).await;
        let log = fake.provider.read_log(&worker).await;
        let is_expected = match reason {
            "forbidden" => matches!(log, Err(CloudError::Credentials(_))),
            "rateLimitExceeded" => matches!(log, Err(CloudError::Throttled(_))),
            _ => log == Ok(WorkerLog::Missing),
        };
        assert!(is_expected, "{reason}: {log:?}");
    }
}
