//! The strategy `balanced`: which offerings it takes, how many machines, and who stops.

use domain::market::{OfferingId, OfferingMemory, OfferingNews, PoolMemory, Trouble};
use domain::plan::{Bid, Offer, Plan, Snapshot, StrategyName};

use proptest::prelude::*;

use crate::common::{chances, decide, idle, offer, pool, priced, rival, seconds_ago};

pub(crate) fn balanced(offers: Vec<Offer>) -> Snapshot {
    let mut snapshot = pool(0, 1_000);
    snapshot.settings.strategy = StrategyName::Balanced;
    snapshot.settings.learns_ratio = true;
    snapshot.offers = offers;
    snapshot
}

fn memory() -> OfferingMemory {
    OfferingMemory::new(&OfferingId::new(&"cloud".parse().unwrap(), "west"))
}

/// The offer after these news, each this many seconds ago.
pub(crate) fn after(mut offer: Offer, news: &[(i64, OfferingNews)]) -> Offer {
    let mut known = memory();
    for (seconds, news) in news {
        known.observe(*news, seconds_ago(*seconds));
    }
    offer.memory = Some(known);
    offer
}

pub(crate) fn failed(trouble: Trouble) -> OfferingNews {
    OfferingNews::Failed { trouble }
}

/// Memory of a pool whose tasks take this many seconds, and whose demand fell from `from` to `to`
/// units this long ago.
fn fell(from: u64, to: u64, seconds: i64) -> PoolMemory {
    let mut memory = PoolMemory::default();
    memory.reach_level(from, seconds_ago(seconds + 100));
    memory.reach_level(to, seconds_ago(seconds));
    memory
}

/// How many machines of this launch config the plan launches.
pub(crate) fn machines(plan: &Plan, id: &str) -> u32 {
    let awards = plan.awards.iter();
    let own = awards.filter(|award| award.launch_config_id.as_str() == id);
    own.map(|award| award.machines).sum()
}

fn reasons(plan: &Plan) -> String {
    plan.reasons.join("\n")
}

#[test]
fn machines_come_from_offerings_that_cost_about_as_little_as_the_best() {
    let mut snapshot = balanced(vec![
        priced("a", 0.40),
        priced("b", 0.41),
        priced("c", 0.60),
    ]);
    snapshot.demand.pending = 600;
    let plan = decide(&snapshot);
    let (a, b) = (machines(&plan, "a"), machines(&plan, "b"));
    assert_eq!((a + b, machines(&plan, "c")), (600, 0));
    assert!(a > b && b > 150, "{a} {b}");
}

#[test]
fn the_chance_of_each_offering_is_shown() {
    let refused = [(5, failed(Trouble::Quota))];
    let offers = vec![
        priced("a", 0.40),
        priced("b", 0.40),
        priced("dear", 4.0),
        after(priced("off", 0.1), &refused),
    ];
    let found = chances(&balanced(offers));
    assert!(
        (found[0] - 0.5).abs() < 1e-6 && found[0] == found[1],
        "{found:?}"
    );
    assert!(found[2] < 1e-6 && found[3] == 0.0, "{found:?}");
}

#[test]
fn a_price_counts_for_the_units_and_the_utility_that_it_buys() {
    let mut large = priced("large", 0.9);
    large.capacity_each = 4;
    let mut useful = priced("useful", 0.9);
    useful.bid.as_mut().unwrap().utility = 10.0;
    let mut snapshot = balanced(vec![priced("small", 0.4), large.clone()]);
    for (pending, expected) in [(10, (2, 2)), (12, (0, 3))] {
        snapshot.demand.pending = pending;
        let plan = decide(&snapshot);
        let taken = (machines(&plan, "small"), machines(&plan, "large"));
        assert_eq!(taken, expected, "{}", plan.text());
    }
    snapshot.offers = vec![large, useful];
    assert_eq!(machines(&decide(&snapshot), "large"), 0);
}

#[test]
fn an_offering_whose_machines_are_interrupted_or_never_register_counts_as_dearer() {
    let ran = OfferingNews::Ran { hours: 10.0 };
    let lost = [
        (60, ran),
        (50, OfferingNews::Interrupted),
        (40, OfferingNews::Interrupted),
    ];
    let broken = [
        (4_000, failed(Trouble::Registration)),
        (3_000, failed(Trouble::Registration)),
        (1_000, OfferingNews::Registered { after_ms: 90_000 }),
    ];
    for news in [&lost[..], &broken[..]] {
        let mut snapshot = balanced(vec![after(priced("bad", 0.39), news), priced("good", 0.40)]);
        snapshot.demand.pending = 100;
        let plan = decide(&snapshot);
        assert!(
            machines(&plan, "bad") < machines(&plan, "good"),
            "{}",
            plan.text()
        );
    }
}

#[test]
fn an_offering_that_failed_is_shut_off_and_then_tried_with_one_machine() {
    let refused = |seconds| [(seconds, failed(Trouble::Quota))];
    let mut snapshot = balanced(vec![after(priced("a", 0.1), &refused(5)), priced("b", 0.4)]);
    snapshot.demand.pending = 20;
    let plan = decide(&snapshot);
    assert_eq!((machines(&plan, "a"), machines(&plan, "b")), (0, 20));
    assert!(
        reasons(&plan).contains("a: skipped, shut off: quota, next try "),
        "{}",
        plan.text()
    );

    snapshot.offers[0] = after(priced("a", 0.1), &refused(100));
    let plan = decide(&snapshot);
    assert_eq!((machines(&plan, "a"), machines(&plan, "b")), (1, 19));

    let tried = [(100, failed(Trouble::Quota)), (10, OfferingNews::Asked)];
    snapshot.offers[0] = after(priced("a", 0.1), &tried);
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan, "a"), 0);
    assert!(
        reasons(&plan).contains("on trial with one machine"),
        "{}",
        plan.text()
    );
}

#[test]
fn launch_configs_of_one_offering_share_its_trial_and_its_window() {
    let mut half_open = balanced(vec![
        after(offer("a"), &[(100, failed(Trouble::Capacity))]),
        after(offer("b"), &[(100, failed(Trouble::Capacity))]),
    ]);
    half_open.demand.pending = 20;
    let plan = decide(&half_open);
    assert_eq!(machines(&plan, "a") + machines(&plan, "b"), 1);

    let known = [
        (200, failed(Trouble::Registration)),
        (100, OfferingNews::Registered { after_ms: 90_000 }),
    ];
    let mut narrow = balanced(vec![after(offer("a"), &known), after(offer("b"), &known)]);
    narrow.demand.pending = 20;
    // Eight may start, and three of the other launch config do.
    narrow.offers[1].starting = 3;
    let plan = decide(&narrow);
    assert_eq!(
        machines(&plan, "a") + machines(&plan, "b"),
        5,
        "{}",
        plan.text()
    );
}

#[test]
fn after_an_outage_one_machine_shows_whether_it_is_over_whatever_others_cost() {
    let dear = |trouble| after(priced("dear", 4.0), &[(100, failed(trouble))]);
    let launched = |offer: Offer, wanted| {
        let mut snapshot = balanced(vec![offer, priced("cheap", 0.4)]);
        snapshot.demand.pending = wanted;
        let plan = decide(&snapshot);
        (machines(&plan, "dear"), machines(&plan, "cheap"))
    };
    assert_eq!(launched(dear(Trouble::Capacity), 20), (1, 19));
    assert_eq!(launched(dear(Trouble::Capacity), 1), (1, 0));
    assert_eq!(launched(dear(Trouble::Capacity), 0), (0, 0));
    // A failure would take a minute to appear, so it is not the only machine.
    assert_eq!(launched(dear(Trouble::Vanished), 20), (1, 19));
    assert_eq!(launched(dear(Trouble::Vanished), 1), (0, 1));
    // A boot is paid, and a quota is full until somebody needs less.
    assert_eq!(launched(dear(Trouble::Registration), 20), (0, 20));
    assert_eq!(launched(dear(Trouble::Quota), 20), (0, 20));
    // Its author does not want machines of it.
    let mut unwanted = dear(Trouble::Capacity);
    unwanted.initial_weight = 0.0;
    assert_eq!(launched(unwanted, 20), (0, 20));
}

#[test]
fn when_all_offerings_are_shut_off_the_plan_says_when_it_goes_on() {
    let refused = [(5, failed(Trouble::Capacity))];
    let mut snapshot = balanced(vec![after(offer("a"), &refused)]);
    snapshot.demand.pending = 3;
    let plan = decide(&snapshot);
    let again = plan.again_at.expect("a time").millis_since(seconds_ago(0));
    assert!(
        plan.awards.is_empty() && (40_000..70_000).contains(&again),
        "{again}"
    );
    assert!(
        reasons(&plan).contains("still missing 3 units"),
        "{}",
        plan.text()
    );
}

#[test]
fn machines_that_are_late_are_not_counted_on() {
    let mut snapshot = balanced(vec![offer("a")]);
    snapshot.demand.pending = 5;
    snapshot.capacity.requested = 5;
    assert!(decide(&snapshot).awards.is_empty());
    snapshot.offers[0].late = 3;
    assert_eq!(machines(&decide(&snapshot), "a"), 3);
}

#[test]
fn fewer_machines_start_for_tasks_that_are_much_shorter_than_a_boot() {
    let mut memory = PoolMemory::default();
    for _ in 0..30 {
        memory.add_task(20_000);
    }
    let mut snapshot = balanced(vec![priced("a", 0.40)]);
    snapshot.demand.pending = 100;
    snapshot.learned = Some(memory.news());
    let learned = machines(&decide(&snapshot), "a");
    assert!((10..60).contains(&learned), "{learned}");
    // The author's ratio wins.
    snapshot.settings.learns_ratio = false;
    assert_eq!(machines(&decide(&snapshot), "a"), 100);
    // Waiting is dear.
    snapshot.settings.learns_ratio = true;
    snapshot.settings.wait_price = 100.0;
    assert_eq!(machines(&decide(&snapshot), "a"), 100);
}

#[test]
fn idle_workers_beyond_the_level_that_is_kept_stop_the_dearest_first() {
    let mut snapshot = balanced(vec![offer("a")]);
    snapshot.capacity.running = 3;
    snapshot.workers = vec![idle("w1", 300), idle("w2", 300), idle("w3", 300)];
    snapshot.workers[1].price = Some(0.9);
    snapshot.learned = Some(fell(3, 0, 10).news());
    assert!(decide(&snapshot).advice.is_empty());
    // The level of three workers was left too long ago, that of two was not.
    let mut memory = fell(3, 2, 400);
    memory.reach_level(0, seconds_ago(10));
    snapshot.learned = Some(memory.news());
    let plan = decide(&snapshot);
    let stops: Vec<_> = plan.advice.iter().map(|(key, _)| key.id.as_str()).collect();
    assert_eq!(stops, ["w2"]);
    snapshot.learned = None;
    assert_eq!(decide(&snapshot).advice.len(), 3);
}

#[test]
fn nobody_stops_while_no_machine_could_be_had_instead() {
    let broken = [(5, failed(Trouble::Registration))];
    let mut snapshot = balanced(vec![after(offer("a"), &broken)]);
    snapshot.capacity.running = 1;
    snapshot.workers = vec![idle("w1", 3_000)];
    assert!(decide(&snapshot).advice.is_empty());
    // With a full quota others may need the machine, and it will be had again.
    snapshot.offers = vec![after(offer("a"), &[(5, failed(Trouble::Quota))])];
    assert_eq!(decide(&snapshot).advice.len(), 1);
    // A pause is a decision of people: the pool runs empty.
    snapshot.offers[0].bid = Err("paused".to_owned());
    assert_eq!(decide(&snapshot).advice.len(), 1);
}

#[test]
fn workers_stop_as_usual_if_the_provider_promised_that_few_machines_register() {
    let mut snapshot = balanced(vec![after(offer("a"), &[])]);
    snapshot.offers[0].bid.as_mut().unwrap().reliability = Some(0.6);
    snapshot.capacity.running = 1;
    snapshot.workers = vec![idle("w1", 3_000)];
    assert_eq!(decide(&snapshot).advice.len(), 1);
    // As many register as it said, for hours.
    let kept: Vec<_> = (0..20)
        .flat_map(|n| {
            let registered = OfferingNews::Registered { after_ms: 90_000 };
            let failed = (n % 5 < 2).then(|| failed(Trouble::Registration));
            let late = 10_000 - 400 * n;
            [(late, registered)]
                .into_iter()
                .chain(failed.map(|it| (late - 1, it)))
        })
        .collect();
    let reliability = snapshot.offers[0].bid.as_ref().unwrap().reliability;
    snapshot.offers[0] = after(offer("a"), &kept);
    snapshot.offers[0].bid.as_mut().unwrap().reliability = reliability;
    assert_eq!(decide(&snapshot).advice.len(), 1);
    // Now even fewer come up.
    let broken = [(9, failed(Trouble::Registration)); 4];
    snapshot.offers[0] = after(offer("a"), &broken);
    snapshot.offers[0].bid.as_mut().unwrap().reliability = reliability;
    assert!(decide(&snapshot).advice.is_empty());
}

#[test]
fn the_minimum_and_the_maximum_hold() {
    let mut snapshot = balanced(vec![offer("a")]);
    snapshot.settings.min_capacity = 4;
    assert_eq!(machines(&decide(&snapshot), "a"), 4);
    snapshot.settings.max_capacity = 6;
    snapshot.demand.pending = 100;
    snapshot.capacity.requested = 3;
    snapshot.offers[0].late = 3;
    assert_eq!(machines(&decide(&snapshot), "a"), 3);
}

proptest! {
    /// So a pool is not decided on that would launch something.
    #[test]
    fn a_plan_launches_nothing_if_nothing_is_missing_when_all_machines_come(
        pending in 0_u64..30, claimed in 0_u64..20, running in 0_u64..30, requested in 0_u64..30,
        min in 0_u64..20, max in 1_u64..60, ratio in proptest::option::of(0.1_f64..3.0),
        fresh in 0_u64..5,
    ) {
        let mut snapshot = balanced(vec![offer("a")]);
        snapshot.settings.min_capacity = min;
        snapshot.settings.max_capacity = max;
        if let Some(ratio) = ratio {
            snapshot.settings.scaling_ratio = ratio;
            snapshot.settings.learns_ratio = false;
        }
        snapshot.demand.pending = pending;
        snapshot.demand.claimed = claimed.min(running);
        snapshot.capacity.running = running;
        snapshot.capacity.fresh = fresh.min(running);
        snapshot.capacity.requested = requested;
        if snapshot.wants_nothing_if_all_come() {
            let plan = decide(&snapshot);
            prop_assert!(plan.awards.is_empty(), "{}", plan.text());
        }
    }
}

#[test]
fn a_limit_of_price_leaves_dear_offerings_out() {
    let mut snapshot = balanced(vec![priced("a", 0.4), priced("b", 0.39), offer("unknown")]);
    snapshot.settings.max_price = 0.395;
    snapshot.demand.pending = 4;
    let plan = decide(&snapshot);
    assert_eq!(
        (
            machines(&plan, "a"),
            machines(&plan, "b"),
            machines(&plan, "unknown")
        ),
        (0, 4, 0)
    );
}

#[test]
fn a_promise_of_the_provider_counts_until_more_is_known() {
    let promised = |id: &str, reliability, ready_ms| {
        let mut offer = priced(id, 0.4);
        let bid: &mut Bid = offer.bid.as_mut().unwrap();
        (bid.reliability, bid.ready_ms) = (Some(reliability), Some(ready_ms));
        after(offer, &[])
    };
    let mut snapshot = balanced(vec![
        promised("poor", 0.5, 60_000),
        promised("good", 1.0, 60_000),
    ]);
    snapshot.demand.pending = 50;
    assert_eq!(machines(&decide(&snapshot), "poor"), 0);
    snapshot.offers = vec![
        promised("slow", 1.0, 1_800_000),
        promised("fast", 1.0, 20_000),
    ];
    assert_eq!(machines(&decide(&snapshot), "slow"), 0);
}

#[test]
fn everything_that_a_plan_was_made_from_is_stored_with_it() {
    let mut snapshot = balanced(vec![after(
        priced("a", 0.4),
        &[(9, failed(Trouble::Quota))],
    )]);
    snapshot.learned = Some(fell(9, 1, 60).news());
    snapshot.rivals = vec![rival(7, 2, &[(&snapshot.offers[0], 1)])];
    let document = snapshot.to_json();
    assert_eq!(Snapshot::from_json(&document).unwrap(), snapshot);
}
