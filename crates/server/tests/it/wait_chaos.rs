//! Seeded chaos of waits: tasks of one pool wait for all kinds of reasons. An observer that knows
//! the simulated world, and nothing of the server, computes the cause of each second. The accounts
//! must agree in each millisecond.
//!
//! `scripts/chaos --waits` runs any number of seeds.

mod mutants;
mod observer;
mod run;
mod world;

use self::run::runs;
use crate::database::Database;

/// Seeds of each test.
const SEEDS_EACH: u64 = 10;

macro_rules! ranges {
    ($($name:ident $number:literal),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let seeds = $number * SEEDS_EACH..($number + 1) * SEEDS_EACH;
                runs(seeds, || Some(Database::sqlite())).await;
            }
        )*
    };
}

ranges! {
    worlds_0 0,
}

#[tokio::test]
async fn the_same_holds_on_postgres() {
    runs(0..2, Database::postgres).await;
}

/// Further seeds.
mod long {
    use super::{Database, SEEDS_EACH, runs};

    ranges! {
        worlds_1 1, worlds_2 2, worlds_3 3,
    }

    #[tokio::test]
    async fn the_same_holds_on_postgres() {
        runs(2..6, Database::postgres).await;
    }
}

/// A task was cancelled after the last look of a planner that then stopped for a quarter of an
/// hour. Its wait was charged before the next planner came.
#[tokio::test]
async fn a_world_that_once_went_wrong() {
    runs(2_649..2_650, || Some(Database::sqlite())).await;
}

/// Runs the seeds that `scripts/chaos` names.
#[tokio::test]
async fn the_seeds_that_were_asked_for() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let (Some(from), Some(seeds)) = (number("CHAOS_FROM"), number("CHAOS_SEEDS")) {
        runs(from..from + seeds, || Some(Database::sqlite())).await;
    }
}
