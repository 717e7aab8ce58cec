//! The invariant of images (I17), at any moment and at the end.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::ImageName;
use domain::image::{BuildFailureCause, BuildNumber, BuildState, Step, WaitReason};

use super::intruders::FORGED;
use super::rollouts::shared_images;
use super::snapshot::{ImageShot, Snapshot};
use super::world::{ChaosWorld, Known, PROVIDERS, REBUILD_AGE_MS};
use crate::world::image;

/// Time in which everything comes to its goal after the faults.
const RECOVERY_MS: i64 = 12 * 3_600_000;
const ROUND_MS: i64 = 600_000;
/// Rounds of the recovery on ZooKeeper, where real time passes much more slowly than the clock.
/// After the quick ones, only an image that is built again because of its age is still to come.
const REAL_ROUNDS: i64 = 600;
const QUICK_REAL_ROUNDS: i64 = 200;
const QUICK_REAL_ROUND_MS: i64 = 15_000;
const REAL_ROUND_MS: i64 = 90_000;
/// Searches need two rounds until they remove something.
const MIN_ROUNDS: i64 = 3;

impl ChaosWorld {
    /// Checks what holds at any moment. Two equal readings are true.
    pub(super) async fn check(&mut self) {
        let (shot, mut problems) = self.look().await;
        if !problems.is_empty() {
            let (_, again) = self.look().await;
            problems.retain(|problem| again.contains(problem));
        }
        for problem in problems {
            self.monitor.problem(problem);
        }
        for (name, known) in &mut self.known {
            let Some(shot) = shot.images.get(name) else {
                continue;
            };
            for (number, build) in &shot.builds {
                let is_good = build.is_ready() && !shot.standing.rejected.contains(number);
                if is_good && *number > known.removed {
                    known.good.insert(*number);
                    known.served.extend(
                        build
                            .ready_uploads()
                            .filter(|(target, _)| is_target(known.definition.as_ref(), target))
                            .map(|(target, _)| target.to_owned()),
                    );
                }
            }
        }
    }

    async fn look(&self) -> (Snapshot, Vec<String>) {
        let shot = Snapshot::read(&self.monitor).await;
        let mut problems = Vec::new();
        let present = self.present_images();
        for (name, image) in &shot.images {
            if self.is_virtual {
                problems.extend(self.begun_again(name, image));
            }
            for (number, build) in &image.builds {
                for (target, id) in build.ready_uploads() {
                    if !present.contains(&(target.to_owned(), id.to_owned())) {
                        problems.push(format!(
                            "I17: {name} {number} is ready at {target}, but {id} was deleted"
                        ));
                    }
                }
            }
        }
        problems.extend(self.missing_images(&present));
        let forged = shot.images.get(&image(FORGED));
        if forged.is_some_and(|forged| !forged.builds.is_empty()) {
            problems.push("I17: the definition of somebody without keys was built".to_owned());
        }
        let ready = shot.images.iter().flat_map(|(name, image)| {
            image.builds.iter().flat_map(move |(number, build)| {
                let uploads = build.ready_uploads();
                uploads.map(move |(target, id)| (format!("{name} {number}"), target, id))
            })
        });
        problems.extend(shared_images(ready));
        for (name, known) in &self.known {
            if let Some(image) = shot.images.get(name) {
                problems.extend(kept(name.as_str(), known, image));
            }
        }
        (shot, problems)
    }

    /// Builds that began after a person had cancelled the one before, without a request, although
    /// the definition is the same, and they are not due.
    fn begun_again(&self, name: &ImageName, image: &ImageShot) -> Vec<String> {
        let pairs = image.builds.iter().zip(image.builds.iter().skip(1));
        let again = pairs.filter_map(|((number, build), (next, after))| {
            let asked = self.cancelled.get(&(name.clone(), *number))?;
            let (record, after) = (build.record.as_ref()?, after.record.as_ref()?);
            let BuildState::Failed { cause, .. } = record.state else {
                return None;
            };
            // The note of a death may come from a builder that does not know the wish yet.
            let is_cancelled = cause == BuildFailureCause::Build && Some(*asked) <= record.finished;
            let pause_ms = after.started?.millis_since(record.finished?);
            let is_due = pause_ms >= REBUILD_AGE_MS * 9 / 10;
            let is_wanted =
                after.request.is_some() || after.build_hash != record.build_hash || is_due;
            (is_cancelled && !is_wanted).then(|| {
                format!(
                    "I17: {name} {next} began {pause_ms} ms after {number}, which was cancelled"
                )
            })
        });
        again.collect()
    }

    /// The images that providers have, with their targets.
    pub(super) fn present_images(&self) -> BTreeSet<(String, String)> {
        let of = |provider: &&'static str| {
            let images = self.world.cloud(provider).images();
            images
                .into_iter()
                .map(|image| ((*provider).to_owned(), image.external_id))
        };
        PROVIDERS.iter().flat_map(of).collect()
    }

    /// Stops all faults, starts all builders, and waits for the goal.
    pub(super) async fn recover(&mut self) {
        self.monitor.note("recover".to_owned());
        self.monitor.calm();
        self.set_faults(0, 0);
        for provider in PROVIDERS {
            self.world.cloud(provider).behave();
        }
        for seat in 0..self.seats.len() {
            if let Some(builder) = &self.seats[seat].builder {
                builder.tree.suspend(false);
                builder.tree.die_after(-1);
                if builder.tree.is_dead() {
                    self.kill(seat).await;
                }
            }
            self.start(seat).await;
        }
        self.release().await;
        let mut left = vec!["nothing was checked".to_owned()];
        let n_rounds = match self.is_virtual {
            true => RECOVERY_MS / ROUND_MS,
            false => REAL_ROUNDS,
        };
        for round in 0..n_rounds {
            let pause = match self.is_virtual {
                true => ROUND_MS,
                false if round < QUICK_REAL_ROUNDS => QUICK_REAL_ROUND_MS,
                false => REAL_ROUND_MS,
            };
            self.pass(pause).await;
            self.check().await;
            left = self.unfinished().await;
            if left.is_empty() && (round >= MIN_ROUNDS || !self.is_virtual) {
                break;
            }
            if !self.is_virtual {
                // The copy of the tree, which answers first, may have been behind.
                self.release().await;
            }
        }
        for problem in left {
            self.monitor.problem(format!("at the end: {problem}"));
        }
    }

    /// Resumes paused images, and unpins the builds of removed images, which keep these.
    async fn release(&self) {
        for name in &self.names {
            let _ = self.world.images.resume(name).await;
        }
        let shot = Snapshot::read(&self.monitor).await;
        for (name, image) in &shot.images {
            for (number, _) in image.builds.iter().filter(|(_, build)| build.is_pinned) {
                if !self.known.contains_key(name) {
                    let _ = self.world.images.unpin(name, *number).await;
                }
            }
        }
    }

    /// The deviations from the goal in the end.
    async fn unfinished(&self) -> Vec<String> {
        let shot = Snapshot::read(&self.monitor).await;
        let mut left = Vec::new();
        for name in &self.names {
            match (self.known.get(name), shot.images.get(name)) {
                (None, None) => {}
                (None, Some(image)) => {
                    left.push(format!("{name} was removed, and is still there: {image:?}"));
                }
                (Some(_), None) => left.push(format!("{name} has no node")),
                (Some(known), Some(image)) => left.extend(unfinished(name.as_str(), known, image)),
            }
        }
        for name in &self.names {
            let view = self.world.images.view(name, self.world.clock.now_ms());
            let steps = view.map(|view| view.steps());
            for step in steps.unwrap_or_default() {
                let is_settled = matches!(
                    step,
                    Step::Wait {
                        reason: WaitReason::BuildIsNew { .. },
                        ..
                    }
                );
                if !is_settled {
                    left.push(format!("{name}: {step}"));
                }
            }
        }
        let recorded: BTreeSet<(String, String)> = shot
            .images
            .values()
            .flat_map(|image| image.builds.values())
            .flat_map(|build| build.ready_uploads())
            .map(|(target, id)| (target.to_owned(), id.to_owned()))
            .collect();
        // With no image left, nothing is removed: the tree may be the wrong one.
        if self.is_virtual && !shot.images.is_empty() {
            let present = self.present_images();
            for leak in present.difference(&recorded) {
                let images = self.world.cloud(&leak.0).images();
                let image = images.iter().find(|image| image.external_id == leak.1);
                left.push(format!("I17: nothing stands for image {leak:?}: {image:?}"));
            }
            left.extend(self.forgotten_files(&shot));
        }
        left
    }

    fn forgotten_files(&self, shot: &Snapshot) -> Vec<String> {
        let mut left = Vec::new();
        let keys: BTreeSet<_> = self.seats.iter().flat_map(|it| it.store.keys()).collect();
        for key in keys {
            let mut parts = key.as_str().split('/');
            let name = image(parts.next().unwrap());
            let number: BuildNumber = parts.next().unwrap().parse().unwrap();
            let known = shot.images.get(&name);
            if known.is_none_or(|known| !known.builds.contains_key(&number)) {
                left.push(format!("nothing stands for the file {key}"));
            }
        }
        for seat in &self.seats {
            let work = std::fs::read_dir(seat.folder.join("work")).unwrap();
            left.extend(work.map(|it| format!("{:?} is left", it.unwrap().path())));
        }
        left
    }
}

pub(super) fn is_target(definition: Option<&serde_json::Value>, target: &str) -> bool {
    let uploads = definition.and_then(|it| it["uploads"].as_array());
    uploads.is_some_and(|it| it.iter().any(|upload| upload["providerId"] == target))
}

/// The last good builds exist, and each target that had an image still has one.
fn kept(name: &str, known: &Known, image: &ImageShot) -> Vec<String> {
    let mut problems = Vec::new();
    let good = known.good.difference(&known.deleted).count();
    let ready: Vec<&BuildNumber> = image
        .builds
        .iter()
        .filter(|(_, build)| build.is_ready())
        .map(|(number, _)| number)
        .collect();
    if ready.len() < good.min(2) {
        let (good, deleted) = (&known.good, &known.deleted);
        problems.push(format!(
            "I17: {name} keeps {ready:?} of the good builds {good:?}; people deleted {deleted:?}"
        ));
    }
    if known.deleted.is_empty() {
        for target in &known.served {
            let mut ready = image.builds.values().filter(|build| build.is_ready());
            if !ready.any(|build| build.ready_uploads().any(|(other, _)| other == target)) {
                problems.push(format!(
                    "I17: {name} has no image in use at {target} any more"
                ));
            }
        }
    }
    problems
}

fn unfinished(name: &str, known: &Known, image: &ImageShot) -> Vec<String> {
    let mut left = image.others.clone();
    let definition = known.definition.as_ref().unwrap();
    let keep = definition["keep"].as_u64().unwrap();
    let n_pinned = image.builds.values().filter(|it| it.is_pinned).count();
    let mut by_target: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, build) in &image.builds {
        if !build.is_ready() && !build.is_pinned {
            let state = build.record.as_ref().map(|it| it.state.as_str());
            left.push(format!("{name} {number} is {state:?}"));
        }
        for (target, _, record) in &build.uploads {
            let state = record.as_ref().map(|it| it.state.as_str());
            if state != Some("ready") {
                left.push(format!(
                    "the upload of {name} {number} to {target} is {state:?}"
                ));
            }
        }
        for (target, _) in build.ready_uploads() {
            *by_target.entry(target).or_default() += 1;
        }
    }
    let rejected = &image.standing.rejected;
    let mut newest_first = image.builds.iter().rev();
    let Some((number, newest)) = newest_first.find(|(it, _)| !rejected.contains(it)) else {
        // All were rolled back: the next one is built when the newest is old enough.
        if image.builds.is_empty() {
            left.push(format!("{name} has no build"));
        }
        return left;
    };
    for upload in definition["uploads"].as_array().unwrap() {
        let target = upload["providerId"].as_str().unwrap();
        let n_uploads = newest
            .uploads
            .iter()
            .filter(|(it, ..)| it == target)
            .count();
        if n_uploads != 1 {
            left.push(format!(
                "{name} {number} has {n_uploads} uploads to {target}"
            ));
        }
    }
    // The last ones of each target may be older than the newest builds, and so may what is
    // promoted, tried, in use at a target, or was rolled back last.
    let n_decided = 3 + by_target.len();
    let most = usize::try_from(keep).unwrap() * (1 + by_target.len()) + n_pinned + n_decided;
    if image.builds.len() > most {
        left.push(format!("{name} keeps {} builds", image.builds.len()));
    }
    left
}
