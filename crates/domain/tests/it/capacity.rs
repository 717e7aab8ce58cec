//! Need: the published vectors of both strategies, and where ours differ from Taskcluster's.

use domain::plan::{Load, Settings, Snapshot, StrategyName};
use serde_json::Value;

use crate::common::{beside, decide, launched, pool};

/// Running, coming, pending, minimum, maximum, ratio, change.
const AWS_PROVISIONER: [(f64, f64, f64, u64, u64, f64, f64); 23] = [
    (0.0, 0.0, 0.0, 0, 20, 0.0, 0.0),
    (0.0, 0.0, 0.0, 1, 20, 0.0, 1.0),
    (0.0, 0.0, 5.0, 0, 20, 0.0, 5.0),
    (5.0, 0.0, 5.0, 0, 20, 0.0, 5.0),
    (5.0, 5.0, 5.0, 0, 20, 0.0, 0.0),
    (0.0, 10.0, 5.0, 0, 20, 0.0, -5.0),
    (0.0, 0.0, 30.0, 1, 20, 0.0, 20.0),
    (0.0, 40.0, 10_000.0, 0, 1000, 0.2, 960.0),
    (10.0, 0.0, 10.0, 0, 100, 0.2, 8.0),
    (10.0, 0.0, 10.0, 0, 100, 0.25, 7.0),
    (10.0, 0.0, 10.0, 0, 100, 0.15, 8.0),
    (5.0, 0.0, 4.0, 0, 100, 1.0, -1.0),
    (100.0, 0.0, 10.0, 0, 100, 0.2, -10.0),
    (100.0, 20.0, 0.0, 50, 200, 1.0, -70.0),
    (25.0, 0.0, 0.0, 0, 20, 0.0, -5.0),
    (10.0, 15.0, 3.0, 0, 20, 0.0, -12.0),
    (10.0, 0.0, 5.0, 0, 1000, -0.2, 7.0),
    (5.0, 0.0, 0.0, 0, 20, -0.5, 2.0),
    (3.0, 2.0, 10.0, 0, 100, 0.0, 8.0),
    (3.0, 2.0, 10.0, 0, 100, 1.0, 5.0),
    (19.0, 1.0, 1.0, 0, 20, 0.0, 0.0),
    (0.0, 0.0, 5.0, 10, 4, 0.0, 4.0),
    (2.5, 0.0, 5.0, 0, 20, 1.0, 2.0),
];

/// For the strategy `aws-provisioner`; unless it is literal, all running units have work.
fn change(min: u64, max: u64, ratio: f64, load: Load) -> f64 {
    let settings = |literal| Settings {
        min_capacity: min,
        max_capacity: max,
        scaling_ratio: ratio,
        strategy: StrategyName::AwsProvisioner,
        literal,
        ..pool(0, 0).settings
    };
    let at_work = Load {
        claimed: load.running,
        ..load
    };
    let ours = at_work.change(&settings(false));
    assert_eq!(ours, load.change(&settings(true)));
    ours
}

#[test]
fn aws_provisioner_computes_every_published_change() {
    for (index, case) in AWS_PROVISIONER.into_iter().enumerate() {
        let (running, coming, pending, min, max, ratio, expected) = case;
        let load = Load {
            running,
            coming,
            pending,
            claimed: 0.0,
            fresh: 0.0,
        };
        assert_eq!(change(min, max, ratio, load), expected, "A{}", index + 1);
    }
}

#[test]
fn aws_provisioner_computes_what_the_original_code_did() {
    let Some(file) = beside("vectors/aws-provisioner.txt") else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    let mut n_cases = 0;
    for line in text.lines().filter(|line| line.contains("capacityChange")) {
        let case: Value = serde_json::from_str(line).unwrap();
        let given = |name: &str| case["in"][name].as_f64().unwrap();
        let load = Load {
            running: given("running"),
            coming: given("pendingCapacity"),
            pending: given("pendingTasks"),
            claimed: 0.0,
            fresh: 0.0,
        };
        let limit = |name: &str| case["in"][name].as_u64().unwrap();
        let found = change(limit("min"), limit("max"), given("ratio"), load);
        assert_eq!(found, case["out"].as_f64().unwrap(), "{line}");
        n_cases += 1;
    }
    assert_eq!(n_cases, 27);
}

#[test]
fn spare_capacity_that_is_there_is_not_asked_for_again_unless_literally() {
    let of = |literal, claimed| {
        let mut snapshot = pool(0, 100);
        snapshot.settings.strategy = StrategyName::AwsProvisioner;
        snapshot.settings.scaling_ratio = -0.2;
        snapshot.settings.literal = literal;
        snapshot.capacity.running = 12;
        snapshot.demand.claimed = claimed;
        launched(&decide(&snapshot))
    };
    assert_eq!((of(false, 12), of(false, 10), of(false, 0)), (2, 0, 0));
    assert_eq!((of(true, 12), of(true, 10), of(true, 0)), (2, 2, 2));
}

/// The result of Taskcluster's estimator; `existing` contains `requested`, which it subtracts
/// twice.
fn taskcluster(e: &Estimate) -> f64 {
    let idle = (e.existing - e.claimed).max(0.0);
    let adjusted = (e.pending - idle).max(0.0);
    let total = e.existing + e.stopping;
    let desired = e.min.max((adjusted * e.ratio + total).min(e.max));
    ((desired - total).max(0.0) - e.requested).max(0.0)
}

struct Estimate {
    pending: f64,
    claimed: f64,
    existing: f64,
    requested: f64,
    stopping: f64,
    min: f64,
    max: f64,
    ratio: f64,
}

impl Estimate {
    fn snapshot(&self) -> Snapshot {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the vectors are whole numbers"
        )]
        let whole = |units: f64| units as u64;
        let mut snapshot = pool(whole(self.min), whole(self.max));
        snapshot.settings.scaling_ratio = self.ratio;
        snapshot.demand.pending = whole(self.pending);
        snapshot.demand.claimed = whole(self.claimed);
        snapshot.capacity.requested = whole(self.requested);
        snapshot.capacity.running = whole((self.existing - self.requested).max(0.0));
        snapshot.capacity.stopping = whole(self.stopping);
        snapshot
    }
}

/// Pending, claimed, existing, requested, stopping, minimum, maximum, ratio; how many Taskcluster
/// starts, how many we start, and whether there is an alarm.
type Row = ([f64; 8], f64, u64, bool);

const ESTIMATES: [Row; 25] = [
    ([0., 0., 0., 0., 0., 0., 0., 1.], 0., 0, false),
    ([0., 0., 0., 0., 0., 1., 1., 1.], 1., 1, false),
    ([0., 0., 1., 1., 0., 1., 1., 1.], 0., 0, false),
    ([100., 0., 0., 0., 0., 0., 100., 1.], 100., 100, false),
    ([100., 0., 0., 0., 0., 0., 50., 1.], 50., 50, false),
    ([100., 0., 0., 0., 0., 0., 100., 0.5], 50., 50, false),
    ([100., 25., 25., 0., 0., 0., 100., 0.5], 50., 50, false),
    ([0., 0., 50., 0., 0., 1., 1., 1.], 0., 0, true),
    ([0., 0., 5., 0., 0., 1., 1., 1.], 0., 0, false),
    ([26., 0., 26., 0., 0., 0., 20., 1.], 0., 0, true),
    ([20., 0., 0., 10., 10., 0., 50., 1.], 10., 10, false),
    ([11., 0., 10., 0., 0., 0., 50., 1.], 1., 1, false),
    ([5., 10., 10., 0., 0., 0., 50., 1.], 5., 5, false),
    ([0., 11., 10., 0., 0., 0., 50., 1.], 0., 0, false),
    ([10., 0., 0., 0., 100., 0., 50., 1.], 0., 0, false),
    ([10., 0., 0., 0., 45., 0., 50., 1.], 5., 5, false),
    ([100., 0., 100., 100., 0., 0., 1000., 1.], 0., 0, false),
    // From here on, Taskcluster subtracts coming capacity twice, and we once.
    ([150., 0., 100., 100., 0., 0., 1000., 1.], 0., 50, false),
    ([250., 0., 100., 100., 0., 0., 1000., 1.], 50., 150, false),
    ([100., 0., 10., 10., 0., 0., 1000., 1.], 80., 90, false),
    // A part of a machine is a machine.
    ([3., 0., 0., 0., 0., 0., 50., 0.5], 1.5, 2, false),
    ([1., 0., 0., 0., 0., 0., 50., 0.1], 0.1, 1, false),
    // A minimum above the maximum: the maximum counts in both.
    ([10., 0., 0., 0., 0., 20., 5., 1.], 20., 5, false),
    ([10., 0., 5., 2., 0., 0., 100., 1.], 3., 5, false),
    ([10., 3., 5., 2., 0., 0., 100., 1.], 6., 8, false),
];

#[test]
fn weighted_starts_what_is_right_of_every_published_estimate() {
    for (index, (numbers, theirs, ours, alarm)) in ESTIMATES.into_iter().enumerate() {
        let [
            pending,
            claimed,
            existing,
            requested,
            stopping,
            min,
            max,
            ratio,
        ] = numbers;
        let estimate = Estimate {
            pending,
            claimed,
            existing,
            requested,
            stopping,
            min,
            max,
            ratio,
        };
        let name = format!("E{}", index + 1);
        assert_eq!(taskcluster(&estimate), theirs, "{name}");
        let plan = decide(&estimate.snapshot());
        assert_eq!(launched(&plan), ours, "{name}");
        assert_eq!(plan.alarm.is_some(), alarm, "{name}");
    }
}

#[test]
fn weighted_wants_the_published_targets() {
    let target = |index: usize| {
        let [pending, claimed, _, _, _, min, max, ratio] = ESTIMATES[index - 1].0;
        let estimate = Estimate {
            pending,
            claimed,
            existing: 0.0,
            requested: 0.0,
            stopping: 0.0,
            min,
            max,
            ratio,
        };
        decide(&estimate.snapshot()).target
    };
    assert_eq!((target(7), target(14), target(25)), (62.5, 11.0, 13.0));
    assert_eq!((target(2), target(10), target(22)), (1.0, 20.0, 0.1));
}

#[test]
fn weighted_agrees_with_the_original_code_where_nothing_is_coming() {
    let Some(file) = beside("vectors/worker-manager.txt") else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap();
    let mut n_cases = 0;
    for line in text.lines().filter(|line| line.contains("\"spawn\"")) {
        let case: Value = serde_json::from_str(line).unwrap();
        let given = |name: &str| case[name].as_f64().unwrap();
        let estimate = Estimate {
            pending: given("pending"),
            claimed: given("claimed"),
            existing: given("existing"),
            requested: given("requested"),
            stopping: given("stopping"),
            min: given("min"),
            max: given("max"),
            ratio: given("ratio"),
        };
        let spawn = given("spawn");
        assert_eq!(taskcluster(&estimate), spawn, "{line}");
        let plan = decide(&estimate.snapshot());
        assert_eq!(
            plan.alarm.is_some(),
            case["alarm"].as_bool().unwrap(),
            "{line}"
        );
        let ours = f64::from(u32::try_from(launched(&plan)).unwrap());
        if estimate.min > estimate.max {
            assert_eq!(ours, estimate.max, "{line}");
        } else if estimate.requested == 0.0 {
            assert_eq!(ours, spawn.ceil(), "{line}");
        } else {
            assert!(ours >= spawn, "{line}");
        }
        n_cases += 1;
    }
    assert_eq!(n_cases, 31);
}

#[test]
fn ten_tasks_three_busy_workers_and_two_booting_are_read_in_two_ways() {
    // The example in RFC 124 gives 5: with its ratio of 1, as many tasks as workers may wait.
    let load = Load {
        pending: 10.0,
        claimed: 3.0,
        running: 3.0,
        coming: 2.0,
        fresh: 0.0,
    };
    assert_eq!(change(0, 100, 1.0, load), 5.0);
    assert_eq!(change(0, 100, 0.0, load), 8.0);
    // For `weighted`, 1 means that no task should wait: two units are coming for two of the ten.
    let settings = pool(0, 100).settings;
    assert_eq!(load.change(&settings), 8.0);
    // Taskcluster counts the two units twice.
    let [
        pending,
        claimed,
        existing,
        requested,
        stopping,
        min,
        max,
        ratio,
    ] = ESTIMATES[24].0;
    let estimate = Estimate {
        pending,
        claimed,
        existing,
        requested,
        stopping,
        min,
        max,
        ratio,
    };
    assert_eq!(taskcluster(&estimate), 6.0);
    assert_eq!(launched(&decide(&estimate.snapshot())), 8);
}

#[test]
fn a_backlog_is_answered_once_however_often_it_is_looked_at() {
    for ratio in [0.1, 0.5, 1.0] {
        let mut snapshot = pool(0, 1000);
        snapshot.settings.scaling_ratio = ratio;
        snapshot.demand.pending = 97;
        let first = decide(&snapshot);
        assert!(launched(&first) > 0);
        snapshot.capacity.intended = launched(&first);
        assert_eq!(launched(&decide(&snapshot)), 0, "ratio {ratio}");
        (snapshot.capacity.requested, snapshot.capacity.intended) = (launched(&first), 0);
        assert_eq!(launched(&decide(&snapshot)), 0, "ratio {ratio}");
    }
}
