//! The logs of workers: the consoles of their instances.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::worker::Worker;

use super::moto::{FIRST_TOKEN, OnMoto};
use super::proxy::{InjectedFailure, Proxy};
use super::scripted::{alone, answer, instance, page, row};
use crate::tests::values::ROOT_URL;
use crate::{CloudError, LogEnd, MAX_WORKER_LOG_BYTES, Machines as _, WorkerLog};

const ACTION: &str = "GetConsoleOutput";

fn refuse(proxy: &Proxy, code: &'static str) {
    proxy.next(ACTION, InjectedFailure::Refuse { status: 400, code });
}

/// The next answers: a machine of ours runs, and this is its console.
fn answer_console(proxy: &Proxy, output: Option<&str>) {
    answer_machine(proxy, ROOT_URL);
    let output = output.map(|it| format!("<output>{it}</output>"));
    let output = output.unwrap_or_default();
    let body = format!(
        "<GetConsoleOutputResponse><instanceId>i-1</instanceId>{output}</GetConsoleOutputResponse>"
    );
    answer(proxy, ACTION, &body);
}

fn answer_machine(proxy: &Proxy, owner: &str) {
    let machine = instance("i-1", "terminated", owner);
    answer(proxy, "DescribeInstances", &page(&[machine], ""));
}

fn machine() -> Worker {
    row("i-1")
}

#[tokio::test]
async fn the_log_of_a_worker_is_the_console_of_its_instance() {
    let (provider, proxy) = alone().await;
    let text = "worker: cannot resolve fleet.example.com\n";
    let long = "x".repeat(MAX_WORKER_LOG_BYTES) + text;
    for (wanted, is_cut) in [("", false), (text, false), (&long, true)] {
        // EC2 divides long output into lines.
        let mut output = STANDARD.encode(wanted);
        let middle = output.len() / 2;
        output.insert(middle, '\n');
        answer_console(&proxy, (!wanted.is_empty()).then_some(&output));
        let Ok(WorkerLog::Kept(log)) = provider.read_log(&machine()).await else {
            panic!("it has a log");
        };
        assert!(wanted.as_bytes().ends_with(&log.bytes));
        assert_eq!(log.bytes.len(), wanted.len().min(MAX_WORKER_LOG_BYTES));
        assert_eq!(log.is_cut, is_cut);
    }
    let calls = proxy.calls(ACTION);
    assert_eq!(calls.len(), 3);
    assert!(
        calls
            .iter()
            .all(|it| it["InstanceId"] == "i-1" && it["Latest"] == "true")
    );
}

#[tokio::test]
async fn an_instance_without_latest_output_shows_what_it_wrote_when_it_started() {
    let (provider, proxy) = alone().await;
    refuse(&proxy, "UnsupportedOperation");
    answer_console(&proxy, Some(&STANDARD.encode("booted")));
    let log = provider.read_log(&machine()).await.unwrap();
    let expected = LogEnd::of(b"booted".to_vec());
    assert_eq!(log, WorkerLog::Kept(expected));
    let calls = proxy.calls(ACTION);
    let asks_latest = calls.iter().map(|it| it.contains_key("Latest"));
    assert_eq!(asks_latest.collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn the_console_of_an_instance_that_is_not_ours_is_not_read() {
    let (provider, proxy) = alone().await;
    answer_machine(&proxy, "https://elsewhere.example.com");
    let refused = provider.read_log(&machine()).await.unwrap_err();
    assert!(matches!(refused, CloudError::Refused(_)), "{refused}");
    answer(&proxy, "DescribeInstances", &page(&[], ""));
    let log = provider.read_log(&machine()).await;
    assert_eq!(log, Ok(WorkerLog::Missing));
    assert!(proxy.calls(ACTION).is_empty());
}

#[tokio::test]
async fn failures_of_the_console_have_their_cause() {
    let (provider, proxy) = alone().await;
    for code in [
        "UnauthorizedOperation",
        "RequestLimitExceeded",
        "InvalidInstanceID.NotFound",
    ] {
        answer_machine(&proxy, ROOT_URL);
        refuse(&proxy, code);
        let log = provider.read_log(&machine()).await;
        let is_expected = match code {
            "UnauthorizedOperation" => matches!(log, Err(CloudError::Credentials(_))),
            "RequestLimitExceeded" => matches!(log, Err(CloudError::Throttled(_))),
            _ => log == Ok(WorkerLog::Missing),
        };
        assert!(is_expected, "{code}: {log:?}");
    }
    answer_console(&proxy, Some("no base64!"));
    let lost = provider.read_log(&machine()).await.unwrap_err();
    assert!(lost.to_string().contains("not base64"), "{lost}");
}

#[tokio::test]
async fn moto_has_the_console_of_an_instance() {
    let Some(moto) = OnMoto::start("console").await else {
        return;
    };
    let worker = moto.launch(FIRST_TOKEN, 1).await.unwrap().remove(0);
    let log = moto.provider.read_log(&worker).await.unwrap();
    assert!(matches!(log, WorkerLog::Kept(_)), "{log:?}");
}
