//! Seeded chaos of canaries: builds of all qualities, machines that fail, people who decide, and
//! servers with an old picture of the tree. After every step the rollout must be right, and over
//! all seeds the verdicts must be as often right as they claim.
//!
//! `scripts/chaos --canaries` runs any number of seeds.

mod checks;
mod machines;
mod mutants;
mod run;
mod world;

use self::run::runs;
use crate::database::Database;

/// Seeds of each test.
const SEEDS_EACH: u64 = 8;

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
    runs(0..1, Database::postgres).await;
}

/// Further seeds.
mod long {
    use super::{Database, SEEDS_EACH, runs};

    ranges! {
        worlds_1 1, worlds_2 2,
    }

    #[tokio::test]
    async fn the_same_holds_on_postgres() {
        runs(1..4, Database::postgres).await;
    }
}

/// Runs the seeds that `scripts/chaos` names.
#[tokio::test]
async fn the_seeds_that_were_asked_for() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let (Some(from), Some(seeds)) = (number("CHAOS_FROM"), number("CHAOS_SEEDS")) {
        runs(from..from + seeds, || Some(Database::sqlite())).await;
    }
}
