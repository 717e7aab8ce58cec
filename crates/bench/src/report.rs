//! The figures, for people and for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::paced::Mixed;
use super::scenario::{Outcome, Side};
use crate::output;

const HEADINGS: [&str; 8] = [
    "SCENARIO", "BARE/S", "OURS/S", "RATIO", "BARE P50", "OURS P50", "BARE P99", "OURS P99",
];

pub(crate) struct Report {
    pub(crate) database: &'static str,
    pub(crate) seconds: u64,
    pub(crate) connections: usize,
    pub(crate) rounds: usize,
    pub(crate) scenarios: Vec<Outcome>,
    pub(crate) mixed: Mixed,
    pub(crate) starts: Starts,
}

/// What it takes to have a server that does nothing.
pub(crate) struct Starts {
    /// Until the first answer, with an empty database.
    pub(crate) first: Duration,
    /// The same with a database that is there.
    pub(crate) later: Duration,
    pub(crate) resident_bytes: Option<u64>,
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
        rows.extend(self.scenarios.iter().map(row));
        let table = output::table(&rows);
        let Mixed {
            registrations_per_minute,
            idle_p99_ms,
            busy_p99_ms,
            registration_p99_ms,
        } = self.mixed;
        let memory = match self.starts.resident_bytes {
            Some(bytes) => format!("{} MiB", bytes / (1 << 20)),
            None => "unknown on this system".to_owned(),
        };
        format!(
            "\
{} with {} connections, {} rounds, {} s for each side of each scenario; latencies in ms

{table}
p99 of reads           {idle_p99_ms:.2} ms idle, {busy_p99_ms:.2} ms with {registrations_per_minute:.0} registrations a minute (their p99: {registration_p99_ms:.2} ms)
first answer after     {} ms with an empty database, {} ms with one that is there
memory when idle       {memory}
",
            self.database,
            self.connections,
            self.rounds,
            self.seconds,
            self.starts.first.as_millis(),
            self.starts.later.as_millis(),
        )
    }

    pub(crate) fn document(&self) -> Value {
        let scenarios: Vec<_> = self
            .scenarios
            .iter()
            .map(|outcome| {
                json!({
                    "name": outcome.name,
                    "bare": side(outcome.bare),
                    "ours": side(outcome.ours),
                    "ratio": outcome.ratio,
                })
            })
            .collect();
        json!({
            "database": self.database,
            "connections": self.connections,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "scenarios": scenarios,
            "readsWhileRegistering": {
                "registrationsPerMinute": self.mixed.registrations_per_minute,
                "idleP99Ms": self.mixed.idle_p99_ms,
                "busyP99Ms": self.mixed.busy_p99_ms,
                "registrationP99Ms": self.mixed.registration_p99_ms,
            },
            "firstAnswerMs": {
                "emptyDatabase": self.starts.first.as_secs_f64() * 1_000.0,
                "existingDatabase": self.starts.later.as_secs_f64() * 1_000.0,
            },
            "idleResidentBytes": self.starts.resident_bytes,
        })
    }
}

fn row(outcome: &Outcome) -> Vec<String> {
    let Outcome {
        name,
        bare,
        ours,
        ratio,
    } = outcome;
    vec![
        (*name).to_owned(),
        format!("{:.0}", bare.per_second),
        format!("{:.0}", ours.per_second),
        format!("{ratio:.3}"),
        format!("{:.2}", bare.p50_ms),
        format!("{:.2}", ours.p50_ms),
        format!("{:.2}", bare.p99_ms),
        format!("{:.2}", ours.p99_ms),
    ]
}

fn side(side: Side) -> Value {
    json!({"requestsPerSecond": side.per_second, "p50Ms": side.p50_ms, "p99Ms": side.p99_ms})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let side = |factor: f64| Side {
            per_second: 20_000.0 * factor,
            p50_ms: 0.5 / factor,
            p99_ms: 1.25 / factor,
        };
        Report {
            database: "sqlite",
            seconds: 3,
            connections: 16,
            rounds: 5,
            scenarios: vec![Outcome {
                name: "ping",
                bare: side(1.0),
                ours: side(0.5),
                ratio: 0.5,
            }],
            mixed: Mixed {
                registrations_per_minute: 2_000.0,
                idle_p99_ms: 1.0,
                busy_p99_ms: 1.5,
                registration_p99_ms: 4.0,
            },
            starts: Starts {
                first: Duration::from_millis(90),
                later: Duration::from_millis(40),
                resident_bytes: Some(20 << 20),
            },
        }
    }

    #[test]
    fn a_person_sees_a_table_and_three_lines() {
        insta::assert_snapshot!(report().text(), @r"
        sqlite with 16 connections, 5 rounds, 3 s for each side of each scenario; latencies in ms

        SCENARIO  BARE/S  OURS/S  RATIO  BARE P50  OURS P50  BARE P99  OURS P99
        ping       20000   10000  0.500      0.50      1.00      1.25      2.50

        p99 of reads           1.00 ms idle, 1.50 ms with 2000 registrations a minute (their p99: 4.00 ms)
        first answer after     90 ms with an empty database, 40 ms with one that is there
        memory when idle       20 MiB
        ");
    }

    #[test]
    fn a_program_gets_every_figure() {
        let document = report().document();
        assert_eq!(
            document["scenarios"][0]["ours"]["requestsPerSecond"],
            10_000.0
        );
        assert_eq!(document["idleResidentBytes"], 20 << 20);
    }
}
