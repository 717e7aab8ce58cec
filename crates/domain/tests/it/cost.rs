//! A plan takes time in proportion to its input.

use std::time::{Duration, Instant};

use domain::plan::{MAX_ADVICE, Offer, Snapshot};

use crate::common::{busy, decide, idle, launched, offer, pool};

/// Far more than it takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

fn large(n_offers: u64, n_workers: u64) -> Snapshot {
    let mut snapshot = pool(0, 100_000);
    let offers = (0..n_offers).map(|index| Offer {
        live: index % 7,
        ..offer(&format!("lc-{index}"))
    });
    snapshot.offers = offers.collect();
    let workers = (0..n_workers).map(|index| match index % 3 {
        0 => busy(&format!("w{index}")),
        _ => idle(
            &format!("w{index}"),
            i64::try_from(index * 7919 % n_workers).unwrap(),
        ),
    });
    snapshot.workers = workers.collect();
    snapshot.capacity.running = n_workers;
    snapshot.demand.claimed = n_workers.div_ceil(3);
    snapshot
}

#[expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "this measures and tells, and decides nothing by it"
)]
fn timed(what: &str, snapshot: &Snapshot, n_launched: u64, n_told: usize) {
    let start = Instant::now();
    let plan = decide(snapshot);
    let elapsed = start.elapsed();
    assert_eq!((launched(&plan), plan.advice.len()), (n_launched, n_told));
    eprintln!("{what}: {elapsed:?}");
    assert!(elapsed < LIMIT, "{what} took {elapsed:?}");
}

#[test]
fn a_thousand_offers_and_ten_thousand_workers_are_no_matter() {
    for (n_offers, n_workers) in [(100, 1_000), (1_000, 10_000), (10_000, 100_000)] {
        let mut snapshot = large(n_offers, n_workers);
        let n_idle = usize::try_from(n_workers - n_workers.div_ceil(3)).unwrap();
        let name = format!("{n_offers} offers, {n_workers} workers");
        timed(
            &format!("{name}, all idle workers stop"),
            &snapshot,
            0,
            n_idle.min(MAX_ADVICE),
        );
        snapshot.settings.max_capacity = 1_000_000;
        snapshot.demand.pending = n_idle as u64 + 100;
        timed(&format!("{name}, 100 launched"), &snapshot, 100, 0);
        snapshot.demand.pending = n_idle as u64 + 1_000;
        timed(&format!("{name}, 1000 launched"), &snapshot, 1_000, 0);
    }
}
