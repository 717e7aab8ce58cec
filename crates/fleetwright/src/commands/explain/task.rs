//! The answer to "why does this task still wait?", as text.

use domain::waits::{length, percent};
use serde_json::Value;

use super::clock;
use crate::output::{self, Kind};

const CHANGES: &[(&str, Kind)] = &[("WHAT WOULD CHANGE IT", Kind::Text), ("BY", Kind::Text)];

const WAITS: &[(&str, Kind)] = &[
    ("RUN", Kind::Number),
    ("CAUSE", Kind::Text),
    ("SINCE", Kind::Text),
    ("WAITED", Kind::Number),
    ("SHARE", Kind::Number),
];

pub(super) fn task_text(reply: &Value) -> String {
    let word = |key: &str| output::printable(reply[key].as_str().unwrap_or_default());
    let (id, pool, state) = (word("taskId"), word("workerPoolId"), word("state"));
    let name = match word("name") {
        name if name.is_empty() => id.clone(),
        name => format!("{name} ({id})"),
    };
    let mut text = format!("{name} of {pool} is {state}\n");
    if reply["cause"].is_string() {
        text.push_str(&format!("It waits because {}.\n", word("reason")));
    }
    text.push_str(&waited_line(reply));
    if reply["cause"].is_string() {
        text.push('\n');
        text.push_str(&changes(reply));
        text.push_str(&latest_line(reply));
    }
    text.push_str(&waits(reply));
    text
}

/// How long it waits, and its place in line.
fn waited_line(reply: &Value) -> String {
    let millis = |key: &str| reply[key].as_i64().unwrap_or(0);
    let (last, all) = (millis("waitedMs"), millis("totalMs"));
    let mut line = format!("It has waited {}", length(last));
    if all != last {
        line.push_str(&format!(" in this run, {} in all", length(all)));
    }
    match reply["ahead"].as_u64() {
        Some(0) => line.push_str(", and is first in line"),
        Some(1) => line.push_str(", and 1 task is before it in line"),
        Some(ahead) => line.push_str(&format!(", and {ahead} tasks are before it in line")),
        None => {}
    }
    line.push_str(".\n");
    line
}

fn changes(reply: &Value) -> String {
    let changes = reply["changes"].as_array().into_iter().flatten();
    let rows = changes.map(|change| {
        let by = match (change["by"].is_string(), change["byHand"].as_bool()) {
            (true, _) => clock(&change["by"]),
            (false, Some(true)) => "by hand".to_owned(),
            (false, Some(false) | None) => "not known".to_owned(),
        };
        let what = output::printable(change["what"].as_str().unwrap_or_default());
        vec![what, by]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("{}\n", output::grid(CHANGES, rows, None).trim_end())
}

fn latest_line(reply: &Value) -> String {
    let latest = clock(&reply["latest"]);
    match reply["latestIsDeadline"].as_bool() {
        Some(true) => format!(
            "At the latest: {latest}, its deadline. After that it ends as deadline-exceeded.\n"
        ),
        Some(false) | None => format!(
            "At the latest: {latest}. Its deadline is {}.\n",
            clock(&reply["deadline"])
        ),
    }
}

fn waits(reply: &Value) -> String {
    let all = reply["totalMs"].as_i64().unwrap_or(0);
    let waits = reply["waits"].as_array().into_iter().flatten();
    let rows = waits.map(|wait| {
        let millis = wait["ms"].as_i64().unwrap_or(0);
        vec![
            wait["run"].to_string(),
            output::printable(wait["label"].as_str().unwrap_or_default()),
            clock(&wait["since"]),
            length(millis),
            percent(millis, all),
        ]
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let sum = ["", "all", "", &length(all), &percent(all, all)];
    rows.push(sum.map(str::to_owned).to_vec());
    let table = output::grid(WAITS, rows, None);
    format!("\nWhere its waiting time went\n{table}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_waiting_task_is_explained_on_one_screen() {
        let reply = json!({
            "taskId": "Vd8nQ2pXRxm0sT5aJcLk9g", "name": "train", "workerPoolId": "gpu/train-l4",
            "time": "2026-11-21T14:32:02.000Z", "state": "pending",
            "deadline": "2026-11-21T16:58:20.000Z", "cause": "quota", "label": "quota",
            "reason": "the quota of google is used up, shared with gpu/eval (12 units)",
            "changes": [
                {"what": "it is tried again", "by": "2026-11-21T14:33:00.000Z", "byHand": false},
                {"what": "a worker under the quota ends", "by": null, "byHand": false},
                {"what": "ask the provider for a higher quota", "by": null, "byHand": true},
            ],
            "latest": "2026-11-21T14:33:00.000Z", "latestIsDeadline": false, "ahead": 2, "run": 1,
            "waitedMs": 862_000, "totalMs": 1_034_000,
            "waits": [
                {"run": 0, "label": "booting", "since": "2026-11-21T13:58:30.000Z", "ms": 172_000},
                {"run": 1, "label": "quota", "since": "2026-11-21T14:17:40.000Z", "ms": 862_000},
            ],
        });
        insta::assert_snapshot!(task_text(&reply), @r"
        train (Vd8nQ2pXRxm0sT5aJcLk9g) of gpu/train-l4 is pending
        It waits because the quota of google is used up, shared with gpu/eval (12 units).
        It has waited 14 min 22 s in this run, 17 min 14 s in all, and 2 tasks are before it in line.

        WHAT WOULD CHANGE IT                 BY
        it is tried again                    2026-11-21 14:33:00Z
        a worker under the quota ends        not known
        ask the provider for a higher quota  by hand
        At the latest: 2026-11-21 14:33:00Z. Its deadline is 2026-11-21 16:58:20Z.

        Where its waiting time went
        RUN  CAUSE    SINCE                      WAITED  SHARE
          0  booting  2026-11-21 13:58:30Z   2 min 52 s   17 %
          1  quota    2026-11-21 14:17:40Z  14 min 22 s   83 %
             all                            17 min 14 s  100 %
        ");
    }

    #[test]
    fn a_task_that_waits_no_more_shows_where_its_time_went() {
        let reply = json!({
            "taskId": "Vd8nQ2pXRxm0sT5aJcLk9g", "name": "", "workerPoolId": "a/b",
            "state": "running", "cause": null, "ahead": null, "waitedMs": 9_000, "totalMs": 9_000,
            "waits": [{"run": 0, "label": "decision", "since": "2026-11-21T13:58:30.000Z",
                "ms": 9_000}],
        });
        insta::assert_snapshot!(task_text(&reply), @r"
        Vd8nQ2pXRxm0sT5aJcLk9g of a/b is running
        It has waited 9 s.

        Where its waiting time went
        RUN  CAUSE     SINCE                 WAITED  SHARE
          0  decision  2026-11-21 13:58:30Z     9 s  100 %
             all                                9 s  100 %
        ");
    }
}
