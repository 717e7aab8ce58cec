//! Foresight: machines for tasks that are announced, and for those that earlier days let expect.

use domain::facts::{Facts, foresees};
use domain::market::{Announced, ObservedTime, PoolMemory, PoolNews, PoolRecord, PoolSample};
use domain::plan::{Plan, Snapshot, StrategyDefaults, StrategyName};
use domain::pool::{Pool, PoolDefinition};
use domain::supply::Horizon;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{decide, idle, pool, priced, seconds_ago};

/// A pool that looks ahead, whose tasks take ten minutes.
fn foreseeing() -> Snapshot {
    let mut snapshot = pool(0, 100);
    snapshot.settings.strategy = StrategyName::Balanced;
    snapshot.settings.learns_ratio = true;
    snapshot.settings.foresight = true;
    snapshot.offers = vec![priced("a", 0.4)];
    snapshot.learned = Some(PoolNews {
        task_ms: Some(600_000.0),
        ..PoolMemory::default().news()
    });
    snapshot
}

/// This many tasks wait for runs of ten minutes that began so long ago.
fn announced(count: u64, seconds: i64) -> Announced {
    Announced {
        count,
        since: seconds_ago(seconds),
        run_ms: 600_000.0,
        deviation_ms: 30_000.0,
    }
}

fn launched(plan: &Plan) -> u32 {
    plan.awards.iter().map(|award| award.machines).sum()
}

#[test]
fn machines_start_a_boot_before_the_tasks_that_announce_others_should_end() {
    let mut snapshot = foreseeing();
    let mut launches = Vec::new();
    for seconds in [0, 200, 560] {
        snapshot.announced = vec![announced(40, seconds)];
        launches.push(launched(&decide(&snapshot)));
    }
    assert!(
        launches[0] == 0 && launches[1] <= 1 && launches[2] >= 35,
        "{launches:?}"
    );
    // The machines that are coming count once.
    snapshot.capacity.requested = 30;
    assert!(launched(&decide(&snapshot)) <= 10);
    // So do idle workers.
    snapshot.capacity.requested = 0;
    snapshot.capacity.running = 40;
    assert_eq!(launched(&decide(&snapshot)), 0);
}

#[test]
fn idle_workers_are_kept_for_tasks_that_will_soon_wait() {
    let mut snapshot = foreseeing();
    snapshot.capacity.running = 10;
    snapshot.workers = (0..10)
        .map(|number| idle(&format!("w{number}"), 600))
        .collect();
    assert_eq!(decide(&snapshot).advice.len(), 10);
    snapshot.announced = vec![announced(6, 560)];
    assert_eq!(decide(&snapshot).advice.len(), 4);
}

#[test]
fn a_part_of_the_workers_that_the_hour_needed_is_there_from_its_start() {
    let mut snapshot = foreseeing();
    // 100 tasks of ten minutes in ten minutes keep 100 workers busy; a tenth of them is there.
    snapshot.learned.as_mut().unwrap().expected = Some(100.0 / 600.0);
    assert_eq!(launched(&decide(&snapshot)), 10);
    snapshot.settings.max_capacity = 3;
    assert_eq!(launched(&decide(&snapshot)), 3);
    snapshot.settings.foresight = false;
    assert_eq!(launched(&decide(&snapshot)), 0);
}

#[test]
fn a_plan_says_which_tasks_to_come_it_counts() {
    let mut snapshot = foreseeing();
    snapshot.announced = vec![announced(40, 560)];
    snapshot.learned.as_mut().unwrap().expected = Some(100.0 / 600.0);
    let told = |snapshot: &Snapshot| decide(snapshot).reasons;
    let count = |reasons: &[String], part: &str| {
        let with = reasons.iter().filter(|reason| reason.contains(part));
        with.count()
    };
    let reasons = told(&snapshot);
    assert_eq!(
        count(&reasons, "of 40 announced tasks, 3"),
        1,
        "{reasons:?}"
    );
    let hour = "10 units for the tasks that earlier days let expect at this hour";
    assert_eq!(count(&reasons, hour), 1, "{reasons:?}");
    snapshot.settings.foresight = false;
    let reasons = told(&snapshot);
    assert_eq!(count(&reasons, "announced") + count(&reasons, hour), 0);
}

#[test]
fn people_are_told_what_is_expected() {
    let mut snapshot = foreseeing();
    snapshot.announced = vec![announced(6, 560), announced(1, 60)];
    snapshot.learned.as_mut().unwrap().expected = Some(0.05);
    let text = snapshot.learned_text();
    let lines = "learned: on earlier days, 3 tasks arrived a minute at this hour\n\
                 announced: 7 tasks wait for tasks that run\n";
    assert!(text.contains(lines), "{text}");
    let learned = snapshot.learned_json().unwrap();
    assert_eq!(learned["expectedPerMinute"], 3.0);
    assert_eq!(learned["announcedTasks"], 7);
}

proptest! {
    #[test]
    fn without_history_foresight_changes_nothing(
        pending in 0_u64..200, claimed in 0_u64..50, more in 0_u64..50, coming in 0_u64..50,
        least in 0_u64..20, n_idle in 0_usize..20,
    ) {
        let mut snapshot = foreseeing();
        snapshot.settings.min_capacity = least;
        snapshot.demand.pending = pending;
        snapshot.demand.claimed = claimed;
        snapshot.capacity.running = claimed + more;
        snapshot.capacity.requested = coming;
        let n_idle = n_idle.min(usize::try_from(more).unwrap());
        snapshot.workers = (0..n_idle).map(|number| idle(&format!("w{number}"), 600)).collect();
        let ahead = decide(&snapshot);
        snapshot.settings.foresight = false;
        prop_assert_eq!(ahead, decide(&snapshot));
    }
}

fn of_pool(config: Value) -> Pool {
    let definition: Value = json!({"maxCapacity": 10});
    let mut config = config.as_object().unwrap().clone();
    config.extend(definition.as_object().unwrap().clone());
    let definition = PoolDefinition {
        provider_id: "cloud".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config,
        owner: "a@b".to_owned(),
        email_on_error: false,
    };
    Pool::new("proj/linux".parse().unwrap(), definition, seconds_ago(0))
}

#[test]
fn a_pool_that_looks_ahead_is_never_at_rest() {
    let usual = StrategyDefaults::default();
    for (config, expected) in [
        (json!({"strategy": "balanced", "foresight": true}), true),
        (json!({"strategy": "balanced", "foresight": false}), false),
        (json!({"strategy": "balanced"}), false),
        (json!({"strategy": "weighted", "foresight": true}), false),
        (json!({"foresight": true}), false),
    ] {
        let pool = of_pool(config.clone());
        assert_eq!(foresees(&pool, usual), expected, "{config}");
        let horizon = Horizon::new(seconds_ago(0), Some(seconds_ago(9_999)));
        let facts = Facts::new(pool, Default::default(), horizon, usual);
        assert_eq!(
            (facts.is_asleep(), facts.is_content()),
            (!expected, !expected),
            "{config}"
        );
    }
}

/// Samples each minute for this many days; in the fifth hour of each day, 60 tasks come.
fn sampled(days: i64, foresight: bool) -> (PoolRecord, ObservedTime) {
    // A Monday.
    let start = Timestamp::from_millis(1_767_571_200_000);
    let mut time = ObservedTime::new(start);
    let mut record = PoolRecord::new("a/b".parse().unwrap(), 0, &time);
    for minute in 1..=days * DAY_MS / MINUTE_MS {
        let clock = start.plus_millis(minute * MINUTE_MS);
        time = time.advance(clock, MINUTE_MS).unwrap();
        let comes = clock.start_of(HOUR_MS).millis_since(clock.start_of(DAY_MS)) == 4 * HOUR_MS;
        let sample = PoolSample {
            level: u64::from(comes),
            n_ended: u64::from(comes && minute % 60 > 0),
            foresight,
            ..PoolSample::default()
        };
        record.add(sample, &time);
    }
    (record, time)
}

#[test]
fn arrivals_of_earlier_days_are_expected_at_the_same_hour() {
    let (record, time) = sampled(3, true);
    let at = |hours: i64| ObservedTime {
        clock: time.clock.plus_millis(hours * HOUR_MS),
        ..time
    };
    let per_hour = |hours| {
        record
            .news(&at(hours))
            .expected
            .map(|rate| (rate * 3_600.0).round())
    };
    assert_eq!(per_hour(4), Some(60.0));
    assert_eq!(per_hour(5), Some(0.0));
    assert_eq!(sampled(1, true).0.news(&at(4)).expected, None);
    // Without the setting nothing is remembered, and what was remembered is forgotten.
    let (without, time) = sampled(3, false);
    assert_eq!(without.news(&time).expected, None);
    let (mut record, time) = sampled(3, true);
    record.add(PoolSample::default(), &time);
    assert_eq!(record.memory, {
        let mut memory = record.memory.clone();
        memory.forget_hours();
        memory
    });
}

#[test]
fn memory_by_hour_is_bounded_stored_and_read_back_exactly() {
    let (record, _) = sampled(15, true);
    let text = serde_json::to_string(&record.memory).unwrap();
    assert_eq!(
        serde_json::from_str::<PoolMemory>(&text).unwrap(),
        record.memory
    );
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["hours"]["byHour"].as_object().unwrap().len(), 168);
    assert!(document["hours"].to_string().len() < 8_000);
}

#[test]
fn memory_that_was_stored_without_foresight_is_read() {
    let memory = json!({
        "task": {"mean": 90_000.0, "deviation": 3_000.0, "count": 40},
        "arrivals": {"fast": 0.1, "slow": 0.2, "count": 0, "countedSince": null},
        "levels": {"level": 3, "falls": [], "bands": {}},
    });
    let known: PoolMemory = serde_json::from_value(memory.clone()).unwrap();
    assert_eq!(known.news().task_ms, Some(90_000.0));
    assert_eq!(serde_json::to_value(&known).unwrap(), memory);
    let news = json!({"taskMs": 5.0, "arrivals": 0.0, "retention": {"falls": [], "byBand": {}}});
    let known: PoolNews = serde_json::from_value(news).unwrap();
    assert_eq!((known.deviation_ms, known.expected), (None, None));
}
