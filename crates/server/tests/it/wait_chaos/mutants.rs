//! Tests of the harness: it must find each of these deliberate mistakes.

use testing::Chance;

use super::run::run;
use crate::database::Database;
use crate::fleet_world::Fleet;

/// Seeds to try at most for each mutant.
const SEEDS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The reader goes back: waits are charged twice.
    ChargesTwice,
    /// Some accounts lose a second.
    ChargesNobody,
    /// A second is charged to another cause.
    ChargesAnother,
    /// A change of the cause is not recorded.
    ForgetsBoundaries,
    /// The first claims of workers are forgotten, so a machine counts until each of its claims.
    ForgetsFirstClaims,
}

impl Mutant {
    pub(super) fn act(self, fleet: &Fleet, chance: &Chance) {
        match self {
            Self::ChargesTwice => fleet.database.raw(
                "UPDATE event_readers SET position = CASE WHEN position > 20 \
                 THEN position - 20 ELSE 0 END WHERE name = 'waits'",
            ),
            Self::ChargesNobody => fleet.database.raw(
                "UPDATE waits SET millis = millis - 1000 WHERE millis >= 1000 AND account IN \
                 (SELECT account FROM wait_accounts WHERE cause = 'booting')",
            ),
            Self::ChargesAnother => fleet.database.raw(
                "UPDATE waits SET millis = millis + CASE WHEN account IN \
                 (SELECT account FROM wait_accounts WHERE cause = 'booting') \
                 THEN 1000 ELSE -1000 END WHERE account IN \
                 (SELECT account FROM wait_accounts WHERE cause IN ('booting', 'claim'))",
            ),
            Self::ForgetsBoundaries if chance.percent(50) => fleet.database.raw(
                "DELETE FROM wait_boundaries WHERE since IN \
                 (SELECT MAX(since) FROM wait_boundaries)",
            ),
            Self::ForgetsBoundaries => {}
            Self::ForgetsFirstClaims => fleet.database.raw("UPDATE workers SET first_claim = NULL"),
        }
    }
}

/// The first seed saves time.
#[expect(clippy::print_stdout, reason = "it is the first seed to write here")]
async fn is_found(mutant: Mutant, first_seed: u64) {
    for seed in first_seed..first_seed + SEEDS {
        let ran = Box::pin(run(seed, Database::sqlite(), Some(mutant))).await;
        if !ran.problems.is_empty() {
            println!("found by the seed {seed}");
            return;
        }
    }
    panic!("{mutant:?} is not found in {SEEDS} seeds");
}

#[tokio::test]
async fn a_second_that_is_charged_twice_is_found() {
    is_found(Mutant::ChargesTwice, 0).await;
}

#[tokio::test]
async fn a_second_that_is_charged_to_nobody_is_found() {
    is_found(Mutant::ChargesNobody, 0).await;
}

#[tokio::test]
async fn a_second_that_is_charged_to_another_cause_is_found() {
    is_found(Mutant::ChargesAnother, 0).await;
}

#[tokio::test]
async fn a_change_that_is_not_recorded_is_found() {
    is_found(Mutant::ForgetsBoundaries, 0).await;
}

#[tokio::test]
async fn time_after_the_first_claim_that_counts_for_the_machine_is_found() {
    is_found(Mutant::ForgetsFirstClaims, 0).await;
}
