//! Simulated worlds with failures of all kinds, by seed; the invariants are checked after every
//! step.
//!
//! `scripts/chaos` runs any number of seeds, and repeats any of them.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]
#![expect(unused_macros, reason = "those of the other tests")]

#[path = "../it/ask.rs"]
#[expect(dead_code, reason = "the other tests ask for more")]
mod ask;
mod budgets;
mod bug_classes;
mod checks;
mod clocks;
mod clouds;
mod costs;
mod crowd;
#[path = "../it/database.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "the other tests use both databases"
)]
mod database;
mod freezing;
mod late_queue;
mod late_server;
#[path = "../it/measuring.rs"]
mod measuring;
mod mutants;
mod people;
mod picture;
mod published;
mod recovery;
mod refusals;
mod run;
mod state;
mod steps;
mod supply;
mod weather;
mod workers;
mod world;

use run::{Kind, run, runs};

/// Worlds are made of many small things.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds of each test. `scripts/chaos` runs as many as you like.
const SEEDS_EACH: u64 = 15;

macro_rules! ranges {
    ($($name:ident $number:literal),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let first = $number * crate::SEEDS_EACH;
                crate::runs(crate::Kind::Usual, first..first + crate::SEEDS_EACH).await;
            }
        )*
    };
}

/// Those of `./check`, and in `long` those that only `./check all` runs.
mod worlds {
    ranges! {
        worlds_00 0, worlds_01 1, worlds_02 2, worlds_03 3,
    }

    mod long {
        ranges! {
            worlds_04 4, worlds_05 5, worlds_06 6, worlds_07 7, worlds_08 8, worlds_09 9,
            worlds_10 10, worlds_11 11, worlds_12 12, worlds_13 13, worlds_14 14, worlds_15 15,
            worlds_16 16, worlds_17 17, worlds_18 18, worlds_19 19,
        }
    }
}

/// One of up to three machines has a wrong clock, again and again.
mod wrong_clocks {
    use crate::{Kind, SEEDS_EACH, runs};

    #[tokio::test]
    async fn wrong_clocks_0() {
        runs(Kind::WrongClocks, 0..2 * SEEDS_EACH).await;
    }

    #[tokio::test]
    async fn wrong_clocks_1() {
        runs(Kind::WrongClocks, 2 * SEEDS_EACH..4 * SEEDS_EACH).await;
    }

    mod long {
        use super::*;

        #[tokio::test]
        async fn wrong_clocks_2() {
            runs(Kind::WrongClocks, 4 * SEEDS_EACH..20 * SEEDS_EACH).await;
        }
    }
}

/// Money for machines is short.
mod budgets_of_money {
    use crate::{Kind, SEEDS_EACH, runs};

    #[tokio::test]
    async fn budgets_0() {
        runs(Kind::ShortOfMoney, 0..2 * SEEDS_EACH).await;
    }

    #[tokio::test]
    async fn budgets_1() {
        runs(Kind::ShortOfMoney, 2 * SEEDS_EACH..4 * SEEDS_EACH).await;
    }

    mod long {
        use super::*;

        #[tokio::test]
        async fn budgets_2() {
            runs(Kind::ShortOfMoney, 4 * SEEDS_EACH..20 * SEEDS_EACH).await;
        }
    }
}

/// They were found among many thousands.
#[tokio::test]
async fn worlds_that_once_went_wrong() {
    // A machine ended while nobody saw it, and its account took the time back from another use.
    runs(Kind::Usual, 6025..6026).await;
    // A launch was made in part, and its machine ended the pause after the refusal of the rest.
    runs(Kind::Usual, 5485..5486).await;
    // The last machine ended in the last turn, before it was charged.
    runs(Kind::Usual, 8652..8653).await;
    // The launch config was refused by one provider, and its pool moved to another.
    runs(Kind::Usual, 1558..1559).await;
    // A machine was charged too far, and all of its many runs began after its end.
    runs(Kind::ShortOfMoney, 109..110).await;
}

/// Runs the seeds that `scripts/chaos` names.
#[tokio::test]
async fn the_seeds_that_were_asked_for() {
    runs_asked_for(Kind::Usual).await;
}

/// The same for `scripts/chaos --clocks`.
#[tokio::test]
async fn the_seeds_of_wrong_clocks_that_were_asked_for() {
    runs_asked_for(Kind::WrongClocks).await;
}

/// The same for `scripts/chaos --budgets`.
#[tokio::test]
async fn the_seeds_of_budgets_that_were_asked_for() {
    runs_asked_for(Kind::ShortOfMoney).await;
}

async fn runs_asked_for(kind: Kind) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let (Some(from), Some(seeds)) = (number("CHAOS_FROM"), number("CHAOS_SEEDS")) {
        runs(kind, from..from + seeds).await;
    }
}

#[tokio::test]
async fn the_same_seed_is_the_same_history() {
    let usual = (0..5)
        .chain([crowd::CROWD_AT])
        .map(|seed| (Kind::Usual, seed));
    let wrong_clocks = (0..5).map(|seed| (Kind::WrongClocks, seed));
    let budgets = (0..5).map(|seed| (Kind::ShortOfMoney, seed));
    for (kind, seed) in usual.chain(wrong_clocks).chain(budgets) {
        let first = run(kind, seed, None, None).await;
        let second = run(kind, seed, None, None).await;
        let differs = first
            .trace
            .iter()
            .zip(&second.trace)
            .find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert!(first.trace.len() > 10, "seed {seed}: {:?}", first.trace);
    }
}
