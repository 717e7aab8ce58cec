//! Advances the rollouts of images, and brings the launch configs of their pools up to date.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use api_client::with_causes;
use async_trait::async_trait;
use domain::id::{ImageName, PoolId};
use domain::image::CanaryEvidence;
use engine::images::ImageFacts;
use images::ImageTree;
use metrics::gauge;
use store::StoreError;

use super::backoff::Backoffs;
use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;
use crate::telemetry::{IMAGE_CANARY_EVIDENCE, IMAGE_CANARY_STARTS};

/// Images with a canary that are listed together.
const PAGE: u32 = 500;
/// All images are looked at in every this many activations.
const ROUNDS: u32 = 60;
/// After this many images failed, the others wait for the next activation: the cause may be common,
/// such as the tree, and each failure may take the time of a limit.
const MAX_FAILURES: usize = 10;

/// Looks at the images that changed in the tree, and at those with a canary. An image or a pool
/// that fails is tried again after a pause, and hinders no other.
pub struct ImageRollouts {
    app: Arc<App>,
    /// The copy of the tree whose changes are known up to `seen`.
    tree: Weak<ImageTree>,
    seen: u64,
    n_rounds: u32,
    /// Images that changed, and were not advanced since.
    changed: BTreeSet<ImageName>,
    failing_images: Backoffs<ImageName>,
    failing_pools: Backoffs<PoolId>,
}

impl ImageRollouts {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            tree: Weak::new(),
            seen: 0,
            n_rounds: 0,
            changed: BTreeSet::new(),
            failing_images: Backoffs::default(),
            failing_pools: Backoffs::default(),
        }
    }

    /// The images to look at now.
    async fn due(&mut self, images: &Arc<ImageTree>) -> Result<BTreeSet<ImageName>, StoreError> {
        self.n_rounds += 1;
        let is_same = Weak::as_ptr(&self.tree) == Arc::as_ptr(images);
        if !is_same || self.n_rounds >= ROUNDS {
            (self.tree, self.seen, self.n_rounds) = (Arc::downgrade(images), 0, 0);
        }
        let changes = images.changed_since(self.seen);
        self.seen = changes.revision;
        self.changed.extend(changes.images);
        let mut due = self.changed.clone();
        let mut after: Option<ImageName> = None;
        loop {
            let from = after.clone();
            let read = self
                .app
                .engine
                .store
                .read("image_rollout_canaries", move |tx| {
                    store::image_rollouts::list_with_canary(tx, from.as_ref(), PAGE)
                });
            let page: Vec<ImageName> = read.await?;
            let is_last = page.len() < PAGE as usize;
            after = page.last().cloned();
            due.extend(page);
            if is_last {
                let now = self.app.engine.clock.now();
                due.retain(|image| !self.failing_images.must_wait(image, now));
                return Ok(due);
            }
        }
    }

    /// Advances the images that are due. Returns the first error.
    async fn advance_images(
        &mut self,
        images: &Arc<ImageTree>,
    ) -> Result<Option<TaskError>, StoreError> {
        let mut first = None;
        let mut n_failed = 0;
        for image in self.due(images).await? {
            match advance(&self.app, images, &image).await {
                Ok(()) => {
                    self.changed.remove(&image);
                    self.failing_images.succeeded(&image);
                }
                Err(error) => {
                    let (now, random) = (self.app.engine.clock.now(), &self.app.engine.random);
                    if self.failing_images.failed(image.clone(), now, random) {
                        tracing::warn!(%image, "the rollout of {image} failed: {}", text(&error));
                    }
                    // Also if it has a canary no more.
                    self.changed.insert(image);
                    first.get_or_insert(error);
                    n_failed += 1;
                }
            }
            if n_failed == MAX_FAILURES {
                break;
            }
        }
        let changed = &self.changed;
        self.failing_images
            .keep_only(|image| changed.contains(image));
        Ok(first)
    }

    /// Brings pools up to date. Returns how many, and the first error.
    async fn refresh_pools(&mut self) -> Result<(usize, Option<TaskError>), StoreError> {
        let engine = &self.app.engine;
        let (now, random) = (engine.clock.now(), &engine.random);
        let failing = &self.failing_pools;
        let round =
            engine::images::refresh_pools(engine, |pool| failing.must_wait(pool, now)).await?;
        let mut waiting: BTreeSet<PoolId> = round.postponed.into_iter().collect();
        let mut first = None;
        for (pool, error) in round.failed {
            if self.failing_pools.failed(pool.clone(), now, random) {
                tracing::warn!(pool.id = %pool, "{}", with_causes(&error));
            }
            waiting.insert(pool);
            first.get_or_insert(TaskError::from(error));
        }
        self.failing_pools.keep_only(|pool| waiting.contains(pool));
        Ok((round.n_refreshed, first))
    }
}

type TaskError = Box<dyn std::error::Error + Send + Sync>;

fn text(error: &TaskError) -> String {
    with_causes(error.as_ref())
}

#[async_trait]
impl BackgroundTask for ImageRollouts {
    fn name(&self) -> String {
        "image_rollouts".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let images = self.app.tree.images();
        // Without a complete copy, nothing is known of builds.
        let failed = match images.filter(|images| *images.revision().borrow() > 0) {
            Some(images) => {
                let advanced = self.advance_images(&images).await;
                advanced.unwrap_or_else(|error| Some(error.into()))
            }
            None => None,
        };
        // Pools use what was decided before, also if nothing can be decided now.
        let (n_pools, failed_pool) = self.refresh_pools().await?;
        match failed.or(failed_pool) {
            Some(error) => Err(text(&error).into()),
            None => Ok(summary(&[("pools", n_pools as u64)])),
        }
    }
}

/// Takes the next steps of one rollout, and shows builders what is used.
async fn advance(app: &App, images: &ImageTree, image: &ImageName) -> Result<(), TaskError> {
    let now = app.engine.clock.now();
    let Some(facts) = facts(images, image, now) else {
        return Ok(());
    };
    let rollout = engine::images::advance(&app.engine, Arc::new(facts), now).await?;
    if let Some(evidence) = rollout
        .canary
        .as_ref()
        .and_then(|run| run.evidence.as_ref())
    {
        measure(image, evidence);
    }
    let mirrored = images.mirror_standing(image, &rollout.standing).await;
    mirrored.map_err(|error| {
        let text = with_causes(&error);
        format!("builders do not know yet which builds of {image} are used: {text}").into()
    })
}

/// Sets the metrics of a canary that runs. They are forgotten some time after its end.
fn measure(image: &ImageName, evidence: &CanaryEvidence) {
    let groups = [("canary", evidence.canary), ("control", evidence.control)];
    for (group, known) in groups {
        let n_failed = known.never_registered + known.never_claimed + known.refused;
        let outcomes = [
            ("pending", known.pending),
            ("good", known.good),
            ("failed", n_failed),
        ];
        for (outcome, n_machines) in outcomes {
            let image = image.to_string();
            gauge!(IMAGE_CANARY_STARTS, "imageId" => image, "group" => group, "outcome" => outcome)
                .set(n_machines);
        }
    }
    for (verdict, share) in [("worse", evidence.worse), ("as-good", evidence.as_good)] {
        gauge!(IMAGE_CANARY_EVIDENCE, "imageId" => image.to_string(), "verdict" => verdict)
            .set(share);
    }
}

/// The image in the tree; `None`: it has no definition there.
pub(crate) fn facts(
    images: &ImageTree,
    image: &ImageName,
    now: domain::time::Timestamp,
) -> Option<ImageFacts> {
    let view = images.view_of_server(image, now)?;
    Some(ImageFacts {
        definition: view.definition?,
        builds: view.builds,
        standing: view.standing,
    })
}
