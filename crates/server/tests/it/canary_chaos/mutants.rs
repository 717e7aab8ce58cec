//! Tests of the harness: it must find each of these deliberate mistakes.

use super::run::{Ran, run};
use crate::database::Database;

/// Seeds to try at most for each mutant.
const SEEDS: u64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Pools keep the images that they have.
    ForgetsPools,
    /// Some steps are no events.
    LosesEvents,
    /// A build that was rolled back is new again.
    ForgetsRejections,
    /// The machines of the canary count as those beside it.
    SwapsGroups,
    /// A server with a late copy of the tree decides, too.
    TrustsLatePictures,
    /// Workers that ran beside the image count.
    BelievesWorkersBesideTheImage,
    /// Builds from which machines started count as passed over.
    ForgetsWhatServed,
}

/// The first seed saves time.
#[expect(clippy::print_stdout, reason = "it is the first seed to write here")]
async fn is_found(mutant: Mutant, first_seed: u64, shows: impl Fn(&Ran) -> bool) {
    for seed in first_seed..first_seed + SEEDS {
        if shows(&run(seed, Database::sqlite(), Some(mutant)).await) {
            println!("found by the seed {seed}");
            return;
        }
    }
    panic!("{mutant:?} is not found in {SEEDS} seeds");
}

/// Clients that follow the events come to other decisions than those that are stored.
async fn is_found_by_events(mutant: Mutant, first_seed: u64) {
    is_found(mutant, first_seed, |ran| {
        has_problem(ran, "events and decisions differ")
    })
    .await;
}

fn has_problem(ran: &Ran, expected: &str) -> bool {
    ran.problems
        .iter()
        .any(|problem| problem.contains(expected))
}

#[tokio::test]
async fn pools_that_keep_old_images_are_found() {
    is_found(Mutant::ForgetsPools, 0, |ran| {
        has_problem(ran, "launch configs") || has_problem(ran, "has no image")
    })
    .await;
}

#[tokio::test]
async fn lost_events_are_found() {
    is_found_by_events(Mutant::LosesEvents, 1).await;
}

#[tokio::test]
async fn a_build_that_is_tried_again_after_it_was_rolled_back_is_found() {
    is_found_by_events(Mutant::ForgetsRejections, 2).await;
}

#[tokio::test]
async fn groups_that_are_swapped_are_found_by_wrong_verdicts() {
    is_found(Mutant::SwapsGroups, 8, |ran| {
        ran.tally.bad_promoted > 0 || ran.tally.good_rolled_back > 0
    })
    .await;
}

#[tokio::test]
async fn a_server_that_trusts_a_late_copy_of_the_tree_is_found() {
    is_found_by_events(Mutant::TrustsLatePictures, 92).await;
}

#[tokio::test]
async fn builds_that_served_and_count_as_passed_over_are_found() {
    is_found(Mutant::ForgetsWhatServed, 0, |ran| {
        has_problem(ran, "was passed over, and machines started from it")
    })
    .await;
}

#[tokio::test]
async fn verdicts_by_workers_beside_the_image_are_found() {
    is_found(Mutant::BelievesWorkersBesideTheImage, 1, |ran| {
        has_problem(ran, "no machine ran in it")
    })
    .await;
}
