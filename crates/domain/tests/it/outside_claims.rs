//! Claims at an outside queue, and errors that workers report, change weights within bounds.

use std::sync::Arc;

use domain::Version;
use domain::demand::Demand;
use domain::facts::{Facts, LaunchRecord, Rooms};
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, Health, Offer, StrategyDefaults, weights};
use domain::pool::{Pool, PoolDefinition};
use domain::supply::Horizon;
use serde_json::json;

use crate::common::seconds_ago;

/// A pool with the launch configs `a` and `b`. Four machines of each registered; those of `b` never
/// asked for work.
fn facts(horizon: Horizon) -> Facts {
    let config = json!({"maxCapacity": 40, "strategy": "weighted"});
    let definition = PoolDefinition {
        provider_id: "cloud".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: config.as_object().unwrap().clone(),
        owner: "me@example.com".to_owned(),
        email_on_error: false,
    };
    let pool = Pool::new("proj/linux".parse().unwrap(), definition, seconds_ago(0));
    let (demand, defaults) = (Demand::default(), StrategyDefaults::default());
    let mut facts = Facts::new(pool, demand, horizon, defaults);
    for (id, silent) in [("a", 0), ("b", 4)] {
        let configuration = json!({"workerManager": {"launchConfigId": id}});
        facts.launch_configs.push(Arc::new(LaunchConfig {
            pool_id: facts.id().clone(),
            id: id.parse().unwrap(),
            archived: false,
            position: 0,
            configuration: configuration.as_object().unwrap().clone(),
            created: seconds_ago(9_000),
            last_modified: seconds_ago(9_000),
            version: Version::FIRST,
        }));
        let health = Health {
            attempted: 4,
            created: 4,
            registered: 4,
            silent,
            ..Health::default()
        };
        let record = LaunchRecord {
            health,
            claimed: 4 - silent,
            ..LaunchRecord::default()
        };
        facts.records.insert(id.parse().unwrap(), record);
    }
    facts
}

fn health_shares(facts: &Facts) -> Vec<f64> {
    let bids = [(); 2].map(|()| Ok(vec![Bid::plain("east".to_owned())]));
    let snapshot = facts.snapshot(&bids, &Rooms::new(), Vec::new()).unwrap();
    weights(&snapshot)
        .iter()
        .map(|weight| weight.health)
        .collect()
}

fn outside(hears_claims: bool) -> Horizon {
    Horizon {
        hears_claims,
        ..Horizon::new(seconds_ago(0), None)
    }
}

#[test]
fn silence_at_an_outside_queue_lowers_the_weight_only_while_claims_are_heard() {
    let own = Horizon::new(seconds_ago(0), Some(seconds_ago(9_000)));
    assert_eq!(health_shares(&facts(own)), [1.0, 0.0]);
    assert_eq!(health_shares(&facts(outside(false))), [1.0, 1.0]);
    // It may have had no tasks for these workers: silence closes no launch config.
    assert_eq!(health_shares(&facts(outside(true))), [1.0, 0.25]);
    let mut unheard = facts(outside(true));
    for record in unheard.records.values_mut() {
        record.claimed = 0;
    }
    assert_eq!(health_shares(&unheard), [1.0, 1.0]);
}

#[test]
fn errors_that_workers_report_count_by_workers_and_close_no_launch_config() {
    let share = |reporters: u64| {
        let mut facts = facts(outside(false));
        let record = facts.records.get_mut(&"a".parse().unwrap()).unwrap();
        record.health.reporters = reporters;
        health_shares(&facts)
    };
    assert_eq!(share(0), [1.0, 1.0]);
    assert_eq!(share(1), [0.75, 1.0]);
    assert_eq!(share(4), [0.05, 1.0]);
    assert_eq!(share(u64::MAX), [0.05, 1.0]);
    let text = |reporters: u64| {
        let mut facts = facts(outside(false));
        let record = facts.records.get_mut(&"a".parse().unwrap()).unwrap();
        record.health.reporters = reporters;
        let bids = [(); 2].map(|()| Ok(vec![Bid::plain("east".to_owned())]));
        let snapshot = facts.snapshot(&bids, &Rooms::new(), Vec::new()).unwrap();
        let offers: &[Offer] = &snapshot.offers;
        assert_eq!(offers[0].health.reporters, reporters);
        weights(&snapshot)[0].reason.clone()
    };
    assert_eq!(text(0), None);
    assert_eq!(
        text(2).as_deref(),
        Some("2 workers reported errors in the last hour")
    );
}
