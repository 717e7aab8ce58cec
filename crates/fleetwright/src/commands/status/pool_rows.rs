//! Pools with their levels, as rows of a table.

use domain::budgets::dollars;
use domain::time::Timestamp;
use serde_json::{Value, json};

use crate::output::{self, Kind, printable};

const COST: &str = "$ TODAY";
/// A narrower screen has no room for the cost.
const COST_WIDTH: u16 = 100;

const TITLES: [(&str, Kind); 8] = [
    ("POOL", Kind::Text),
    ("WAITING", Kind::Number),
    ("STARTING", Kind::Number),
    ("BUSY", Kind::Number),
    ("IDLE", Kind::Number),
    ("MAX", Kind::Number),
    (COST, Kind::Number),
    ("NOTES", Kind::Prose),
];

/// The pools as a table.
pub(super) fn table<'a>(
    pools: impl Iterator<Item = &'a Value>,
    width: Option<u16>,
    now: Timestamp,
) -> String {
    let has_cost = width.is_none_or(|width| width == 0 || width >= COST_WIDTH);
    let is_shown = |(_, title): &(usize, &(&str, Kind))| has_cost || title.0 != COST;
    let shown: Vec<usize> = TITLES
        .iter()
        .enumerate()
        .filter(is_shown)
        .map(|(at, _)| at)
        .collect();
    let titles: Vec<_> = shown
        .iter()
        .filter_map(|at| TITLES.get(*at).copied())
        .collect();
    let rows = pools.map(|pool| {
        let cells = row(pool, now);
        shown
            .iter()
            .filter_map(|at| cells.get(*at).cloned())
            .collect()
    });
    output::grid(&titles, rows.collect(), width)
}

fn row(pool: &Value, now: Timestamp) -> Vec<String> {
    let number = |key: &str| pool[key].as_u64().unwrap_or(0).to_string();
    let cost = pool["costToday"].as_i64();
    vec![
        printable(pool["workerPoolId"].as_str().unwrap_or_default()),
        number("waiting"),
        starting(pool).to_string(),
        number("busy"),
        number("idle"),
        number("maximum"),
        cost.map_or_else(|| "-".to_owned(), |cost| format!("{:.2}", dollars(cost))),
        notes(pool, now),
    ]
}

/// The levels of a pool as fields of a row of another list.
pub(crate) fn levels(pool: &Value, now: Timestamp) -> Value {
    json!({
        "waiting": pool["waiting"],
        "starting": starting(pool),
        "busy": pool["busy"],
        "idle": pool["idle"],
        "maximum": pool["maximum"],
        "notes": notes(pool, now),
    })
}

/// Units that are ordered or boot.
fn starting(pool: &Value) -> u64 {
    let level = |key: &str| pool[key].as_u64().unwrap_or(0);
    level("requested") + level("booting")
}

/// Why tasks wait and for how long, then what is wrong.
fn notes(pool: &Value, now: Timestamp) -> String {
    let wait = pool["wait"]["cause"].as_str().map(|cause| {
        let since = pool["wait"]["since"].as_str();
        let since = since.and_then(|since| since.parse().ok());
        match since {
            Some(since) => {
                let length = output::age(since, now);
                format!("{} {}", printable(cause), length.trim_end_matches(" ago"))
            }
            None => printable(cause),
        }
    });
    let trouble = pool["trouble"].as_array().into_iter().flatten();
    let kinds = trouble.filter_map(|it| it["kind"].as_str()).map(printable);
    // The cause of the wait says more than that tasks wait.
    let has_cause = wait.is_some();
    let kinds = kinds.filter(|kind| !has_cause || kind != "tasks-wait");
    let notes: Vec<String> = wait.into_iter().chain(kinds).collect();
    match notes.as_slice() {
        [] => "-".to_owned(),
        notes => notes.join("; "),
    }
}
