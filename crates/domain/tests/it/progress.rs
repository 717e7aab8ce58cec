//! Progress of the strategy `balanced`: a task that waits is never left waiting for workers that do
//! not become free.

use domain::market::{OfferingNews, PoolMemory, PoolNews, Trouble};
use domain::plan::{Offer, Snapshot};
use proptest::prelude::*;

use crate::balanced::{after, balanced, failed};
use crate::common::{decide, launched, priced, seconds_ago};

/// Memory of 30 tasks that took this many milliseconds.
fn tasks_of(ms: i64) -> PoolMemory {
    let mut memory = PoolMemory::default();
    for _ in 0..30 {
        memory.add_task(ms);
    }
    memory
}

/// One worker has had a task for this long, and five wait.
fn behind_a_run(news: PoolNews, for_seconds: i64) -> Snapshot {
    let mut snapshot = balanced(vec![priced("a", 0.4)]);
    snapshot.settings.learns_ratio = false;
    snapshot.settings.max_capacity = 10;
    snapshot.demand.pending = 5;
    snapshot.demand.claimed = 1;
    snapshot.capacity.running = 1;
    let since = news.ordinary_since(snapshot.now).unwrap();
    snapshot.ordinary_runs = Some(u64::from(seconds_ago(for_seconds) >= since));
    snapshot.learned = Some(news);
    snapshot
}

#[test]
fn a_long_task_hides_no_tasks_behind_it() {
    // The worker is about to take all of them.
    let young = behind_a_run(tasks_of(1_000).news(), 0);
    assert_eq!(launched(&decide(&young)), 0);
    for seconds in [4, 60, 100_000] {
        let plan = decide(&behind_a_run(tasks_of(1_000).news(), seconds));
        assert_eq!(launched(&plan), 5, "{}", plan.text());
    }
}

#[test]
fn many_long_tasks_hide_no_tasks_either() {
    let mut snapshot = behind_a_run(tasks_of(60_000).news(), 3_600);
    snapshot.settings.max_capacity = 1_000;
    (snapshot.demand.claimed, snapshot.capacity.running) = (100, 100);
    snapshot.demand.pending = 200;
    assert_eq!(launched(&decide(&snapshot)), 200);
}

#[test]
fn without_the_times_of_claims_a_worker_counts_while_tasks_end() {
    let mut memory = tasks_of(1_000);
    memory.learn(1.0, seconds_ago(60));
    memory.add_ended(60);
    memory.learn(1.0, seconds_ago(0));
    let mut snapshot = behind_a_run(memory.news(), 0);
    snapshot.ordinary_runs = None;
    assert_eq!(launched(&decide(&snapshot)), 0);
    memory.learn(1.0, seconds_ago(-3_600));
    snapshot.learned = Some(memory.news());
    assert_eq!(launched(&decide(&snapshot)), 5);
}

/// An offer that gives machines, or is shut off.
fn an_offer(index: usize) -> impl Strategy<Value = (bool, Offer)> {
    let news = (0..7_u8, 1..4_000_i64, 1..2_000_000_i64);
    (
        news,
        1..5_u32,
        0.1..3.0_f64,
        proptest::option::of(0.05..1.0_f64),
    )
        .prop_map(
            move |((kind, seconds, boot_ms), capacity_each, price, promised)| {
                let registered = OfferingNews::Registered { after_ms: boot_ms };
                let news = match kind {
                    0 | 1 => vec![],
                    2 => vec![(seconds, registered)],
                    3 => vec![
                        (seconds + 500, failed(Trouble::Capacity)),
                        (seconds, registered),
                    ],
                    4 => vec![(seconds, failed(Trouble::Registration)); 3],
                    5 => vec![(seconds, failed(Trouble::Quota))],
                    6.. => vec![
                        (seconds, registered),
                        (seconds / 2, failed(Trouble::Vanished)),
                    ],
                };
                let mut offer = after(priced(&format!("lc-{index}"), price), &news);
                let bid = offer.bid.as_mut().unwrap();
                (bid.place, bid.reliability) = (format!("place-{index}"), promised);
                offer.capacity_each = capacity_each;
                let memory = offer.memory.as_ref().unwrap();
                (memory.is_usable(seconds_ago(0)), offer)
            },
        )
}

/// Durations of a second to a day, equally likely by their order of magnitude.
#[expect(clippy::cast_possible_truncation, reason = "a day in milliseconds")]
fn a_duration() -> impl Strategy<Value = i64> {
    (0.0..17.0_f64).prop_map(|power| (1_000.0 * power.exp2()).min(86_400_000.0) as i64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// So with any durations, some wait below the maximum for a time that is bounded by what is
    /// usual for the pool: whoever is still busy then counts no more.
    #[test]
    fn a_task_that_waits_below_the_maximum_gets_a_machine_or_a_worker_in_bounded_time(
        offers in (1..5_usize).prop_flat_map(|n| (0..n).map(an_offer).collect::<Vec<_>>()),
        (mean_ms, deviation) in (a_duration(), 0.0..3.0_f64),
        runs in proptest::collection::vec((1..40_u64, a_duration()), 0..6),
        (pending, arrivals, wait_price) in (1..500_u64, 0.0..5.0_f64, 0.01..50.0_f64),
        (learns_ratio, ratio, knows_tasks) in (any::<bool>(), 0.01..2.0_f64, any::<bool>()),
        knows_claims in any::<bool>(),
    ) {
        let is_open = offers.iter().any(|(is_open, _)| *is_open);
        let offers = offers.into_iter().map(|(_, offer)| offer).collect();
        let mut snapshot = balanced(offers);
        let settings = &mut snapshot.settings;
        settings.learns_ratio = learns_ratio;
        (settings.scaling_ratio, settings.wait_price) = (ratio, wait_price);
        let news = PoolNews {
            task_ms: knows_tasks.then_some(mean_ms as f64),
            deviation_ms: knows_tasks.then_some(mean_ms as f64 * deviation),
            arrivals,
            ..PoolNews::default()
        };
        let n_claimed = runs.iter().map(|(count, _)| *count).sum::<u64>();
        snapshot.demand.pending = pending;
        (snapshot.demand.claimed, snapshot.capacity.running) = (n_claimed, n_claimed);
        // The usual time has passed: no run of them has ended, and no machine is to come.
        let n_ordinary = news.ordinary_since(snapshot.now).map(|since| {
            let claimed = runs.iter().map(|(count, further_ms)| {
                let claimed = snapshot.now.plus_millis(-3 * mean_ms - further_ms);
                if claimed >= since { *count } else { 0 }
            });
            claimed.sum()
        });
        snapshot.ordinary_runs = n_ordinary.filter(|_| knows_claims);
        snapshot.learned = Some(news);
        if is_open {
            let plan = decide(&snapshot);
            prop_assert!(!plan.awards.is_empty(), "{}", plan.text());
        }
    }
}
