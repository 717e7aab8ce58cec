//! Tests of the harness: it must find each of these deliberate mistakes.

use domain::id::ImageName;
use domain::image::{BuildNumber, BuildRecord};
use images::Place;

use super::run::run;
use super::snapshot::Snapshot;
use super::world::ChaosWorld;

/// Seeds to try at most for each mutant.
const SEEDS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Results are written without the check that the lock still exists.
    WritesWithoutFence,
    /// A builder looks at its own contender only, and so always holds the lock.
    BelievesItHoldsTheLock,
    /// Only the newest good build is kept.
    KeepsOne,
    /// An upload is deleted at the provider before its record says so.
    DeletesImagesInUse,
}

/// At least one seed must find it, and report this problem. The first seed saves time.
#[expect(clippy::print_stdout, reason = "it is the first seed to write here")]
fn is_found(mutant: Mutant, first_seed: u64, expected: &str) {
    let mut others = Vec::new();
    for seed in first_seed..first_seed + SEEDS {
        let ran = run(seed, Some(mutant));
        if ran.problems.iter().any(|it| it.starts_with(expected)) {
            println!("found by the seed {seed}");
            return;
        }
        others.extend(ran.problems);
    }
    panic!("{mutant:?} is not found in {SEEDS} seeds; these were: {others:#?}");
}

#[test]
fn a_result_that_is_written_without_the_lock_is_found() {
    is_found(
        Mutant::WritesWithoutFence,
        0,
        "I17: a result was written without the lock",
    );
}

#[test]
fn a_lock_that_is_not_checked_is_found() {
    is_found(
        Mutant::BelievesItHoldsTheLock,
        15,
        "I17: img-0 is built twice",
    );
}

#[test]
fn keeping_one_good_build_is_found() {
    is_found(Mutant::KeepsOne, 0, "I17: img-0 keeps");
}

#[test]
fn deleting_an_image_in_use_is_found() {
    is_found(Mutant::DeletesImagesInUse, 0, "I17: img-0 ");
}

impl ChaosWorld {
    /// The step that a builder with this mistake would take now.
    pub(super) async fn act_as_mutant(&mut self) {
        let is_active = matches!(
            self.mutant,
            Some(Mutant::KeepsOne | Mutant::DeletesImagesInUse)
        );
        if !is_active {
            return;
        }
        let shot = Snapshot::read(&self.monitor).await;
        for (name, image) in &shot.images {
            let ready = image.builds.iter().filter(|(_, build)| build.is_ready());
            let ready: Vec<_> = ready.collect();
            let [.., (number, build), _] = ready.as_slice() else {
                continue;
            };
            if self.mutant == Some(Mutant::KeepsOne) {
                self.delete(name, **number).await;
                continue;
            }
            for (target, id) in build.ready_uploads() {
                self.world.cloud(target).lose_image(id);
            }
        }
    }

    /// Writes that a build is deleted.
    pub(super) async fn delete(&self, name: &ImageName, number: BuildNumber) {
        let path = Place::Build(name.clone(), number).path().unwrap();
        let tree = self.world.tree();
        let Ok(node) = tree.get(&path).await else {
            return;
        };
        let record = BuildRecord::parse(&node.data).ok();
        let now = self.world.clock.now_ms();
        let deleted = record.and_then(|record| record.delete(now).ok());
        if let Some(deleted) = deleted {
            let data = deleted.to_document().to_string();
            let version = Some(node.stat.version);
            let _ = tree.set(&path, data.as_bytes(), version).await;
        }
    }
}
