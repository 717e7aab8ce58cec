//! The report of the API benchmark, as text and as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::load::Length;
use super::paced::Mixed;
use super::scenario::{Outcome, Side};
use crate::output;

const HEADINGS: [&str; 10] = [
    "SCENARIO",
    "SERVER",
    "REQUESTS/S",
    "OF BARE",
    "OF FRESH",
    "P50 MS",
    "P99 MS",
    "SERVER US",
    "DATABASE US",
    "CLIENT US",
];

pub(crate) struct Report {
    pub(crate) database: &'static str,
    pub(crate) length: Length,
    pub(crate) connections: usize,
    pub(crate) rounds: u32,
    pub(crate) scenarios: Vec<Outcome>,
    pub(crate) mixed: Mixed,
    pub(crate) starts: Starts,
}

/// Start-up time and memory of an idle server.
pub(crate) struct Starts {
    /// Until the first response, with an empty database.
    pub(crate) first: Duration,
    /// The same with an existing database.
    pub(crate) later: Duration,
    pub(crate) resident_bytes: Option<u64>,
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
        rows.extend(self.scenarios.iter().flat_map(rows_of));
        let table = output::table(&rows);
        let Mixed {
            registrations_per_minute,
            idle_p99_ms,
            busy_p99_ms,
            registration_p99_ms,
        } = self.mixed;
        let length = match self.length {
            Length::For(length) => format!("{} s", length.as_secs()),
            Length::Requests(most) => format!("{most} requests"),
        };
        let memory = match self.starts.resident_bytes {
            Some(bytes) => format!("{} MiB", bytes / (1 << 20)),
            None => "unknown on this system".to_owned(),
        };
        format!(
            "\
{} with {} connections, {} rounds, {} for each side of each scenario
processor time of all processes for each request, in microseconds

{table}
p99 of reads           {idle_p99_ms:.2} ms idle, {busy_p99_ms:.2} ms with {registrations_per_minute:.0} registrations a minute (their p99: {registration_p99_ms:.2} ms)
first answer after     {} ms with an empty database, {} ms with one that is there
memory when idle       {memory}
",
            self.database,
            self.connections,
            self.rounds,
            length,
            self.starts.first.as_millis(),
            self.starts.later.as_millis(),
        )
    }

    pub(crate) fn document(&self) -> Value {
        let scenarios: Vec<_> = self
            .scenarios
            .iter()
            .map(|outcome| {
                let servers = outcome.measured.iter().map(|measured| {
                    let mut figures = side(measured.side);
                    figures["ofBare"] = measured.ratio.into();
                    figures["ofFresh"] = measured.of_first.into();
                    (measured.server.name().to_owned(), figures)
                });
                json!({
                    "name": outcome.name,
                    "bare": side(outcome.bare),
                    "servers": servers.collect::<Map<String, Value>>(),
                })
            })
            .collect();
        let seconds = match self.length {
            Length::For(length) => Some(length.as_secs_f64()),
            Length::Requests(_) => None,
        };
        json!({
            "database": self.database,
            "connections": self.connections,
            "rounds": self.rounds,
            "seconds": seconds,
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

fn rows_of(outcome: &Outcome) -> Vec<Vec<String>> {
    let none = const { [String::new(), String::new()] };
    let bare = row(outcome.name, "bare", outcome.bare, none);
    let measured = outcome.measured.iter().map(|measured| {
        let ratios = [measured.ratio, measured.of_first].map(|ratio| format!("{ratio:.3}"));
        row("", measured.server.name(), measured.side, ratios)
    });
    [bare].into_iter().chain(measured).collect()
}

fn row(name: &str, server: &str, side: Side, [of_bare, of_fresh]: [String; 2]) -> Vec<String> {
    let micros = |seconds: f64| format!("{:.1}", seconds * 1e6);
    let used = side.used.map_or([const { String::new() }; 3], |used| {
        [used.server, used.database, used.client].map(micros)
    });
    let [of_server, of_database, of_client] = used;
    vec![
        name.to_owned(),
        server.to_owned(),
        format!("{:.0}", side.per_second),
        of_bare,
        of_fresh,
        format!("{:.2}", side.p50_ms),
        format!("{:.2}", side.p99_ms),
        of_server,
        of_database,
        of_client,
    ]
}

fn side(side: Side) -> Value {
    let millis = |seconds: f64| seconds * 1_000.0;
    let used = side.used.map(|used| {
        json!({
            "serverMs": millis(used.server),
            "databaseMs": millis(used.database),
            "answeringMs": millis(used.answering()),
            "clientMs": millis(used.client),
        })
    });
    json!({
        "requestsPerSecond": side.per_second,
        "p50Ms": side.p50_ms,
        "p99Ms": side.p99_ms,
        "processorTime": used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::ProcessorTime;
    use crate::scenario::{Contender, Measured};

    fn report() -> Report {
        let side = |factor: f64| Side {
            per_second: 20_000.0 * factor,
            p50_ms: 0.5 / factor,
            p99_ms: 1.25 / factor,
            used: Some(ProcessorTime {
                server: 1e-5 / factor,
                database: 1e-6,
                client: 2e-5,
            }),
        };
        let measured = Measured {
            server: Contender::Fresh,
            side: side(0.5),
            ratio: 0.5,
            of_first: 1.0,
        };
        Report {
            database: "sqlite",
            length: Length::For(Duration::from_secs(3)),
            connections: 16,
            rounds: 5,
            scenarios: vec![Outcome {
                name: "ping",
                bare: side(1.0),
                measured: vec![measured],
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
        sqlite with 16 connections, 5 rounds, 3 s for each side of each scenario
        processor time of all processes for each request, in microseconds

        SCENARIO  SERVER  REQUESTS/S  OF BARE  OF FRESH  P50 MS  P99 MS  SERVER US  DATABASE US  CLIENT US
        ping        bare       20000                       0.50    1.25       10.0          1.0       20.0
                   fresh       10000    0.500     1.000    1.00    2.50       20.0          1.0       20.0

        p99 of reads           1.00 ms idle, 1.50 ms with 2000 registrations a minute (their p99: 4.00 ms)
        first answer after     90 ms with an empty database, 40 ms with one that is there
        memory when idle       20 MiB
        ");
    }

    #[test]
    fn a_program_gets_every_figure() {
        let document = report().document();
        let fresh = &document["scenarios"][0]["servers"]["fresh"];
        assert_eq!(fresh["requestsPerSecond"], 10_000.0);
        assert_eq!(fresh["ofBare"], 0.5);
        let used = fresh["processorTime"]["answeringMs"].as_f64().unwrap();
        assert!((used - 0.021).abs() < 1e-9);
        assert_eq!(document["idleResidentBytes"], 20 << 20);
    }
}
