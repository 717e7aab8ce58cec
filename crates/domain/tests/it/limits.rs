//! Limits that no plan exceeds, whatever the strategy wants.

use domain::plan::{MAX_ADVICE, MAX_MACHINES, Offer, StrategyName};
use testing::sizes_around;

use crate::common::{carried_out, decide, from, idle, launched, machines, offer, pool, source};

#[test]
fn everything_that_is_there_or_may_come_takes_room() {
    let mut snapshot = pool(0, 30);
    snapshot.demand.pending = 100;
    let capacity = &mut snapshot.capacity;
    capacity.running = 1;
    capacity.draining = 2;
    capacity.quarantined = 3;
    capacity.requested = 4;
    capacity.overdue = 5;
    capacity.intended = 6;
    capacity.stopping = 7;
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        snapshot.settings.strategy = strategy;
        let plan = decide(&snapshot);
        assert_eq!(launched(&plan), 2, "{strategy:?}");
        assert!(
            plan.reasons[1].starts_with("capped: wanted 19, room for 2"),
            "{plan:?}"
        );
    }
}

#[test]
fn a_machine_that_never_came_is_no_supply() {
    let mut snapshot = pool(0, 10);
    snapshot.demand.pending = 1;
    snapshot.capacity.requested = 1;
    assert!(decide(&snapshot).is_idle());
    (snapshot.capacity.requested, snapshot.capacity.overdue) = (0, 1);
    assert_eq!(launched(&decide(&snapshot)), 1);
}

#[test]
fn a_machine_too_large_for_the_room_is_not_launched() {
    let mut snapshot = pool(3, 3);
    snapshot.offers[0].capacity_each = 2;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 2, "a second one would make 4 of 3");
    let short = "still missing 1 unit: no launch config can give more now";
    assert_eq!(plan.reasons[1..], [short, "a: 1 machine"]);
    snapshot.offers[0].capacity_each = 4;
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 0);
    assert_eq!(
        plan.reasons[1],
        "a: skipped, full: 0 of 3 units exist, a machine has 4"
    );
    snapshot.offers.push(offer("small"));
    assert_eq!(machines(&decide(&snapshot)), "small:3");
}

#[test]
fn a_provider_gets_no_more_than_it_takes() {
    let mut snapshot = pool(0, 100);
    snapshot.demand.pending = 10;
    snapshot.sources[0].room = Some(3);
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 3);
    assert_eq!(
        plan.reasons.last().unwrap(),
        "a: 3 machines",
        "{:?}",
        plan.reasons
    );
    let without = "still missing 7 units: the provider accepts 3 more machines now".to_owned();
    assert!(plan.reasons.contains(&without));
    snapshot.sources[0].room = Some(0);
    let plan = decide(&snapshot);
    assert_eq!(launched(&plan), 0);
    assert_eq!(plan.reasons[1], "the provider accepts no more machines now");
}

#[test]
fn the_room_of_one_provider_is_not_that_of_another() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = pool(0, 100);
        snapshot.settings.strategy = strategy;
        snapshot.demand.pending = 40;
        snapshot.sources = vec![source("cloud", None), source("two", Some(2))];
        snapshot.offers = ["b1", "b2"].map(|id| from("two", offer(id))).into();
        snapshot.offers.insert(0, offer("a"));
        let plan = decide(&snapshot);
        let of = |provider: &str| -> u32 {
            let from =
                |award: &&domain::plan::Award| award.provider_id == Some(provider.parse().unwrap());
            plan.awards
                .iter()
                .filter(from)
                .map(|award| award.machines)
                .sum()
        };
        assert_eq!((of("cloud"), of("two")), (38, 2), "{}", plan.text());
        snapshot.offers.remove(0);
        let plan = decide(&snapshot);
        assert_eq!(launched(&plan), 2);
        let short =
            "still missing 38 units: the provider two accepts 2 more machines now".to_owned();
        assert!(plan.reasons.contains(&short), "{}", plan.text());
    }
}

#[test]
fn an_offer_of_a_provider_without_room_is_skipped() {
    let mut snapshot = pool(0, 100);
    snapshot.demand.pending = 2;
    snapshot.sources = vec![source("cloud", Some(0)), source("two", Some(5))];
    snapshot.offers.push(from("two", offer("b")));
    snapshot.offers.push(from("three", offer("c")));
    insta::assert_snapshot!(decide(&snapshot).text(), @r"
    the pool wants 2 more units, 2 in all
    launch 2 x b from two (1 unit each)
    because 2 more units are needed: 2 tasks wait; maximum 100
    because cloud a: skipped, the provider cloud accepts no more machines now
    because three c: skipped, the pool has no provider three
    because two b: 2 machines
    ");
    snapshot.sources[1].room = Some(0);
    let plan = decide(&snapshot);
    assert_eq!(plan.reasons[1], "the providers accept no more machines now");
}

#[test]
fn a_plan_starts_a_bounded_number_of_machines() {
    let limit = usize::try_from(MAX_MACHINES).unwrap();
    for count in sizes_around("domain::plan::MAX_MACHINES", limit) {
        for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
            let mut snapshot = pool(0, 1_000_000);
            snapshot.settings.strategy = strategy;
            snapshot.demand.pending = count as u64;
            // Machines count, not their capacity.
            snapshot.demand.pending *= 3;
            snapshot.offers[0].capacity_each = 3;
            let plan = decide(&snapshot);
            assert_eq!(launched(&plan), 3 * count.min(limit) as u64);
            let rest = 3 * count.saturating_sub(limit);
            let rest = format!(
                "still missing {rest} units: one plan starts at most 1000 machines, the next plan starts more"
            );
            let is_told = plan.reasons.contains(&rest);
            assert_eq!(is_told, count > limit, "{:?}", plan.reasons);
        }
    }
}

#[test]
fn a_plan_asks_a_bounded_number_of_workers_to_stop_and_the_next_ones_go_on() {
    for count in sizes_around("domain::plan::advice::MAX_ADVICE", MAX_ADVICE) {
        let mut snapshot = pool(0, 100_000);
        snapshot.workers = (0..count)
            .map(|index| idle(&format!("w{index}"), 100))
            .collect();
        snapshot.capacity.running = count as u64;
        let mut left = count;
        while left > 0 {
            let plan = decide(&snapshot);
            assert_eq!(plan.advice.len(), left.min(MAX_ADVICE), "{left} of {count}");
            assert!(plan.advice.iter().all(|(_, advice)| advice.terminate));
            left -= plan.advice.len();
            let names_rest = plan.text().contains(&format!("{left} more"));
            assert_eq!(names_rest, left > 0, "{}", plan.text());
            snapshot = carried_out(snapshot, &plan);
        }
        assert!(decide(&snapshot).is_idle());
    }
}

#[test]
fn a_minimum_is_reached_from_zero_and_without_demand() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = pool(3, 10);
        snapshot.settings.strategy = strategy;
        assert_eq!(launched(&decide(&snapshot)), 3);
        snapshot.capacity.intended = 1;
        snapshot.capacity.running = 1;
        // A stopping worker no longer counts.
        snapshot.capacity.stopping = 2;
        assert_eq!(launched(&decide(&snapshot)), 1);
    }
}

#[test]
fn a_minimum_above_the_maximum_is_the_maximum() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = pool(10, 4);
        snapshot.settings.strategy = strategy;
        let plan = decide(&snapshot);
        assert_eq!((launched(&plan), plan.target), (4, 4.0));
        assert_eq!(
            plan.reasons[0],
            "minCapacity 10 is above maxCapacity 4: the maximum counts"
        );
    }
}

#[test]
fn a_pool_with_a_maximum_of_zero_launches_nothing() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = pool(2, 0);
        snapshot.settings.strategy = strategy;
        snapshot.demand.pending = 50;
        assert!(decide(&snapshot).is_idle());
    }
}

#[test]
fn a_pool_without_launch_configs_launches_nothing_and_says_so() {
    let mut snapshot = pool(0, 10);
    snapshot.offers.clear();
    snapshot.demand.pending = 2;
    let plan = decide(&snapshot);
    assert_eq!((launched(&plan), plan.unserved), (0, true));
    assert_eq!(
        plan.reasons[1],
        "still missing 2 units: no launch config can give more now"
    );
}

#[test]
fn an_initial_weight_of_zero_is_a_pause_that_nothing_lifts() {
    for strategy in [StrategyName::Weighted, StrategyName::AwsProvisioner] {
        let mut snapshot = pool(0, 10);
        snapshot.settings.strategy = strategy;
        snapshot.offers[0].initial_weight = 0.0;
        snapshot.demand.pending = 5;
        let plan = decide(&snapshot);
        assert_eq!(launched(&plan), 0);
        assert_eq!(plan.reasons[1], "a: skipped, its initialWeight is 0");
    }
}

#[test]
fn a_provider_that_has_nothing_to_say_about_one_leaves_the_others() {
    let mut snapshot = pool(0, 10);
    let mute = Offer {
        bid: Err("us-east-1 asks to slow down until 12:00:00".to_owned()),
        ..offer("mute")
    };
    snapshot.offers.push(mute);
    snapshot.demand.pending = 5;
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan), "a:5");
    let skipped = "mute: skipped, us-east-1 asks to slow down until 12:00:00".to_owned();
    assert!(plan.reasons.contains(&skipped));
}

#[test]
fn far_too_much_capacity_is_an_alarm() {
    let alarm = |running, requested, max| {
        let mut snapshot = pool(0, max);
        snapshot.capacity.running = running;
        snapshot.capacity.requested = requested;
        decide(&snapshot).alarm
    };
    assert_eq!(alarm(25, 0, 1), None);
    assert_eq!(alarm(25, 25, 40), None);
    assert_eq!(
        alarm(26, 25, 40).unwrap(),
        "51 units of capacity exist, and 40 is the maximum: look for workers that do not end"
    );
    assert!(alarm(u64::MAX, u64::MAX, u64::MAX - 1).is_none());
}

#[test]
fn impossible_numbers_are_survived() {
    let mut snapshot = pool(u64::MAX, u64::MAX);
    let capacity = &mut snapshot.capacity;
    (capacity.running, capacity.stopping) = (u64::MAX, u64::MAX);
    (snapshot.demand.pending, snapshot.demand.claimed) = (u64::MAX, u64::MAX);
    snapshot.offers[0].capacity_each = 0;
    snapshot.offers[0].live = u64::MAX;
    snapshot.workers = vec![idle("w", 10); 2];
    snapshot.workers[0].capacity = u32::MAX;
    snapshot.workers[1].idle_hold_ms = i64::MIN;
    assert_eq!(launched(&decide(&snapshot)), 0);
    snapshot.capacity.running = 0;
    snapshot.capacity.stopping = 0;
    snapshot.offers[0].live = 0;
    assert_eq!(launched(&decide(&snapshot)), MAX_MACHINES);
}
