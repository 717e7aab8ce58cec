//! Tests of the harness: it must find each of these deliberate mistakes.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::ImageName;
use domain::image::{BuildNumber, BuildRecord, LEFT_IMAGE_MS, UploadRecord, UploadState};
use domain::time::{Clock as _, Timestamp};
use images::Place;

use super::run::run;
use super::snapshot::{BuildShot, ImageShot, Snapshot};
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
    /// A build is deleted once two newer ones are at each target, whatever machines start from.
    CountsUntestedBuilds,
    /// The upload of before a change of options is deleted as soon as the new one is ready.
    DeletesOldForms,
    /// Builders do not learn which builds lost their place.
    ForgetsReplaced,
    /// A target is believed that says that an upload is ready.
    BelievesTargets,
    /// A server mirrors its definitions into a tree that belongs to another database.
    LetsAnyDatabaseHaveTheTree,
    /// Seals are not checked.
    BelievesForgeries,
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
        26,
        "I17: img-0 is built twice",
    );
}

#[test]
fn keeping_one_good_build_is_found() {
    is_found(Mutant::KeepsOne, 4, "I17: img-0 keeps");
}

#[test]
fn deleting_an_image_in_use_is_found() {
    is_found(Mutant::DeletesImagesInUse, 0, "I17: img-0 ");
}

#[test]
fn deleting_what_a_target_starts_from_while_newer_builds_wait_is_found() {
    is_found(Mutant::CountsUntestedBuilds, 73, "I17: machines of ");
}

#[test]
fn deleting_the_old_form_of_an_upload_at_once_is_found() {
    is_found(Mutant::DeletesOldForms, 8, "I17: machines of ");
}

#[test]
fn forgetting_what_was_replaced_is_found() {
    is_found(Mutant::ForgetsReplaced, 3, "I17: machines of ");
}

#[test]
fn a_target_that_is_believed_is_found() {
    is_found(Mutant::BelievesTargets, 46, "I17: img-");
}

#[test]
fn a_server_of_another_database_that_mirrors_is_found() {
    is_found(Mutant::LetsAnyDatabaseHaveTheTree, 24, "I17: img-");
}

#[test]
fn forgeries_that_are_believed_are_found() {
    is_found(Mutant::BelievesForgeries, 1, "I17: ");
}

impl ChaosWorld {
    /// The step that a builder with this mistake would take now.
    pub(super) async fn act_as_mutant(&mut self) {
        let Some(mutant) = self.mutant else {
            return;
        };
        let shot = Snapshot::read(&self.monitor).await;
        for (name, image) in &shot.images {
            let ready = image.builds.iter().filter(|(_, build)| build.is_ready());
            let ready: Vec<_> = ready.collect();
            match (mutant, ready.as_slice()) {
                (Mutant::KeepsOne, [.., (number, _), _]) => self.delete(name, **number).await,
                (Mutant::DeletesImagesInUse, [.., (_, build), _]) => {
                    for (target, id) in build.ready_uploads() {
                        self.world.cloud(target).lose_image(id);
                    }
                }
                (Mutant::CountsUntestedBuilds, ready) => {
                    for number in beyond_two(image, ready, self.world.clock.now()) {
                        self.delete(name, number).await;
                    }
                }
                (Mutant::DeletesOldForms, ready) => {
                    for (_, build) in ready {
                        let mut newest = BTreeMap::new();
                        for (target, id) in build.ready_uploads() {
                            if let Some(old) = newest.insert(target, id) {
                                self.world.cloud(target).lose_image(old);
                            }
                        }
                    }
                }
                (Mutant::BelievesTargets, _) => self.believe(name, image).await,
                _ => {}
            }
        }
    }

    /// Writes uploads as ready that failed because the target had lied.
    async fn believe(&self, name: &ImageName, image: &ImageShot) {
        for (number, build) in &image.builds {
            for (target, upload, record) in &build.uploads {
                let Some(record) = record else { continue };
                let UploadState::Failed { error, .. } = &record.state else {
                    continue;
                };
                let claimed = error.split("is ready as image ").nth(1);
                let claimed = claimed.and_then(|it| it.split([',', ' ']).next());
                let Some(claimed) = claimed else { continue };
                let mut stored = record.clone().into_stored();
                stored.state = UploadState::Ready;
                stored.external_id = Some(claimed.to_owned());
                let data = UploadRecord::from_stored(stored).to_document().to_string();
                let target = target.parse().unwrap();
                let place = Place::Upload(name.clone(), *number, target, *upload);
                let path = place.path().unwrap();
                let _ = self.world.tree().set(&path, data.as_bytes(), None).await;
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

/// The builds that no target needs, if those count from which no machine may start yet.
fn beyond_two(
    image: &ImageShot,
    ready: &[(&BuildNumber, &BuildShot)],
    now: Timestamp,
) -> Vec<BuildNumber> {
    let standing = &image.standing;
    let good = ready
        .iter()
        .filter(|(it, _)| !standing.rejected.contains(it));
    let good: Vec<_> = good.rev().collect();
    let mut kept: BTreeSet<BuildNumber> = good.iter().take(2).map(|(it, _)| **it).collect();
    kept.extend(standing.promoted);
    kept.extend(standing.candidate);
    let replaced = standing.replaced.iter();
    let replaced = replaced.filter(|(_, at)| now.millis_since(**at) < LEFT_IMAGE_MS);
    kept.extend(replaced.map(|(build, _)| *build));
    for target in super::world::PROVIDERS {
        let has_it = |build: &BuildShot| build.ready_uploads().any(|(other, _)| other == target);
        let there = good.iter().filter(|(_, build)| has_it(build));
        kept.extend(there.take(2).map(|(it, _)| **it));
    }
    let numbers = good.into_iter().map(|(number, _)| **number);
    numbers.filter(|number| !kept.contains(number)).collect()
}
