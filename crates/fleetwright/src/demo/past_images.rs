//! The images of the demo: builders of the product build them, and its own test judges canaries.
//!
//! Only what the machines of a canary did is made up, since a canary takes hours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::slugid;
use anyhow::Context as _;
use api_client::FLEETWRIGHT;
use domain::id::{ImageName, WorkerKey};
use domain::image::{StoredTrial, TrialRecord, TrialRun, TrialStart};
use domain::time::{Clock as _, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use images::ImageTree;
use rand::RngExt as _;
use rand::rngs::StdRng;
use server::app::App;
use server::background::driver::BackgroundTask as _;
use server::background::{ImageMirror, ImageRollouts};
use store::StoreError;

use super::clouds::SceneClock;
use super::scene::{Act, ByGroup, CanaryScene, Scene, whole};
use crate::machine;

/// How often to look whether builds are ready, and for how long.
const LOOK: Duration = Duration::from_millis(20);
const MAX_LOOKS: u32 = 3_000;
/// How often each canary is judged: as many points has its course.
const JUDGEMENTS: u32 = 12;

pub(super) struct ImageStage {
    app: Arc<App>,
    tree: Arc<ImageTree>,
    rollouts: ImageRollouts,
    /// How many builds each image has, or is about to have.
    n_builds: BTreeMap<ImageName, usize>,
    /// Images with a build that was asked for and is not settled.
    open: Vec<ImageName>,
}

impl ImageStage {
    /// Waits until the server has read its tree.
    pub(super) async fn open(app: &Arc<App>) -> anyhow::Result<Self> {
        for _ in 0..MAX_LOOKS {
            let read = app.tree.images();
            if let Some(tree) = read.filter(|tree| *tree.revision().borrow() > 0) {
                return Ok(Self {
                    app: Arc::clone(app),
                    tree,
                    rollouts: ImageRollouts::new(Arc::clone(app)),
                    n_builds: BTreeMap::new(),
                    open: Vec::new(),
                });
            }
            machine::pause(LOOK).await;
        }
        anyhow::bail!("the tree of images did not open: {}", app.tree.problem())
    }

    /// Notes the build that follows an act on an image.
    pub(super) fn note(&mut self, act: &Act) {
        let [_, service, kind, name, ..] = act.call.as_slice() else {
            return;
        };
        if service != FLEETWRIGHT || kind != "image" {
            return;
        }
        if let Ok(image) = name.parse::<ImageName>() {
            *self.n_builds.entry(image.clone()).or_default() += 1;
            self.open.push(image);
        }
    }

    /// Waits for the noted builds and their uploads, and takes the steps that follow.
    pub(super) async fn settle(&mut self) -> anyhow::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut mirror = ImageMirror::new(Arc::clone(&self.app));
        mirror
            .activate()
            .await
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut n_looks = 0;
        while !self.open.iter().all(|image| self.is_ready(image)) {
            n_looks += 1;
            anyhow::ensure!(
                n_looks < MAX_LOOKS,
                "the images {:?} were not built",
                self.open
            );
            machine::pause(LOOK).await;
        }
        self.advance().await
    }

    /// Whether all builds of the image are ready at all targets.
    fn is_ready(&self, image: &ImageName) -> bool {
        let now = self.app.engine.clock.now();
        let Some(view) = self.tree.view_of_server(image, now) else {
            return false;
        };
        let n_targets = view
            .definition
            .map_or(0, |definition| definition.uploads.len());
        let is_ready = |build: &domain::image::BuildView| {
            let uploads = build.uploads.iter();
            let ready = uploads.filter(|upload| {
                let record = upload.record.as_ref();
                record.is_some_and(|it| it.state == domain::image::UploadState::Ready)
            });
            ready.count() >= n_targets
        };
        let n_ready = view.builds.iter().filter(|build| is_ready(build)).count();
        n_ready >= self.n_builds.get(image).copied().unwrap_or(0)
    }

    async fn advance(&mut self) -> anyhow::Result<()> {
        let advanced = self.rollouts.activate().await;
        advanced
            .map(drop)
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Lets the canaries of the settled images run, as the scene says, and judges them.
    pub(super) async fn judge(
        &mut self,
        scene: &Scene,
        clock: &SceneClock,
        random: &mut StdRng,
    ) -> anyhow::Result<()> {
        let since = clock.now();
        let mut open = Vec::new();
        for image in std::mem::take(&mut self.open) {
            // The first build of an image has no canary.
            let has_canary = self.n_builds.get(&image) > Some(&1);
            let canaries = scene.canaries.iter().filter(|_| has_canary);
            let of_image = canaries.filter(|canary| canary.image == image.as_str());
            open.extend(of_image.map(|canary| (image.clone(), canary)));
        }
        let mut looks = Vec::new();
        for (image, canary) in &open {
            let trials = trials(canary, image, since, random)?;
            let over_ms = canary.over_hours * HOUR_MS as f64;
            let mut before = since;
            for number in 1..=JUDGEMENTS {
                let at =
                    since.plus_millis(whole(over_ms * f64::from(number) / f64::from(JUDGEMENTS)));
                let is_new = |trial: &&StoredTrial| (before..at).contains(&trial.created);
                looks.push((at, trials.iter().filter(is_new).cloned().collect()));
                before = at;
            }
        }
        // Time only goes on.
        looks.sort_by_key(|(at, _)| *at);
        for (at, trials) in looks {
            clock.move_to(at);
            self.look(trials).await?;
        }
        Ok(())
    }

    /// Judges canaries with further machines of one of them.
    async fn look(&mut self, trials: Vec<StoredTrial>) -> anyhow::Result<()> {
        let written = self.app.engine.store.write("demo_canary", move |tx| {
            let names: Vec<ImageName> = trials.iter().map(|trial| trial.image.clone()).collect();
            let rollouts = store::image_rollouts::of(tx, &names)?;
            // An early verdict has ended the canary.
            let runs = |trial: &&StoredTrial| {
                let mut rollouts = rollouts.iter();
                rollouts.any(|it| it.image == trial.image && it.canary.is_some())
            };
            for trial in trials.iter().filter(runs) {
                store::canary_trials::write(tx, trial)?;
            }
            Ok::<_, StoreError>(())
        });
        written
            .await
            .context("cannot write the machines of a canary")?;
        self.advance().await
    }
}

/// The machines of both groups, evenly over the time of the canary.
fn trials(
    canary: &CanaryScene,
    image: &ImageName,
    since: Timestamp,
    random: &mut StdRng,
) -> anyhow::Result<Vec<StoredTrial>> {
    let ByGroup { canary: n, control } = canary.machines;
    let n_all = n + control;
    let every = n_all / n.max(1);
    let step_ms = canary.over_hours * HOUR_MS as f64 / f64::from(n_all + 1);
    let trial = |number: u32| {
        let is_canary = number.is_multiple_of(every);
        let created = since.plus_millis(whole(step_ms * f64::from(number + 1) * 0.9));
        let name = format!("i-{:012x}", random.random::<u64>() >> 16);
        let boots = canary.boot_seconds;
        let boot_seconds = if is_canary {
            boots.canary
        } else {
            boots.control
        };
        let boot_ms = whole((boot_seconds * SECOND_MS) as f64 * random.random_range(0.85..1.2));
        let fails = is_canary && random.random_bool(canary.failed);
        let duration_ms = random.random_range(MINUTE_MS..3 * MINUTE_MS);
        let run = TrialRun {
            task_id: slugid::nice(random).parse()?,
            run_id: 0,
            is_good: random.random_bool(0.97),
            resolved: created.plus_millis(boot_ms + duration_ms),
            duration_ms: Some(duration_ms),
        };
        let (start, ready_ms, runs) = if fails {
            (TrialStart::NeverRegistered, None, Vec::new())
        } else {
            (TrialStart::Good, Some(boot_ms), vec![run])
        };
        Ok(StoredTrial {
            image: image.clone(),
            worker: WorkerKey::parse(canary.pool.parse()?, "us-central1", &name)?,
            created,
            trial: TrialRecord {
                is_canary,
                start,
                ready_ms,
                runs,
            },
        })
    };
    (0..n_all).map(trial).collect()
}
