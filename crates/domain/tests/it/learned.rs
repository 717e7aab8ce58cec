//! The memory of `balanced`: shown to people, used by plans, and small enough to store with them.

use std::sync::Arc;

use domain::Version;
use domain::demand::Demand;
use domain::facts::{Facts, MarketFacts, Rooms, Starting, learns};
use domain::id::PoolId;
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::market::{
    ObservedTime, OfferingId, OfferingMemory, OfferingNews, PoolMemory, PoolRecord, PoolSample,
    Trouble,
};
use domain::plan::{Bid, Input, Offer, Snapshot, StrategyDefaults, StrategyName};
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool, PoolDefinition};
use domain::supply::{Group, Horizon};
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::WorkerState;
use serde_json::json;

use crate::common::{busy, decide, from_config, offer, pool, rival, seconds_ago};

/// In this region, with what these news have shown.
fn learned(id: &str, region: &str, news: &[(i64, OfferingNews)]) -> Offer {
    let offering = OfferingId::new(&"cloud".parse().unwrap(), region);
    let mut memory = OfferingMemory::new(&offering);
    for (ago, news) in news {
        memory.observe(*news, seconds_ago(*ago));
    }
    Offer {
        bid: Ok(Bid {
            price: Some(0.5),
            ..Bid::plain(region.to_owned())
        }),
        memory: Some(memory),
        ..offer(id)
    }
}

fn balanced(offers: Vec<Offer>) -> Snapshot {
    let mut snapshot = pool(0, 100);
    snapshot.settings.strategy = StrategyName::Balanced;
    snapshot.settings.learns_ratio = true;
    snapshot.learned = Some(PoolMemory::default().news());
    snapshot.offers = offers;
    snapshot
}

fn registered(seconds: i64) -> OfferingNews {
    OfferingNews::Registered {
        after_ms: seconds * SECOND_MS,
    }
}

fn failed(cause: Cause) -> OfferingNews {
    OfferingNews::Failed {
        trouble: Trouble::from(cause),
    }
}

#[test]
fn what_was_learned_is_told_to_people() {
    let vanished = OfferingNews::Failed {
        trouble: Trouble::Vanished,
    };
    let mut snapshot = balanced(vec![
        learned("a", "east", &[(100, registered(93)), (90, registered(93))]),
        learned("b", "west", &[(5, failed(Cause::Capacity))]),
        learned("c", "south", &[(500, vanished), (10, OfferingNews::Asked)]),
        // The same offering again is named once.
        learned("d", "east", &[(100, registered(93)), (90, registered(93))]),
    ]);
    insta::assert_snapshot!(snapshot.learned_text(), @r"
    learned: too few tasks have ended to know how long they take; 0 tasks arrive a minute; no unit is kept idle for later tasks
    learned: cloud east: a machine is ready after about 93 s, 100 % of them register
    learned: cloud south: a machine is ready after about 180 s, 100 % of them register; tried with one machine after a failure (vanished), next try 2026-09-21T14:15:10.000Z; at most 1 may start at a time
    learned: cloud west: a machine is ready after about 180 s, 100 % of them register; not used after a failure (capacity), next try 2026-09-21T14:14:11.215Z
    ");
    let shown = snapshot.learned_json().unwrap();
    let expected = json!({"offering": "cloud south", "bootSeconds": 180.0, "reliability": 1.0,
        "interruptionsPerHour": 0.01, "breaker": "on trial", "trouble": "vanished",
        "nextTry": "2026-09-21T14:15:10.000Z", "failuresInARow": 1, "window": 1});
    assert_eq!(shown["offerings"][1], expected);
    let mut memory = PoolMemory::default();
    for _ in 0..20 {
        memory.add_task(90_000);
    }
    snapshot.learned = Some(memory.news());
    let text = snapshot.learned_text();
    assert!(
        text.starts_with("learned: a task takes about 90 s; 0 tasks arrive a minute; "),
        "{text}"
    );
    let shown = snapshot.learned_json().unwrap();
    assert_eq!(
        (&shown["taskSeconds"], &shown["keptUnits"]),
        (&json!(90.0), &json!(0))
    );
    snapshot.learned = None;
    assert_eq!(
        (snapshot.learned_json(), snapshot.learned_text()),
        (None, String::new())
    );
}

#[test]
fn a_missing_worker_costs_what_the_offerings_that_can_be_used_cost() {
    let dear = Offer {
        bid: Ok(Bid {
            price: Some(1.0),
            ..Bid::plain("west".to_owned())
        }),
        ..learned("b", "west", &[(50, registered(40))])
    };
    let cheap = |news: &[(i64, OfferingNews)]| learned("a", "east", news);
    let memory = PoolMemory::default();
    let both = balanced(vec![cheap(&[]), dear.clone()]);
    // The shortest boot and the lowest price count: 40 s, and 0.5 $ an hour.
    assert_eq!(
        both.missing_ms(&memory),
        memory.missing_ms(40_000.0, 0.5, 1.0)
    );
    let one = balanced(vec![cheap(&[(5, failed(Cause::Capacity))]), dear]);
    assert_eq!(
        one.missing_ms(&memory),
        memory.missing_ms(40_000.0, 1.0, 1.0)
    );
}

/// A pool of this strategy in which each unit of capacity has a task.
fn busy_pool(strategy: &str) -> Facts {
    let config = json!({"maxCapacity": 10, "strategy": strategy});
    let definition = PoolDefinition {
        provider_id: "cloud".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: config.as_object().unwrap().clone(),
        owner: "me@example.com".to_owned(),
        email_on_error: false,
    };
    let id: PoolId = "proj/linux".parse().unwrap();
    let demand = Demand {
        pending: 0,
        claimed: 4,
    };
    let pool = Pool::new(id.clone(), definition, seconds_ago(0));
    let mut facts = Facts::new(
        pool,
        demand,
        Horizon::new(seconds_ago(0), None),
        StrategyDefaults::default(),
    );
    facts.inventory.workers.push(Group {
        pool_id: id,
        launch_config_id: None,
        state: WorkerState::Running,
        draining: false,
        count: 4,
        capacity: 4,
    });
    facts
}

#[test]
fn a_pool_that_has_all_it_needs_is_decided_on_while_others_want_its_quota() {
    let usual = StrategyDefaults::default();
    let learns = |strategy| learns(&busy_pool(strategy).pool, usual);
    assert!(learns("balanced") && !learns("weighted"));
    let mut facts = busy_pool("balanced");
    assert!(facts.is_content());
    facts.is_contending = true;
    assert!(!facts.is_content());

    let mut snapshot = balanced(vec![offer("a")]);
    snapshot.demand.claimed = 4;
    snapshot.capacity.running = 4;
    assert!(!facts.needs_candidates(&snapshot));
    snapshot.rivals = vec![rival(4, 0, &[(&offer("a"), 0)])];
    snapshot.offers[0].held = 4;
    // It must give some of its busy workers.
    assert!(facts.needs_candidates(&snapshot));
    snapshot.workers = ["a", "b", "c", "d"]
        .map(|id| from_config("a", busy(id)))
        .into();
    assert_eq!(decide(&snapshot).advice.len(), 1);
}

#[test]
fn a_launch_at_a_provider_that_the_pool_has_left_is_no_trial_of_the_new_one() {
    let mut facts = busy_pool("balanced");
    facts.demand.pending = 5;
    let configuration = json!({"workerManager": {"launchConfigId": "a"}});
    facts.launch_configs.push(Arc::new(LaunchConfig {
        pool_id: facts.id().clone(),
        id: "a".parse().unwrap(),
        archived: false,
        position: 0,
        configuration: configuration.as_object().unwrap().clone(),
        created: seconds_ago(900),
        last_modified: seconds_ago(900),
        version: Version::FIRST,
    }));
    // Some machines have failed, so one may start at a time.
    let mut memory = OfferingMemory::default();
    let trouble = Trouble::Registration;
    memory.observe(OfferingNews::Failed { trouble }, seconds_ago(500));
    let launched = |provider: &str| {
        let mut facts = facts.clone();
        facts.memory = Some(MarketFacts {
            offerings: [(OfferingId::new(&"cloud".parse().unwrap(), "east"), memory)].into(),
            starting: vec![Starting {
                launch_config_id: "a".parse().unwrap(),
                provider_id: provider.parse().unwrap(),
                since: seconds_ago(400),
                machines: 1,
                capacity_each: 1,
                offering: None,
            }],
            ..MarketFacts::default()
        });
        let bids = [Ok(vec![Bid::plain("east".to_owned())])];
        let snapshot = facts.snapshot(&bids, &Rooms::new(), Vec::new()).unwrap();
        decide(&snapshot).awards.len()
    };
    assert_eq!((launched("cloud"), launched("left")), (0, 1));
}

#[test]
fn a_pool_whose_machines_are_coming_is_decided_on_when_they_may_be_late() {
    let mut facts = busy_pool("balanced");
    facts.demand.pending = 3;
    let coming = facts.inventory.workers[0].clone();
    facts.inventory.workers.push(Group {
        state: WorkerState::Requested,
        count: 3,
        capacity: 3,
        ..coming
    });
    assert!(!facts.is_content());
    facts.may_have_late = false;
    assert!(facts.is_content());
    facts.demand.pending = 4;
    assert!(!facts.is_content());
}

#[test]
fn what_was_learned_of_the_largest_pool_is_stored_with_its_plans() {
    let mut time = ObservedTime::new(seconds_ago(200_000));
    let mut record = PoolRecord::new("proj/linux".parse().unwrap(), 400, &time);
    for step in 0..200 {
        let passed: Timestamp = time.clock.plus_millis(31_337);
        time = time.advance(passed, 0).unwrap();
        let sample = PoolSample {
            level: 399 - step,
            n_ended: 1,
            durations_ms: vec![1_000 * i64::try_from(step).unwrap()],
            ..PoolSample::default()
        };
        record.add(sample, &time);
    }
    let news = |number: usize| {
        let boot = i64::try_from(number * 37 % 400).unwrap();
        [
            (100, registered(boot)),
            (boot, failed(Cause::Capacity)),
            (1, OfferingNews::Asked),
        ]
    };
    let offers = (0..MAX_LAUNCH_CONFIGS).map(|number| {
        let (id, place) = (format!("lc-{number}"), format!("region-{number} m5.large"));
        learned(&id, &place, &news(number))
    });
    let mut snapshot = balanced(offers.collect());
    snapshot.learned = Some(record.news(&time));
    snapshot.demand.pending = 3;
    assert_eq!(
        snapshot.learned.as_ref().unwrap().retention.falls.len(),
        200
    );
    let input = Input { seed: 7, snapshot };
    let packed = input.pack().expect("it is within the limit");
    let again = Input::unpack(&packed).unwrap();
    assert_eq!(again, input);
    assert_eq!(again.replay(), input.replay());
}
