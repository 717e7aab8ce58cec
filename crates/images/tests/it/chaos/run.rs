//! One run: a number of steps from a seed, each checked; then recovery.

use std::ops::Range;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::mutants::Mutant;
use super::world::ChaosWorld;
use crate::world::Twin;

/// Steps of a run before it is healed.
const STEPS: std::ops::RangeInclusive<i64> = 8..=25;
/// After this many failed runs, the test stops.
const MAX_WRONG: usize = 3;
/// The end of a trace is the most useful part.
const SHOWN: usize = 120;
/// Runs at once on ZooKeeper.
const AT_ONCE: usize = 8;

pub(super) struct Ran {
    pub(super) problems: Vec<String>,
    pub(super) trace: Vec<String>,
}

/// A run on the embedded tree, in virtual time.
pub(super) fn run(seed: u64, mutant: Option<Mutant>) -> Ran {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { run_on(Twin::embedded().await, seed, mutant).await })
}

async fn run_on(twin: Twin, seed: u64, mutant: Option<Mutant>) -> Ran {
    let mut world = ChaosWorld::open(seed, twin, mutant).await;
    let n_steps = world.chance.between(*STEPS.start(), *STEPS.end());
    for _ in 0..n_steps {
        world.step().await;
        world.check().await;
        if !world.monitor.problems().is_empty() {
            break;
        }
    }
    if world.monitor.problems().is_empty() {
        world.recover().await;
    }
    Ran {
        problems: world.monitor.problems(),
        trace: world.monitor.trace(),
    }
}

#[expect(clippy::print_stdout, reason = "a failure must say how it came about")]
fn report(seed: u64, ran: &Ran) {
    println!("--- seed {seed} ---");
    // Recovery repeats one line many times.
    let mut lines = ran.trace.clone();
    lines.dedup();
    let skipped = lines.len().saturating_sub(SHOWN);
    for line in &lines[skipped..] {
        println!("{line}");
    }
    println!("again: scripts/chaos --images --from {seed} --seeds 1");
}

/// All of these, one after the other; stops after several failures.
pub(super) fn runs(seeds: Range<u64>) {
    let mut wrong = Vec::new();
    for seed in seeds {
        let ran = run(seed, None);
        if !ran.problems.is_empty() {
            report(seed, &ran);
            wrong.push((seed, ran.problems));
        }
        if wrong.len() == MAX_WRONG {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

pub(super) async fn runs_on_zookeeper(seeds: Range<u64>) {
    let runs = seeds.filter_map(|seed| Some((seed, Twin::zookeeper()?)));
    let runs = runs.map(|(seed, twin)| async move { (seed, run_on(twin, seed, None).await) });
    let mut runs = stream::iter(runs).buffer_unordered(AT_ONCE);
    let mut wrong = Vec::new();
    while let Some((seed, ran)) = runs.next().await {
        if !ran.problems.is_empty() {
            report(seed, &ran);
            wrong.push((seed, ran.problems));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
