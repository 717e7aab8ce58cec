//! The tables that `bench all` prints: the machine, the aims, and each request.

use clap::ValueEnum as _;
use serde_json::Value;

use super::Kind;
use super::aims::{AIMS, Aim, MAX_SLOWDOWN, Unit};
use super::markdown::{mark, table};
use super::year_tables;
use crate::databases::Age;

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;
const MAX_COLUMNS: usize = 100;

const OF_AIMS: &[&str] = &[
    "Measurement",
    "Aim",
    "New database",
    "Year-old",
    "Times as long",
];
const OF_REQUESTS: &[&str] = &[
    "Request",
    "Server",
    "Requests/s",
    "Of bare",
    "Of new",
    "p50, ms",
    "p99, ms",
    "Server, µs",
    "Database, µs",
    "Client, µs",
];

pub(super) fn text(figures: &Value) -> String {
    let mut text = wrapped(&machine(figures));
    for kind in Kind::value_variants() {
        let Some(of_kind) = figures["databases"].get(kind.key()) else {
            continue;
        };
        text.push_str(&format!("\n### {}\n\n", kind.title()));
        text.push_str(&table(OF_AIMS, &aims(*kind, of_kind)));
        text.push('\n');
        text.push_str(&table(OF_REQUESTS, &requests(&of_kind["api"])));
    }
    text + &year_tables::text(&figures["databases"])
}

fn machine(figures: &Value) -> String {
    let machine = &figures["machine"];
    let word = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    let load = |key: &str| match machine[key].as_f64() {
        Some(load) => format!("{load:.2}"),
        None => "unknown".to_owned(),
    };
    let memory = machine["memoryBytes"].as_f64().unwrap_or_default() / GIB;
    let versions = figures["databases"].as_object().into_iter().flatten();
    let version = versions
        .filter_map(|(_, figures)| figures["version"].as_str())
        .next();
    let postgres = version.map_or_else(String::new, |version| format!(" PostgreSQL {version}."));
    let quick = match figures["quick"].as_bool() {
        Some(true) => " **A short run with small databases: not comparable.**",
        Some(false) | None => "",
    };
    let divided = match figures["divisor"].as_u64() {
        Some(1) | None => String::new(),
        Some(divisor) => format!(" Year-old databases were divided by {divisor}."),
    };
    format!(
        "Measured on {} with version {}: {} build, {} cores ({}), {memory:.1} GiB of memory, {}, \
         kernel {}.{postgres} Databases were on {}. Load of the machine: {} before, {} after.{divided}{quick}",
        word("date"),
        word("version"),
        word("build"),
        machine["cores"],
        word("model"),
        word("system"),
        word("kernel"),
        word("fileSystem"),
        load("loadBefore"),
        load("loadAfter"),
    )
}

fn aims(kind: Kind, figures: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for aim in AIMS {
        let (fresh, year_old) = (
            aim.value(figures, Age::Fresh),
            aim.value(figures, Age::YearOld),
        );
        if (fresh.is_none() && year_old.is_none()) || !aim.is_measured(kind) {
            continue;
        }
        let limit = aim.limit(kind);
        let cell = |value: Option<f64>, age: Age| {
            let limit = limit.filter(|_| aim.age == age);
            value.map_or_else(String::new, |value| {
                let is_missed = limit.is_some_and(|limit| aim.is_missed(value, limit));
                format!("{}{}", shown(value, aim.unit), mark(is_missed))
            })
        };
        let slowdown = fresh.zip(year_old);
        let slowdown = slowdown.and_then(|(fresh, later)| aim.slowdown(fresh, later));
        rows.push(vec![
            aim.name.to_owned(),
            limit.map_or_else(String::new, |limit| aim_of(aim, limit)),
            cell(fresh, Age::Fresh),
            cell(year_old, Age::YearOld),
            slowdown.map_or_else(String::new, |factor| {
                let is_missed = limit.is_some() && factor > MAX_SLOWDOWN;
                format!("{factor:.2}{}", mark(is_missed))
            }),
        ]);
    }
    rows
}

fn aim_of(aim: &Aim, limit: f64) -> String {
    let sign = match aim.unit {
        Unit::PerSecond | Unit::OfBare => "≥",
        Unit::Millis | Unit::Seconds | Unit::Bytes => "≤",
    };
    let limit = match aim.unit {
        Unit::PerSecond => shown(limit, aim.unit),
        Unit::OfBare => format!("{limit}"),
        Unit::Millis => format!("{limit} ms"),
        Unit::Seconds => format!("{limit} s"),
        Unit::Bytes => format!("{} MiB", limit / MIB),
    };
    match aim.age {
        Age::Fresh => format!("{sign} {limit}"),
        Age::YearOld => format!("{sign} {limit}, year-old"),
    }
}

fn requests(api: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for scenario in api["scenarios"].as_array().into_iter().flatten() {
        let name = scenario["name"].as_str().unwrap_or_default();
        rows.push(request(name, "bare", &scenario["bare"]));
        for server in ["fresh", "year-old", "before"] {
            if let Some(figures) = scenario["servers"].get(server) {
                let title = if server == "fresh" { "new" } else { server };
                rows.push(request("", title, figures));
            }
        }
    }
    rows
}

fn request(name: &str, server: &str, figures: &Value) -> Vec<String> {
    let number = |pointer: &str, decimals: usize, factor: f64| {
        let value = figures.pointer(pointer).and_then(Value::as_f64);
        value.map_or_else(String::new, |value| {
            format!("{:.decimals$}", value * factor)
        })
    };
    let rate = figures["requestsPerSecond"].as_f64().unwrap_or_default();
    vec![
        name.to_owned(),
        server.to_owned(),
        grouped(rate),
        number("/ofBare", 3, 1.0),
        number("/ofFresh", 2, 1.0),
        number("/p50Ms", 2, 1.0),
        number("/p99Ms", 2, 1.0),
        number("/processorTime/serverMs", 1, 1_000.0),
        number("/processorTime/databaseMs", 1, 1_000.0),
        number("/processorTime/clientMs", 1, 1_000.0),
    ]
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", grouped(value)),
        Unit::OfBare => format!("{value:.3}"),
        Unit::Millis if value < 1.0 => format!("{value:.3} ms"),
        Unit::Millis => format!("{value:.1} ms"),
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Bytes => format!("{:.0} MiB", value / MIB),
    }
}

/// A number without decimals, its thousands separated by commas.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prose in lines as the documents have them.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > MAX_COLUMNS {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Value {
        let side = |rate: f64| {
            json!({"requestsPerSecond": rate, "p50Ms": 0.5, "p99Ms": 1.25, "ofBare": 0.4,
                "ofFresh": 1.0, "processorTime": {"serverMs": 0.02, "databaseMs": 0.0,
                "answeringMs": 0.02, "clientMs": 0.01}})
        };
        let api = json!({"idleResidentBytes": 50 << 20, "scenarios": [{"name": "workerPool",
            "bare": {"requestsPerSecond": 100_000.0, "p50Ms": 0.1, "p99Ms": 0.2},
            "servers": {"fresh": side(51_234.0), "year-old": side(40_000.0)}}]});
        let rounds = json!({"round": {"seconds": 0.4}, "yearOld": {"round": {"seconds": 1.25}}});
        let time = |median: f64, most: f64| json!({"count": 3, "medianMs": median, "mostMs": most});
        let step = |name: &str, median: f64| {
            json!({"name": name, "count": 3, "transactions": 1.0, "statements": 2.5, "rows": 1_000.0,
                "medianMs": median, "mostMs": 9.0})
        };
        let year = json!({"steps": [step("round", 3.0), step("claimWork", 1.0)],
            "transactions": {"plan_commit": time(1.0, 2.0)},
            "statements": {"one": time(0.126, 4.0), "other": time(5.1, 6.0)}});
        let other = json!({"steps": [step("round", 4.0)],
            "transactions": {"plan_commit": time(2.0, 3.0)},
            "statements": {"one": time(5.0, 7.0)}});
        json!({
            "machine": {"date": "2026-11-26", "version": "0.1.0", "build": "release", "cores": 2,
                "model": "a processor", "memoryBytes": 8_589_934_592_u64, "system": "Debian 12",
                "kernel": "6.1", "fileSystem": "ext4", "loadBefore": 0.1, "loadAfter": 1.0},
            "quick": false,
            "databases": {"sqlite": {"api": api, "rounds": rounds, "year": year},
                "postgresFsync": {"version": "15.9", "rounds": rounds, "year": other}},
        })
    }

    #[test]
    fn tables_mark_what_misses_its_aim() {
        insta::assert_snapshot!(text(&figures()), @r"
        Measured on 2026-11-26 with version 0.1.0: release build, 2 cores (a processor), 8.0 GiB of memory,
        Debian 12, kernel 6.1. PostgreSQL 15.9. Databases were on ext4. Load of the machine: 0.10 before,
        1.00 after.

        ### SQLite

        | Measurement | Aim | New database | Year-old | Times as long |
        |---|---|---|---|---|
        | `workerPool`, signed | ≥ 50,000/s | 51,234/s | 40,000/s | 1.28 (**missed**) |
        | … of the rate of the bare server | ≥ 0.38 | 0.400 | 0.400 |  |
        | round, 10,000 pools, 1,000,000 workers | ≤ 1 s, year-old | 0.40 s | 1.25 s (**missed**) | 3.12 (**missed**) |
        | memory of an idle `up` | ≤ 45 MiB | 50 MiB (**missed**) |  |  |

        | Request | Server | Requests/s | Of bare | Of new | p50, ms | p99, ms | Server, µs | Database, µs | Client, µs |
        |---|---|---|---|---|---|---|---|---|---|
        | workerPool | bare | 100,000 |  |  | 0.10 | 0.20 |  |  |  |
        |  | new | 51,234 | 0.400 | 1.00 | 0.50 | 1.25 | 20.0 | 0.0 | 10.0 |
        |  | year-old | 40,000 | 0.400 | 1.00 | 0.50 | 1.25 | 20.0 | 0.0 | 10.0 |

        ### PostgreSQL with fsync

        | Measurement | Aim | New database | Year-old | Times as long |
        |---|---|---|---|---|
        | round, 10,000 pools, 1,000,000 workers |  | 0.40 s | 1.25 s | 3.12 |

        | Request | Server | Requests/s | Of bare | Of new | p50, ms | p99, ms | Server, µs | Database, µs | Client, µs |
        |---|---|---|---|---|---|---|---|---|---|

        ### On the year-old database

        | Request or work | SQLite: statements | SQLite: rows | SQLite: median, ms | SQLite: longest, ms | PostgreSQL with fsync: statements | PostgreSQL with fsync: rows | PostgreSQL with fsync: median, ms | PostgreSQL with fsync: longest, ms |
        |---|---|---|---|---|---|---|---|---|
        | `round` | 2.5 | 1000.0 | 3.00 | 9.00 | 2.5 | 1000.0 | 4.00 | 9.00 |
        | `claimWork` | 2.5 | 1000.0 | 1.00 | 9.00 |  |  |  |  |

        | Transaction | SQLite: times | SQLite: median, ms | SQLite: longest, ms | PostgreSQL with fsync: times | PostgreSQL with fsync: median, ms | PostgreSQL with fsync: longest, ms |
        |---|---|---|---|---|---|---|
        | `plan_commit` | 3 | 1.00 | 2.00 | 3 | 2.00 | 3.00 |

        | Statement | SQLite: times | SQLite: median, ms | SQLite: longest, ms | PostgreSQL with fsync: times | PostgreSQL with fsync: median, ms | PostgreSQL with fsync: longest, ms |
        |---|---|---|---|---|---|---|
        | `other` | 3 | 5.10 (**missed**) | 6.00 |  |  |  |
        | `one` | 3 | 0.13 | 4.00 | 3 | 5.00 | 7.00 |
        ");
    }

    #[test]
    fn thousands_are_separated() {
        for (value, expected) in [(7.4, "7"), (999.6, "1,000"), (1_234_567.0, "1,234,567")] {
            assert_eq!(grouped(value), expected);
        }
    }
}
