//! Recorded loads: the file format, and the counts of Taskcluster's simulator.

use simulate::scenario::Arrival;
use simulate::strategy::SimulatedStrategy;
use simulate::trace::{BadTrace, Trace};
use simulate::trace_report::{TraceReport, TraceSettings, simulate_trace};

use crate::common::beside;

const SETTINGS: TraceSettings = TraceSettings {
    startup_ms: 20_000,
    idle_ms: 900_000,
    loop_ms: 1_000,
    max_capacity: 1_000,
};

/// Records of a time and a duration in milliseconds.
fn bytes(records: &[(u32, u32)]) -> Vec<u8> {
    let records = records.iter();
    records
        .flat_map(|(at, duration)| [at.to_be_bytes(), duration.to_be_bytes()].concat())
        .collect()
}

fn parse(bytes: &[u8]) -> Result<Trace, String> {
    Trace::parse(bytes).map_err(|bad: BadTrace| bad.to_string())
}

#[test]
fn a_trace_has_eight_bytes_for_each_task() {
    let trace = parse(&bytes(&[(0, 5), (258, 66_051), (300, 1)])).unwrap();
    let tasks = trace.arrivals.iter().map(|it| (it.at_ms, it.duration_ms));
    assert_eq!(tasks.collect::<Vec<_>>(), [(0, 5), (258, 66_051), (300, 1)]);
    assert_eq!(trace.n_out_of_order, 0);
    // The latest time that a record can have.
    let last = parse(&bytes(&[(u32::MAX, 5)])).unwrap().arrivals[0];
    assert_eq!(last.at_ms, 4_294_967_295);
}

#[test]
fn records_out_of_order_are_sorted_and_counted() {
    let trace = parse(&bytes(&[(7, 1), (3, 2), (9, 3), (9, 4), (1, 5)])).unwrap();
    let tasks = trace.arrivals.iter().map(|it| (it.at_ms, it.duration_ms));
    assert_eq!(
        tasks.collect::<Vec<_>>(),
        [(1, 5), (3, 2), (7, 1), (9, 3), (9, 4)]
    );
    assert_eq!(trace.n_out_of_order, 2);
}

#[test]
fn what_is_no_trace_is_refused_with_the_place_of_the_error() {
    let refused = |bytes: &[u8]| parse(bytes).unwrap_err();
    assert_eq!(
        refused(&[]),
        "it is empty: a trace has a record of 8 bytes for each task"
    );
    let mut cut = bytes(&[(0, 5), (1, 5)]);
    cut.truncate(13);
    assert_eq!(
        refused(&cut),
        "it has 13 bytes, and its last record is cut off after 5 of 8 bytes"
    );
    let long = bytes(&[(0, 5), (1, 1_296_000_000)]);
    assert_eq!(
        refused(&long),
        "record 2 (at byte 8): the task runs 15 days, and no task runs longer than 14"
    );
}

fn report(arrivals: &[Arrival], strategy: &str) -> TraceReport {
    let strategy: SimulatedStrategy = strategy.parse().unwrap();
    simulate_trace(arrivals, &SETTINGS, strategy, 1).unwrap()
}

#[test]
fn a_small_trace_is_counted_by_hand() {
    // For two tasks at 0.5 s, workers are launched at 1 s and register at 21 s. A third at 30 s
    // finds both busy. A worker is launched for it at once, and registers at 50 s.
    let arrivals = parse(&bytes(&[(500, 60_000), (500, 30_000), (30_000, 10_000)])).unwrap();
    let report = report(&arrivals.arrivals, "taskcluster");
    assert_eq!((report.tasks, report.unfinished), (3, 0));
    let wait = &report.wait;
    assert_eq!((wait.p50, wait.p95), (20.5, 20.5));
    assert!(
        (wait.mean - (20.5 + 20.5 + 20.0) / 3.0).abs() < 1e-9,
        "{wait:?}"
    );
    assert_eq!(
        (report.workers, report.never_worked, report.peak),
        (3, 0, 3)
    );
    // Registered until their end: 60 + 900, 30 + 900 and 10 + 900 s.
    assert!(
        (report.worker_hours - 2_800.0 / 3_600.0).abs() < 1e-9,
        "{report:?}"
    );
    assert!((report.busy_hours - 100.0 / 3_600.0).abs() < 1e-9);
    assert!((report.utilization - 100.0 / 2_800.0).abs() < 1e-9);
    assert_eq!(report.counted_hours, (0.0, 144.0));
}

#[test]
fn of_a_long_trace_the_days_one_to_six_count() {
    const DAY: u32 = 86_400_000;
    let records = [
        (0, 60_000),
        (DAY + 1_000, 60_000),
        (6 * DAY - 1, 60_000),
        (6 * DAY, 60_000),
    ];
    let arrivals = parse(&bytes(&records)).unwrap().arrivals;
    let report = report(&arrivals, "taskcluster");
    assert_eq!(report.counted_hours, (24.0, 144.0));
    // The first task is before them; the last one is never created.
    assert_eq!((report.tasks, report.workers), (2, 2));
    // The second of the workers that count registers after they end.
    assert!(
        (report.worker_hours - 960.0 / 3_600.0).abs() < 1e-9,
        "{report:?}"
    );
    assert!((report.busy_hours - 60.0 / 3_600.0).abs() < 1e-9);
}

#[test]
fn production_strategies_differ_by_less_than_a_loop_interval() {
    let records: Vec<_> = (0..300).map(|number| (number * 7_000, 45_000)).collect();
    let arrivals = parse(&bytes(&records)).unwrap().arrivals;
    let expected = report(&arrivals, "taskcluster");
    for strategy in ["taskcluster-fixed", "weighted", "aws-provisioner"] {
        let found = report(&arrivals, strategy);
        assert_eq!(found.workers, expected.workers, "{strategy}");
        assert!(
            (found.wait.mean - expected.wait.mean).abs() < 0.01,
            "{strategy}"
        );
        let most = found.workers as f64 / 3_600.0;
        assert!(
            (found.worker_hours - expected.worker_hours).abs() <= most,
            "{strategy}"
        );
    }
}

/// A line of Taskcluster's simulator, with the parameters above: tasks, mean, p50, p95, p99;
/// workers, never worked, worker hours, busy hours, peak.
type Line = (&'static str, [f64; 10]);

#[rustfmt::skip]
const LINES: [Line; 3] = [
    ("mobile-3-decision", [222.0, 10.8, 16.2, 20.9, 21.0, 126.0, 9.0, 49.9, 5.8, 7.0]),
    ("mobile-1-decision", [178.0, 10.0, 0.0, 20.9, 21.0, 87.0, 2.0, 38.4, 6.6, 4.0]),
    ("mobile-3-b-linux-large", [4_000.0, 12.84, 20.2, 20.9, 21.0, 2_523.0, 15.0, 1_355.8, 521.0, 267.0]),
];

#[test]
fn taskclusters_simulator_is_reproduced() {
    for (name, expected) in LINES {
        let Some(file) = beside(&format!("data/traces/{name}.dat")) else {
            eprintln!("skipped: ../shared/data/traces/{name}.dat does not exist");
            continue;
        };
        let trace = Trace::parse(&std::fs::read(file).unwrap()).unwrap();
        let report = report(&trace.arrivals, "taskcluster");
        let wait = &report.wait;
        let found = [
            report.tasks as f64,
            wait.mean,
            wait.p50,
            wait.p95,
            wait.p99,
            report.workers as f64,
            report.never_worked as f64,
            report.worker_hours,
            report.busy_hours,
            report.peak as f64,
        ];
        for (found, expected) in found.into_iter().zip(expected) {
            // The lines are rounded, to a decimal at the least.
            let tolerance = 0.001 * expected + 0.05;
            assert!((found - expected).abs() <= tolerance, "{name}: {report:#?}");
        }
    }
}
