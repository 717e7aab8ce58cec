//! The last task runs of a worker, a pool or a worker configuration, with counts by outcome.

use serde_json::Value;

use super::{Limit, Session};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column, Kind};

const KEY: &str = "taskRuns";

const LIST: &[Column] = &[
    Column::age("ENDED", "resolved"),
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("TASK", "taskId"),
    Column::number("RUN", "runId"),
    Column::text("OUTCOME", "outcome"),
    Column::text("REASON", "reasonResolved"),
];

const WINDOWS: &[(&str, Kind)] = &[
    ("WITHIN", Kind::Text),
    ("COMPLETED", Kind::Number),
    ("FAILED", Kind::Number),
    ("EXCEPTION", Kind::Number),
    ("SUCCESS", Kind::Number),
    ("EXCEPTIONS", Kind::Prose),
];

pub(super) async fn of_worker(
    [pool, group, id]: [&str; 3],
    limit: &Limit,
    session: &Session,
) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-state", pool, group, id])
        .to(format!(
            "list the task runs of worker {group}/{id} of pool {pool}"
        ))
        .list_command("fleetwright worker list POOL");
    show(&call, limit, session).await
}

pub(super) async fn of_pool(pool: &str, limit: &Limit, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-state", "pool", pool])
        .to(format!("list the task runs of pool {pool}"))
        .list_command("fleetwright pool list");
    show(&call, limit, session).await
}

pub(super) async fn of_configuration(
    id: &str,
    limit: &Limit,
    session: &Session,
) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-state", "configuration", id])
        .to(format!("list the task runs of worker configuration {id}"))
        .list_command("fleetwright rules list");
    show(&call, limit, session).await
}

async fn show(call: &Call, limit: &Limit, session: &Session) -> Result<(), Failure> {
    let document = session.client.pages(call, KEY, limit.limit).await?;
    if !session.json {
        let rows = windows(&document["windows"]);
        output::out(&output::grid(WINDOWS, rows, output::screen_width()));
        output::out("");
    }
    session.rows(&document, KEY, LIST);
    Ok(())
}

fn windows(windows: &Value) -> Vec<Vec<String>> {
    let count = |window: &Value, field: &str| window[field].as_u64().unwrap_or(0).to_string();
    let rows = windows.as_array().into_iter().flatten().map(|window| {
        let name = window["window"].as_str().unwrap_or_default().to_owned();
        let rate = window["successRate"]
            .as_f64()
            .map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
        vec![
            name,
            count(window, "completed"),
            count(window, "failed"),
            count(window, "exception"),
            rate,
            exceptions(&window["exceptions"]),
        ]
    });
    rows.collect()
}

fn exceptions(by_reason: &Value) -> String {
    let parts = by_reason.as_object().into_iter().flatten();
    let parts: Vec<_> = parts.map(|(reason, n)| format!("{n} {reason}")).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_window_is_a_line_with_its_rate_in_percent() {
        let shown = windows(&json!([
            {"window": "1h", "completed": 0, "failed": 0, "exception": 0, "successRate": null,
             "exceptions": {}},
            {"window": "24h", "completed": 2, "failed": 1, "exception": 3, "successRate": 0.3333,
             "exceptions": {"canceled": 1, "worker-shutdown": 2}},
        ]));
        assert_eq!(shown[0], ["1h", "0", "0", "0", "-", ""]);
        let line = [
            "24h",
            "2",
            "1",
            "3",
            "33.3 %",
            "1 canceled, 2 worker-shutdown",
        ];
        assert_eq!(shown[1], line);
        assert!(windows(&Value::Null).is_empty());
    }
}
