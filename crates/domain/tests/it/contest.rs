//! The strategy `balanced` where other pools compete for quotas that are used up.

use domain::market::Trouble;
use domain::plan::{Plan, REASON_OVER_SHARE, Snapshot};
use domain::waits::WaitCause;

use crate::balanced::{after, balanced, failed, machines};
use crate::common::{busy, decide, from_config, idle, priced, rival};

/// Three regions, and 40 machines: ten busy ones in the first region, and the others elsewhere. 20
/// further tasks wait.
fn in_three_regions() -> Snapshot {
    let mut offers = ["r1", "r2", "r3"].map(|region| {
        let mut offer = priced(region, 0.4);
        offer.bid.as_mut().unwrap().place = region.to_owned();
        offer
    });
    (offers[0].held, offers[1].held, offers[2].held) = (10, 15, 15);
    let workers = offers.each_ref().map(|offer| {
        let id = offer.launch_config_id.as_str().to_owned();
        let worker = move |n| from_config(&id, busy(&format!("{id}-{n}")));
        (0..offer.held).map(worker).collect::<Vec<_>>()
    });
    let mut snapshot = balanced(offers.into());
    snapshot.workers = workers.concat();
    snapshot.capacity.running = 40;
    snapshot.demand.claimed = 40;
    snapshot.demand.pending = 20;
    snapshot
}

fn drained(plan: &Plan) -> Vec<&str> {
    let advice = plan.advice.iter();
    let drained = advice.filter(|(_, advice)| advice.reason == REASON_OVER_SHARE);
    drained.map(|(key, _)| key.id.as_str()).collect()
}

#[test]
fn a_full_region_closes_no_other_and_only_its_workers_give_way() {
    let mut snapshot = in_three_regions();
    snapshot.rivals = vec![rival(20, 0, &[(&snapshot.offers[0], 0)])];
    let plan = decide(&snapshot);
    assert_eq!(machines(&plan, "r1"), 0, "{}", plan.text());
    assert_eq!(
        machines(&plan, "r2") + machines(&plan, "r3"),
        20,
        "{}",
        plan.text()
    );
    let reasons = plan.reasons.join("\n");
    let expected = "its quota is used up, and the pool has 10 more than its fair share of it";
    assert!(reasons.contains(expected), "{reasons}");
    // The other pool can be nowhere else, so all of the region but one is its own.
    let drained = drained(&plan);
    assert_eq!(drained.len(), 9, "{}", plan.text());
    assert!(
        drained.iter().all(|id| id.starts_with("r1-")),
        "{drained:?}"
    );
}

#[test]
fn no_more_workers_give_way_than_the_others_lack() {
    let mut snapshot = in_three_regions();
    snapshot.rivals = vec![rival(3, 0, &[(&snapshot.offers[0], 0)])];
    // It lacks three, and one does not matter.
    assert_eq!(drained(&decide(&snapshot)).len(), 2);
    // It has about what is fair.
    snapshot.rivals = vec![rival(20, 15, &[(&snapshot.offers[0], 15)])];
    assert!(drained(&decide(&snapshot)).is_empty());
    // All have what they need.
    snapshot.demand.pending = 0;
    snapshot.rivals = vec![rival(0, 0, &[(&snapshot.offers[0], 0)])];
    assert!(decide(&snapshot).advice.is_empty());
    snapshot.demand.pending = 5;
    let refused = [(200, failed(Trouble::Quota))];
    snapshot.offers[0].memory = after(snapshot.offers[0].clone(), &refused).memory;
    let plan = decide(&snapshot);
    let launched: u32 = ["r1", "r2", "r3"]
        .map(|id| machines(&plan, id))
        .iter()
        .sum();
    assert_eq!(launched, 5, "{}", plan.text());
}

#[test]
fn pools_that_have_as_much_at_different_places_take_nothing_from_each_other() {
    let mut snapshot = in_three_regions();
    let [first, second, _] = [0, 1, 2].map(|at: usize| snapshot.offers[at].clone());
    (snapshot.offers[0].held, snapshot.offers[1].held) = (40, 0);
    snapshot.offers.truncate(2);
    for worker in &mut snapshot.workers {
        worker.launch_config_id = Some(first.launch_config_id.clone());
    }
    snapshot.rivals = vec![rival(60, 40, &[(&first, 0), (&second, 40)])];
    assert!(decide(&snapshot).advice.is_empty());
}

#[test]
fn idle_workers_of_a_contested_region_stop_and_others_are_kept_as_usual() {
    let mut snapshot = in_three_regions();
    (snapshot.demand.pending, snapshot.demand.claimed) = (0, 0);
    snapshot.capacity.running = 4;
    (
        snapshot.offers[0].held,
        snapshot.offers[1].held,
        snapshot.offers[2].held,
    ) = (2, 2, 0);
    let worker = |config, id| from_config(config, idle(id, 300));
    snapshot.workers = vec![
        worker("r1", "a"),
        worker("r1", "b"),
        worker("r2", "c"),
        worker("r2", "d"),
    ];
    // Its machines do not come up, so idle workers are kept.
    let broken = [(5, failed(Trouble::Registration)); 4];
    for offer in &mut snapshot.offers {
        offer.memory = after(offer.clone(), &broken).memory;
    }
    assert!(decide(&snapshot).advice.is_empty());
    snapshot.rivals = vec![rival(9, 0, &[(&snapshot.offers[0], 0)])];
    let plan = decide(&snapshot);
    let stops: Vec<_> = plan.advice.iter().map(|(key, _)| key.id.as_str()).collect();
    assert_eq!(stops, ["a", "b"], "{}", plan.text());
}

#[test]
fn tasks_of_a_pool_above_its_share_of_the_only_quota_wait_for_the_quota() {
    let mut snapshot = in_three_regions();
    snapshot.offers.truncate(1);
    snapshot.capacity.running = 10;
    snapshot.demand.claimed = 10;
    snapshot.workers.truncate(10);
    snapshot.rivals = vec![rival(20, 0, &[(&snapshot.offers[0], 0)])];
    let plan = decide(&snapshot);
    assert!(plan.awards.is_empty(), "{}", plan.text());
    assert_eq!(drained(&plan).len(), 4, "{}", plan.text());
    assert_eq!(snapshot.wait(&plan, 20).of_pool(), WaitCause::Quota);
}

#[test]
fn a_pool_at_its_maximum_takes_part_with_what_it_can_have() {
    let mut snapshot = in_three_regions();
    snapshot.settings.max_capacity = 40;
    snapshot.demand.pending = 2_000;
    // All of its maximum is there, so 2,000 waiting tasks are no reason to take from others.
    snapshot.rivals = vec![rival(20, 20, &[(&snapshot.offers[0], 5)])];
    assert!(drained(&decide(&snapshot)).is_empty());
    snapshot.rivals = vec![rival(20, 2, &[(&snapshot.offers[0], 2)])];
    let plan = decide(&snapshot);
    assert_eq!(drained(&plan).len(), 9, "{}", plan.text());
}
