//! One run: a number of steps from a seed, each checked; then the last canary comes to its end.

use std::ops::Range;

use domain::image::{FALSE_ALARM_RATE, WRONG_PROMOTION_RATE};

use super::checks::Tally;
use super::mutants::Mutant;
use super::world::CanaryWorld;
use crate::database::Database;

const STEPS: std::ops::RangeInclusive<i64> = 20..=50;
/// A canary ends by its verdict within this many steps with machines.
const STEPS_TO_VERDICT: u32 = 80;
/// After this many failed runs, the test stops.
const MAX_WRONG: usize = 3;
/// The end of a trace is the most useful part.
const SHOWN: usize = 80;

pub(super) struct Ran {
    pub(super) problems: Vec<String>,
    pub(super) trace: Vec<String>,
    pub(super) tally: Tally,
}

pub(super) async fn run(seed: u64, database: Database, mutant: Option<Mutant>) -> Ran {
    let mut world = CanaryWorld::open(seed, database, mutant).await;
    let n_steps = world.chance.between(*STEPS.start(), *STEPS.end());
    world.check().await;
    for _ in 0..n_steps {
        world.step().await;
        world.check().await;
        if !world.observer.problems.is_empty() {
            break;
        }
    }
    if world.observer.problems.is_empty() {
        end_canary(&mut world).await;
    }
    Ran {
        problems: world.observer.problems,
        trace: world.trace,
        tally: world.observer.tally,
    }
}

/// Without further changes, a canary beside a good image comes to its verdict. Beside a bad one
/// chance may need longer: then people are asked.
async fn end_canary(world: &mut CanaryWorld) {
    // Beside the images there is no evidence, and so no end.
    if world.is_beside || !world.is_good_in_use() {
        return;
    }
    for _ in 0..STEPS_TO_VERDICT {
        let rollout = world.stored().await;
        if rollout.is_some_and(|rollout| rollout.canary.is_none()) {
            return;
        }
        world.launch_and_wait().await;
        world.settle().await;
        world.check().await;
    }
    let rollout = world.stored().await;
    let problem = format!("the canary has no end: {rollout:?}");
    world.observer.problems.push(problem);
}

#[expect(clippy::print_stdout, reason = "a failure must say how it came about")]
fn report(seed: u64, ran: &Ran) {
    println!("--- seed {seed} ---");
    for line in &ran.trace[ran.trace.len().saturating_sub(SHOWN)..] {
        println!("{line}");
    }
    println!("again: scripts/chaos --canaries --from {seed} --seeds 1");
}

/// All of these, one after the other; stops after several failures.
#[expect(clippy::print_stdout, reason = "the figures are reported")]
pub(super) async fn runs(seeds: Range<u64>, database: impl Fn() -> Option<Database>) {
    let mut wrong = Vec::new();
    let mut tally = Tally::default();
    for seed in seeds {
        let Some(database) = database() else {
            return;
        };
        let ran = Box::pin(run(seed, database, None)).await;
        tally.good += ran.tally.good;
        tally.good_rolled_back += ran.tally.good_rolled_back;
        tally.bad += ran.tally.bad;
        tally.bad_promoted += ran.tally.bad_promoted;
        if !ran.problems.is_empty() {
            report(seed, &ran);
            wrong.push((seed, ran.problems));
        }
        if wrong.len() == MAX_WRONG {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("verdicts: {tally:?}");
    assert_rate(
        "good builds rolled back",
        tally.good_rolled_back,
        tally.good,
        FALSE_ALARM_RATE,
    );
    assert_rate(
        "bad builds promoted",
        tally.bad_promoted,
        tally.bad,
        WRONG_PROMOTION_RATE,
    );
}

/// At most the stated rate, and what chance may add to it (four standard deviations).
fn assert_rate(name: &str, wrong: u32, all: u32, rate: f64) {
    let expected = f64::from(all) * rate;
    let limit = expected + 4.0 * expected.sqrt() + 1.0;
    assert!(f64::from(wrong) <= limit, "{name}: {wrong} of {all}");
}
