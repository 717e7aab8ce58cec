//! One run: a number of steps from a seed, each checked; then recovery.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::clouds::Mutant;
use crate::database::Database;
use crate::world::World;

/// Steps of a run before it is healed.
const STEPS: std::ops::RangeInclusive<i64> = 10..=35;
/// Every run of this number is on PostgreSQL, if it is configured.
const POSTGRES_EVERY: u64 = 20;
/// The end of a trace is the most useful part.
const SHOWN: usize = 400;

/// Of a hundred steps with wrong clocks, this many begin with another one.
const DISTURBED: u32 = 30;

/// After this many failed runs, the test stops.
const MAX_WRONG: usize = 5;

/// The faults of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Usual,
    /// Machines of processes have wrong clocks.
    WrongClocks,
    /// People set and remove budgets.
    ShortOfMoney,
}

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) hash: u64,
    pub(crate) problems: Vec<String>,
    pub(crate) trace: Vec<String>,
}

pub(crate) async fn run(
    kind: Kind,
    seed: u64,
    mutant: Option<Mutant>,
    postgres: Option<Database>,
) -> Ran {
    let world = World::open(kind, seed, mutant, postgres).await;
    world.make_pools().await;
    world.check().await;
    let n_steps = world.chance.between(*STEPS.start(), *STEPS.end());
    let crowd_at = world.has_crowd().then(|| world.chance.between(1, n_steps));
    for step in 1..=n_steps {
        if kind == Kind::WrongClocks && world.chance.percent(DISTURBED) {
            world.disturb_a_clock().await;
            world.check().await;
        }
        if kind == Kind::ShortOfMoney {
            world.mind_the_money().await;
        }
        world.step().await;
        if crowd_at == Some(step) {
            world.crowd_waits().await;
        }
        world.check().await;
        if mutant == Some(Mutant::ForgetsRefusals) {
            world.forget_refusals().await;
        }
        if !world.state().problems.is_empty() {
            break;
        }
    }
    if world.state().problems.is_empty() {
        world.recover().await;
    }
    let state = std::mem::take(&mut *world.state());
    let mut hasher = DefaultHasher::new();
    state.trace.hash(&mut hasher);
    let ran = Ran {
        hash: hasher.finish(),
        problems: state.problems,
        trace: state.trace,
    };
    close(world).await;
    ran
}

/// No connection is open when the database is dropped, and nothing that still runs affects the next
/// world.
pub(crate) async fn close(world: Arc<World>) {
    let processes = world.processes();
    world.end_processes();
    if world.is_postgres() {
        for process in processes {
            process.app.engine.store.close().await;
        }
        world.observer.close().await;
    }
}

/// All of these, one after the other; stops after several failures.
#[expect(clippy::print_stdout, reason = "a failure must say how it came about")]
pub(crate) async fn runs(kind: Kind, seeds: Range<u64>) {
    let mut wrong = Vec::new();
    for seed in seeds {
        let postgres = match seed % POSTGRES_EVERY == POSTGRES_EVERY - 1 {
            true if std::env::var_os("TEST_PG_URL").is_some() => Database::postgres(),
            true | false => None,
        };
        let ran = run(kind, seed, None, postgres).await;
        if ran.problems.is_empty() {
            continue;
        }
        println!("--- seed {seed} ---");
        let skipped = ran.trace.len().saturating_sub(SHOWN);
        for line in &ran.trace[skipped..] {
            println!("{line}");
        }
        let flag = match kind {
            Kind::Usual => "",
            Kind::WrongClocks => " --clocks",
            Kind::ShortOfMoney => " --budgets",
        };
        println!("again: scripts/chaos{flag} --from {seed} --seeds 1");
        wrong.push((seed, ran.problems));
        if wrong.len() == MAX_WRONG {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
