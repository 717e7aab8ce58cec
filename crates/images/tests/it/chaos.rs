//! Seeded chaos: builders that die, sessions that end, lost answers, failing uploads and changing
//! minds, and others who write to the same tree; after every step, and at the end, the image
//! invariant (I17) must hold.
//!
//! `scripts/chaos --images` runs any number of seeds on the embedded tree, in virtual time.

mod builder;
mod checks;
mod commands;
mod faults;
mod forgotten;
mod intruders;
mod monitor;
mod mutants;
mod rollouts;
mod run;
mod snapshot;
mod steps;
mod store;
mod world;

use self::run::{runs, runs_on_zookeeper};

/// Seeds of each test.
const SEEDS_EACH: u64 = 6;

macro_rules! ranges {
    ($($name:ident $number:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                runs($number * SEEDS_EACH..($number + 1) * SEEDS_EACH);
            }
        )*
    };
}

ranges! {
    worlds_0 0,
}

/// Further seeds.
mod long {
    use super::{SEEDS_EACH, runs, runs_on_zookeeper};

    ranges! {
        worlds_1 1, worlds_2 2, worlds_3 3,
    }

    #[tokio::test]
    async fn the_same_holds_on_a_real_zookeeper() {
        runs_on_zookeeper(8..24).await;
    }
}

/// A fetched file that was left, and a deletion that was repeated while the copy was behind.
#[test]
fn worlds_that_once_went_wrong() {
    for seed in [100_325, 101_820] {
        runs(seed..seed + 1);
    }
}

/// Runs the seeds that `scripts/chaos` names.
#[test]
fn the_seeds_that_were_asked_for() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let (Some(from), Some(seeds)) = (number("CHAOS_FROM"), number("CHAOS_SEEDS")) {
        runs(from..from + seeds);
    }
}

#[tokio::test]
async fn the_same_holds_on_a_real_zookeeper() {
    runs_on_zookeeper(0..8).await;
}
