//! One run: a number of steps from a seed; then the accounts are compared with the observer.

use std::collections::BTreeMap;
use std::ops::Range;

use super::mutants::Mutant;
use super::world::WaitWorld;
use crate::database::Database;

const STEPS: std::ops::RangeInclusive<i64> = 40..=140;
/// After this many failed runs, the test stops.
const MAX_WRONG: usize = 3;
/// The end of a trace is the most useful part.
const SHOWN: usize = 200;

pub(super) struct Ran {
    pub(super) problems: Vec<String>,
    pub(super) trace: Vec<String>,
    /// The seconds that were compared.
    pub(super) seconds: i64,
    /// Promises about the end of a cause, and those that were broken.
    pub(super) n_promises: usize,
    pub(super) broken: Vec<String>,
}

/// The share of promises that may be broken, in percents.
const BROKEN: usize = 5;
/// A test of few seeds may have more.
const BROKEN_BY_CHANCE: usize = 2;

pub(super) async fn run(seed: u64, database: Database, mutant: Option<Mutant>) -> Ran {
    let mut world = WaitWorld::open(seed, database, mutant).await;
    let n_steps = world.chance.between(*STEPS.start(), *STEPS.end());
    for _ in 0..n_steps {
        world.step().await;
    }
    world.end().await;
    world.observer.judge();
    let mut problems = Vec::new();
    let sums = world.observer.sums.iter();
    let sums = sums.filter(|(_, seconds)| **seconds > 0);
    let expected: BTreeMap<String, i64> = sums
        .map(|(cause, seconds)| ((*cause).to_owned(), seconds * 1_000))
        .collect();
    let millis: i64 = expected.values().sum();
    if millis != world.observer.total * 1_000 {
        problems.push("the observer lost a second".to_owned());
    }
    let hours = format!("since={}", world.fleet.now().plus_millis(-100_000_000));
    for query in ["by=cause", &hours] {
        let charged = world.accounts(query).await;
        if charged != expected {
            problems.push(format!(
                "{query}: charged {charged:?}, and it was {expected:?}"
            ));
        }
    }
    Ran {
        problems,
        seconds: world.observer.total,
        n_promises: world.n_promises,
        broken: world.broken,
        trace: world.trace,
    }
}

/// All of these, one after the other; stops after several failures.
#[expect(clippy::print_stdout, reason = "a failure must say how it came about")]
pub(super) async fn runs(seeds: Range<u64>, database: impl Fn() -> Option<Database>) {
    let mut wrong = Vec::new();
    let mut seconds = 0;
    let (mut n_promises, mut n_broken) = (0, 0);
    for seed in seeds {
        let Some(database) = database() else {
            return;
        };
        let ran = Box::pin(run(seed, database, None)).await;
        seconds += ran.seconds;
        n_promises += ran.n_promises;
        n_broken += ran.broken.len();
        for broken in &ran.broken {
            println!("seed {seed}: {broken}");
        }
        if !ran.problems.is_empty() {
            println!("--- seed {seed} ---");
            for line in &ran.trace[ran.trace.len().saturating_sub(SHOWN)..] {
                println!("{line}");
            }
            println!("again: scripts/chaos --waits --from {seed} --seeds 1");
            wrong.push((seed, ran.problems));
        }
        if wrong.len() == MAX_WRONG {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("compared: {seconds} seconds of waiting; broken: {n_broken} of {n_promises} promises");
    let most = n_promises * BROKEN / 100 + BROKEN_BY_CHANCE;
    assert!(n_broken <= most, "{n_broken} of {n_promises} are broken");
}
