//! The shadow of a pool: it plans from the same input, and never changes the plan.

use domain::demand::Demand;
use domain::facts::{Facts, MarketFacts, Rooms};
use domain::market::{OfferingId, PoolNews};
use domain::plan::{
    Agreement, Bid, Comparison, ComparisonSums, Input, OfferKnowledge, Plan, Settings, Shadow,
    Snapshot, StrategyDefaults, StrategyName,
};
use domain::pool::{Pool, PoolDefinition};
use domain::supply::Horizon;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::common::{busy, idle, offer, pool, priced, rival, seconds_ago};
use crate::properties::a_snapshot;

fn shadow(snapshot: &Snapshot, strategy: StrategyName) -> Box<Shadow> {
    Box::new(Shadow {
        settings: Settings {
            strategy,
            ..snapshot.settings.clone()
        },
        demand: snapshot.demand,
        learned: None,
        rivals: Vec::new(),
        offers: Vec::new(),
        workers: Vec::new(),
    })
}

fn with_shadow(mut snapshot: Snapshot, strategy: StrategyName) -> Snapshot {
    snapshot.shadow = Some(shadow(&snapshot, strategy));
    snapshot
}

/// Ten tasks wait, and the launch config has a price.
fn waiting(ratio: f64) -> Snapshot {
    let mut snapshot = pool(0, 20);
    snapshot.offers = vec![priced("a", 0.5), priced("b", 0.5)];
    snapshot.demand.pending = 10;
    snapshot.settings.scaling_ratio = ratio;
    snapshot
}

fn compared(snapshot: &Snapshot) -> Comparison {
    let plan = Input::plan(snapshot, 7);
    plan.comparison(snapshot).unwrap()
}

proptest! {
    #[test]
    fn a_shadow_never_changes_the_plan(
        snapshot in a_snapshot(),
        (which, seed) in (0..3_usize, any::<u64>()),
        learns in any::<bool>(),
    ) {
        let alone = Input::plan(&snapshot, seed);
        let mut watched = with_shadow(snapshot.clone(), StrategyName::ALL[which]);
        let own = watched.shadow.as_mut().unwrap();
        if learns {
            own.rivals = vec![rival(9, 0, &[(&offer("a"), 0)])];
            own.learned = Some(PoolNews::default());
            let knowledge = OfferKnowledge { starting: 2, late: 1, memory: Some(Default::default()) };
            own.offers = vec![knowledge; snapshot.offers.len()];
        }
        own.workers = vec![idle("other", 900)];
        let input = Input { seed, snapshot: watched };
        let mut beside = input.replay();
        prop_assert!(beside.shadow.is_some());
        // Stored and made again, both are the same, byte for byte.
        let unpacked = Input::unpack(&input.pack().unwrap()).unwrap();
        prop_assert_eq!(unpacked.replay().to_json().to_string(), beside.to_json().to_string());
        prop_assert_eq!(&Plan::from_json(&beside.to_json()).unwrap(), &beside);
        beside.shadow = None;
        prop_assert_eq!(beside.to_json().to_string(), alone.to_json().to_string());
    }

    #[test]
    fn a_shadow_plans_as_if_it_decided(snapshot in a_snapshot(), seed in any::<u64>()) {
        let watched = with_shadow(snapshot.clone(), StrategyName::Balanced);
        let mut alone = snapshot;
        alone.settings.strategy = StrategyName::Balanced;
        let expected = Input::plan(&alone, seed);
        let plan = Input::plan(&watched, seed);
        prop_assert_eq!(plan.shadow.unwrap().plan, Ok(expected));
    }
}

#[test]
fn an_input_without_a_shadow_is_written_as_before() {
    let snapshot = pool(0, 9);
    let (input, plan) = (snapshot.to_json().to_string(), Input::plan(&snapshot, 7));
    assert!(!input.contains("shadow"), "{input}");
    assert!(!plan.to_json().to_string().contains("shadow"));
    assert_eq!(plan.comparison(&snapshot), None);
}

fn facts(config: Value, defaults: StrategyDefaults, pending: u64) -> Facts {
    let definition = PoolDefinition {
        provider_id: "cloud".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: config.as_object().unwrap().clone(),
        owner: "me@example.com".to_owned(),
        email_on_error: false,
    };
    let pool = Pool::new("proj/linux".parse().unwrap(), definition, seconds_ago(0));
    let demand = Demand {
        pending,
        claimed: 0,
    };
    let horizon = Horizon::new(seconds_ago(0), None);
    Facts::new(pool, demand, horizon, defaults)
}

fn snapshot_of(facts: &Facts) -> Snapshot {
    let bids = Ok(vec![Bid::plain("east".to_owned())]);
    facts.snapshot(&[bids], &Rooms::new(), Vec::new()).unwrap()
}

#[test]
fn only_a_strategy_that_learns_sees_the_memory() {
    let config = json!({"maxCapacity": 10, "strategy": "weighted", "shadowStrategy": "balanced"});
    let usual = StrategyDefaults::default();
    let mut watched = facts(config, usual, 3);
    let mut memory = MarketFacts {
        rivals: vec![rival(4, 0, &[(&offer("a"), 0)])],
        ..MarketFacts::default()
    };
    let east = OfferingId::new(&"cloud".parse().unwrap(), "east");
    memory.offerings.insert(east, Default::default());
    watched.memory = Some(memory);
    let snapshot = snapshot_of(&watched);
    assert_eq!(
        (snapshot.learned.is_some(), snapshot.rivals.len()),
        (false, 0)
    );
    let of_shadow = snapshot.for_shadow().unwrap();
    assert_eq!(
        (of_shadow.learned.is_some(), of_shadow.rivals.len()),
        (true, 1)
    );
    // Without the shadow, the pool has the same input.
    let without = facts(json!({"maxCapacity": 10, "strategy": "weighted"}), usual, 3);
    let alone = snapshot_of(&without);
    assert_eq!(
        alone,
        Snapshot {
            shadow: None,
            ..snapshot.clone()
        }
    );
    assert_eq!(
        snapshot.for_learning().settings.strategy,
        StrategyName::Balanced
    );
    assert_eq!(
        alone.for_learning().settings.strategy,
        StrategyName::Weighted
    );
}

#[test]
fn tasks_are_counted_as_far_as_each_strategy_needs_them() {
    // The shadow serves every tenth task, so it counts ten times as many.
    let usual = StrategyDefaults::default();
    let config = json!({"maxCapacity": 10, "strategy": "aws-provisioner", "scalingRatio": 0.1,
        "shadowStrategy": "weighted"});
    let watched = facts(config.clone(), usual, 1_000_000);
    let snapshot = snapshot_of(&watched);
    let mut alone: Map<String, Value> = config.as_object().unwrap().clone();
    alone.remove("shadowStrategy");
    let alone = snapshot_of(&facts(Value::Object(alone), usual, 1_000_000));
    assert_eq!(snapshot.demand, alone.demand);
    let of_shadow = snapshot.for_shadow().unwrap();
    assert!(of_shadow.demand.pending > snapshot.demand.pending);
    assert_eq!(of_shadow.demand.pending, of_shadow.settings.most_pending());
}

#[test]
fn a_pool_is_decided_on_if_only_its_shadow_would_act() {
    let server = StrategyDefaults {
        strategy: StrategyName::Weighted,
        shadow: Some(StrategyName::AwsProvisioner),
    };
    // Of the waiting tasks, none gets a worker; for the shadow, none may wait.
    let config = json!({"maxCapacity": 10, "scalingRatio": 0});
    assert!(facts(config.clone(), StrategyDefaults::default(), 3).is_content());
    assert!(!facts(config.clone(), server, 3).is_content());
    assert!(facts(config, server, 0).is_content());
    // A shadow for which the settings of the pool are not valid is none.
    let config = json!({"maxCapacity": 10, "strategy": "aws-provisioner", "scalingRatio": -0.5});
    let weighted = StrategyDefaults {
        shadow: Some(StrategyName::Weighted),
        ..server
    };
    let watched = facts(config, weighted, 3);
    assert_eq!(snapshot_of(&watched).shadow, None);
}

#[test]
fn strategies_that_do_the_same_agree() {
    let comparison = compared(&with_shadow(waiting(1.0), StrategyName::Weighted));
    assert_eq!(comparison.agreement, Agreement::Same);
    assert_eq!(comparison.differences, Vec::<String>::new());
    assert_eq!(comparison.live.units, 10);
    assert_eq!(comparison.live.price_per_hour, 5.0);
    assert!(!comparison.is_idle());
    let nothing = compared(&with_shadow(pool(0, 9), StrategyName::Balanced));
    assert!(nothing.is_idle());
    let prices = [
        nothing.live.price_per_hour,
        nothing.live.price_of_let_go_per_hour,
    ];
    assert_eq!(prices.map(|price| price.to_string()), ["0", "0"], "not -0");
}

#[test]
fn each_difference_has_its_reason() {
    let comparison = compared(&with_shadow(waiting(0.0), StrategyName::AwsProvisioner));
    assert_eq!(comparison.agreement, Agreement::Different);
    assert_eq!((comparison.live.units, comparison.shadow.units), (0, 10));
    assert_eq!(comparison.shadow.price_per_hour, 5.0);
    let first = &comparison.differences[0];
    assert!(
        first.starts_with(
            "weighted launches 0 units, aws-provisioner 10; weighted: no more units are needed: "
        ),
        "{first}"
    );
    assert!(
        first.contains("; aws-provisioner: 10 more units are needed: "),
        "{first}"
    );
    let of_a = comparison
        .differences
        .iter()
        .any(|it| it.starts_with("of a, weighted launches 0"));
    assert!(of_a, "{:?}", comparison.differences);
    // The same opinion again, with other draws.
    let again = Input::plan(&with_shadow(waiting(0.0), StrategyName::AwsProvisioner), 8);
    let snapshot = with_shadow(waiting(0.0), StrategyName::AwsProvisioner);
    assert!(again.comparison(&snapshot).unwrap().repeats(&comparison));
    let mut more = snapshot;
    more.shadow.as_mut().unwrap().demand.pending = 11;
    assert!(!compared(&more).repeats(&comparison));
}

#[test]
fn workers_that_only_the_shadow_lets_go_are_named_with_their_price() {
    let mut snapshot = pool(0, 9);
    snapshot.offers = vec![offer("a")];
    snapshot.capacity.running = 30;
    snapshot.settings.max_capacity = 40;
    // The plan of the pool knows no workers, as it needs none.
    let mut watched = with_shadow(snapshot, StrategyName::Weighted);
    let workers = (0..30).map(|number| {
        let mut worker = idle(&format!("w{number:02}"), 900);
        worker.price = Some(0.25);
        worker
    });
    watched.shadow.as_mut().unwrap().workers = workers.chain([busy("b")]).collect();
    let comparison = compared(&watched);
    assert_eq!(
        (comparison.live.n_let_go, comparison.shadow.n_let_go),
        (0, 30)
    );
    assert_eq!(comparison.shadow.let_go.len(), 20);
    assert_eq!(comparison.shadow.price_of_let_go_per_hour, 7.5);
    let text = comparison.differences.join("\n");
    assert!(
        text.contains("weighted lets no worker go, weighted lets g/w"),
        "{text}"
    );
    assert!(text.contains(" and 10 more go"), "{text}");
}

#[test]
fn sums_count_the_decisions_in_which_something_is_done() {
    let different = compared(&with_shadow(waiting(0.0), StrategyName::AwsProvisioner));
    let same = compared(&with_shadow(waiting(1.0), StrategyName::Weighted));
    let nothing = compared(&with_shadow(pool(0, 9), StrategyName::Balanced));
    let mut failed = nothing.clone();
    failed.shadow.error = Some("the shadow panicked: index".to_owned());
    failed.agreement = Agreement::Different;
    let sums = ComparisonSums::of(&[&different, &same, &nothing, &failed]);
    let counts = (sums.decisions, sums.same, sums.different, sums.failed);
    assert_eq!(counts, (3, 1, 2, 1));
    assert_eq!((sums.live.units, sums.shadow.units), (10, 20));
    assert_eq!(
        (sums.live.price_per_hour, sums.shadow.price_per_hour),
        (5.0, 10.0)
    );
    let by_config: u64 = sums
        .shadow
        .launches
        .iter()
        .map(|launched| launched.units)
        .sum();
    assert_eq!(by_config, 20);
    assert_eq!(ComparisonSums::of(&[]), ComparisonSums::default());
}
