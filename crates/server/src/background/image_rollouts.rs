//! Advances the rollouts of images, and brings the launch configs of their pools up to date.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use api_client::with_causes;
use async_trait::async_trait;
use domain::id::ImageName;
use domain::image::CanaryEvidence;
use engine::images::ImageFacts;
use images::ImageTree;
use metrics::gauge;
use store::StoreError;

use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;
use crate::telemetry::{IMAGE_CANARY_EVIDENCE, IMAGE_CANARY_STARTS};

/// Images with a canary that are listed together.
const PAGE: u32 = 500;
/// All images are looked at in every this many activations.
const ROUNDS: u32 = 60;

/// Looks at the images that changed in the tree, and at those with a canary.
pub struct ImageRollouts {
    app: Arc<App>,
    /// The copy of the tree whose changes are known up to `seen`.
    tree: Weak<ImageTree>,
    seen: u64,
    n_rounds: u32,
}

impl ImageRollouts {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            tree: Weak::new(),
            seen: 0,
            n_rounds: 0,
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
        let mut due: BTreeSet<ImageName> = changes.images.into_iter().collect();
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
                return Ok(due);
            }
        }
    }
}

#[async_trait]
impl BackgroundTask for ImageRollouts {
    fn name(&self) -> String {
        "image_rollouts".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let images = self.app.tree.images();
        // Without a complete copy, nothing is known of builds.
        if let Some(images) = images.filter(|images| *images.revision().borrow() > 0) {
            for image in self.due(&images).await? {
                if let Err(error) = advance(&self.app, &images, &image).await {
                    // The next activation looks at all images again.
                    self.tree = Weak::new();
                    return Err(error);
                }
            }
        }
        let n_pools = engine::images::refresh_pools(&self.app.engine).await?;
        Ok(summary(&[("pools", n_pools as u64)]))
    }
}

/// Takes the next steps of one rollout, and shows builders what is used.
async fn advance(
    app: &App,
    images: &ImageTree,
    image: &ImageName,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
    if let Err(error) = images.mirror_standing(image, &rollout.standing).await {
        let text = with_causes(&error);
        tracing::warn!(%image, error = %text,
            "builders do not know yet which builds of {image} are used: {text}");
        return Err(error.into());
    }
    Ok(())
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
