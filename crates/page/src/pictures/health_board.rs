//! The board of health: the launches of each pool by region, with what is wrong there.

use std::collections::{BTreeMap, BTreeSet};

use domain::time::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::charts::{Board, BoardCell, BoardRow};
use crate::json::Json as _;
use crate::links;
use crate::words::relative;

/// The launches of a pool at a provider in a region.
#[derive(Debug, Default)]
struct Cell {
    n_tried: u64,
    n_failed: u64,
    n_lost: u64,
    n_configs: usize,
    href: String,
    /// The worst trouble, with its rank.
    trouble: Option<(u8, String)>,
}

/// The pool and the provider of a row, and its cells by region.
type Rows<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<&'a str, Cell>>;

/// The board of these launch configs; rows without launches and without trouble are left out.
pub(super) fn board(configs: &[Value], now: Timestamp) -> Markup {
    let rows = rows(configs, now);
    let regions: BTreeSet<&str> = rows.values().flat_map(BTreeMap::keys).copied().collect();
    let columns: Vec<&str> = regions.iter().copied().collect();
    let shown: Vec<(String, String, Vec<Option<BoardCell<'_>>>)> = rows
        .iter()
        .map(|((pool, provider), cells)| {
            let cells = columns
                .iter()
                .map(|region| cells.get(region).map(Cell::shown));
            (
                format!("{pool}, {provider}"),
                links::pool(pool),
                cells.collect(),
            )
        })
        .collect();
    let shown: Vec<BoardRow<'_>> = shown
        .iter()
        .map(|(name, href, cells)| BoardRow {
            name,
            href: Some(href),
            cells,
        })
        .collect();
    html! {
        @if !shown.is_empty() {
            h2 { "By region, in the last hour" }
            (Board {
                title: "Launches by pool and region",
                row_head: "Pool and provider",
                columns: &columns,
                rows: &shown,
            })
        }
    }
}

fn rows(configs: &[Value], now: Timestamp) -> Rows<'_> {
    let mut rows = Rows::new();
    for config in configs {
        let (pool, id) = (config.text("workerPoolId"), config.text("launchConfigId"));
        let region = match config.text("region") {
            "" => "no region",
            region => region,
        };
        let row = rows.entry((pool, config.text("providerId"))).or_default();
        let cell = row.entry(region).or_default();
        let refused = config.at("launches.refused").as_object();
        let refused: u64 =
            refused.map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum());
        cell.n_tried += config.count("launches.attempts");
        cell.n_failed += refused + config.count("launches.neverRegistered");
        cell.n_lost += config.count("launches.neverClaimed");
        cell.n_configs += 1;
        cell.href = match cell.n_configs {
            1 => links::launch_config(pool, id),
            _ => links::pool(pool),
        };
        let trouble = trouble(config, now);
        if trouble.as_ref().map(|it| it.0) > cell.trouble.as_ref().map(|it| it.0) {
            cell.trouble = trouble;
        }
    }
    rows.retain(|_, cells| cells.values().any(Cell::is_loud));
    rows
}

/// The trouble of a launch config, with its rank, and when it is tried again or the pause ends.
fn trouble(config: &Value, now: Timestamp) -> Option<(u8, String)> {
    let then = |word: &str, at: Option<Timestamp>| match at {
        Some(at) => format!("{word} {}", relative(at, now)),
        None => String::new(),
    };
    let next = config.moment("availability.nextTry");
    let (rank, word, end) = match (config.text("state"), config.text("availability.status")) {
        ("paused", _) => (2, "paused", then(", ends", config.moment("pause.until"))),
        (_, "shut-off") => (4, "shut off", then(", next try", next)),
        (_, "due") => (3, "trial due", String::new()),
        (_, "on-trial") => (3, "on trial", String::new()),
        (_, "unusable") if !config.text("availability.reason").starts_with("full") => {
            (1, "not used", String::new())
        }
        _ => return None,
    };
    Some((rank, format!("{word}{end}")))
}

impl Cell {
    fn is_loud(&self) -> bool {
        self.n_tried > 0 || self.trouble.is_some()
    }

    fn shown(&self) -> BoardCell<'_> {
        BoardCell {
            href: &self.href,
            n_tried: self.n_tried as f64,
            n_failed: self.n_failed as f64,
            n_lost: self.n_lost as f64,
            note: self.trouble.as_ref().map_or("", |(_, text)| text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(pool: &str, region: &str, attempts: u64, status: &str) -> Value {
        json!({"workerPoolId": pool, "launchConfigId": "lc", "providerId": "aws", "region": region,
            "state": "active", "launches": {"attempts": attempts, "neverRegistered": 1,
                "refused": {"quota": 2}, "neverClaimed": 1},
            "availability": {"status": status, "nextTry": "1970-01-01T00:03:00.000Z"}})
    }

    #[test]
    fn launch_configs_of_one_pool_and_region_share_a_cell_and_quiet_rows_are_left_out() {
        let configs = [
            config("a/b", "us", 10, "usable"),
            config("a/b", "us", 5, "shut-off"),
            config("a/b", "eu", 0, "usable"),
            config("quiet/pool", "us", 0, "usable"),
        ];
        let rows = rows(&configs, Timestamp::from_millis(0));
        assert_eq!(rows.keys().collect::<Vec<_>>(), [&("a/b", "aws")]);
        let cell = &rows[&("a/b", "aws")]["us"];
        let numbers = (cell.n_tried, cell.n_failed, cell.n_lost, cell.n_configs);
        assert_eq!(numbers, (15, 6, 2, 2));
        assert_eq!(cell.shown().note, "shut off, next try in 3 min");
        assert_eq!(cell.href, "/pools/a/b");
    }
}
