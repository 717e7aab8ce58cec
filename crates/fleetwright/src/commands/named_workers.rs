//! Several workers that arguments name: ended or quarantined, each with its own result.

use domain::id::WorkerKey;
use serde_json::{Value, json};

use super::Session;
use crate::client::{Call, Client, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Column};

const WORKERS: &str = "workers";
/// The server takes this many in one request.
const BATCH: usize = 500;

const RESULTS: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("RESULT", "result"),
    Column::prose("PROBLEM", "problem"),
];

/// Results that the request did not want.
const FAILURES: [&str; 3] = ["forbidden", "not-found", "refused"];

/// Parses a worker, for arguments.
pub(super) fn worker(text: &str) -> Result<String, String> {
    match text.parse::<WorkerKey>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a worker is POOL/GROUP/WORKER, such as demo/linux/lab/host-1".to_owned()),
    }
}

pub(super) async fn end(
    workers: &[String],
    reason: &str,
    drain: bool,
    session: &Session,
) -> Result<(), Failure> {
    let body = json!({"reason": reason, "drain": drain});
    let purpose = match drain {
        true => "drain workers",
        false => "end workers",
    };
    order(workers, "end", &body, purpose, session).await
}

/// Without an end, lifts the quarantine by an end in the past.
pub(super) async fn quarantine(
    workers: &[String],
    until: Option<&str>,
    reason: Option<String>,
    session: &Session,
) -> Result<(), Failure> {
    for text in workers {
        worker(text).map_err(|problem| Failure::usage(format!("{text:?}: {problem}")))?;
    }
    let (until, purpose, usual) = match until {
        Some(text) => (
            session.moment("--until", text)?,
            "quarantine workers",
            "[unspecified]",
        ),
        None => (
            session.now.plus_seconds(-60 * 60),
            "lift the quarantine of workers",
            "lifted",
        ),
    };
    let reason = reason.unwrap_or_else(|| usual.to_owned());
    let body = json!({"reason": reason, "quarantineUntil": until.to_string()});
    order(workers, "quarantine", &body, purpose, session).await
}

async fn order(
    workers: &[String],
    verb: &str,
    body: &Value,
    purpose: &str,
    session: &Session,
) -> Result<(), Failure> {
    let results = ask(workers, verb, body, purpose, &session.client).await?;
    let n_failures = results.iter().filter(|row| is_failure(row)).count();
    session.rows(&json!({WORKERS: results}), WORKERS, RESULTS);
    if n_failures == 0 {
        return Ok(());
    }
    let left = output::counted(n_failures, "worker");
    Err(Failure::failed(format!(
        "could not {purpose}: {left} left, as shown"
    )))
}

/// The results for these workers, request by request.
pub(crate) async fn ask(
    workers: &[String],
    verb: &str,
    body: &Value,
    purpose: &str,
    client: &Client,
) -> Result<Vec<Value>, Failure> {
    let mut results = Vec::new();
    for body in requests(workers, body) {
        let call = Call::post(FLEETWRIGHT, &[WORKERS, verb], body)
            .to(purpose)
            .list_command("fleetwright worker list");
        let reply = client.call(&call).await.inspect_err(|_| {
            if !results.is_empty() {
                let done = output::counted(results.len(), "worker");
                output::note(&format!(
                    "{done} done before the failure; repeat the command"
                ));
            }
        });
        if let Value::Array(mut found) = reply?[WORKERS].take() {
            results.append(&mut found);
        }
    }
    Ok(results)
}

/// Whether the worker is not as the request wanted it.
pub(crate) fn is_failure(result: &Value) -> bool {
    let text = result["result"].as_str();
    text.is_some_and(|it| FAILURES.contains(&it))
}

/// The bodies of the requests for these workers.
fn requests(workers: &[String], body: &Value) -> Vec<Value> {
    let batches = workers.chunks(BATCH).map(|batch| {
        let mut body = body.clone();
        body[WORKERS] = batch.iter().map(|text| name_json(text)).collect();
        body
    });
    batches.collect()
}

/// The worker of an argument that was checked.
fn name_json(text: &str) -> Value {
    let mut parts = text.rsplitn(3, '/');
    let (id, group, pool) = (parts.next(), parts.next(), parts.next());
    json!({"workerPoolId": pool, "workerGroup": group, "workerId": id})
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn workers_are_named_in_requests_of_a_bounded_size() {
        for count in sizes_around("fleetwright::commands::named_workers::BATCH", BATCH) {
            let workers: Vec<String> = (0..count).map(|it| format!("a/b/g/w{it}")).collect();
            let requests = requests(&workers, &json!({"reason": "r"}));
            assert_eq!(requests.len(), count.div_ceil(BATCH));
            let names = |body: &Value| body[WORKERS].as_array().map_or(0, Vec::len);
            assert!(requests.iter().all(|body| names(body) <= BATCH));
            assert_eq!(requests.iter().map(names).sum::<usize>(), count);
        }
        let expected = json!({"workerPoolId": "a/b", "workerGroup": "g", "workerId": "w"});
        assert_eq!(name_json("a/b/g/w"), expected);
    }
}
