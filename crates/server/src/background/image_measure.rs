//! Counts builds and uploads of images, and measures the images in use, for the metrics.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use engine::measures::seconds;
use images::{EndedJob, EndedWork, ImageTree};
use metrics::{counter, gauge, histogram};
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;
use crate::telemetry::{
    IMAGE_AGE, IMAGE_BUILD_SECONDS, IMAGE_BUILDERS, IMAGE_BUILDS, IMAGE_BUILDS_RUNNING,
    IMAGE_REQUESTS, IMAGE_UPLOAD_SECONDS, IMAGE_UPLOADS,
};

/// The number of images with ages of their own.
const MAX_MEASURED: usize = 10_000;

/// Reads the copy of the tree, so that the work of all builders is counted.
pub struct ImageMeasure {
    app: Arc<App>,
    ended: EndedWork,
    /// The copy that was read last.
    read: Weak<ImageTree>,
}

impl ImageMeasure {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            ended: EndedWork::default(),
            read: Weak::new(),
        }
    }
}

#[async_trait]
impl BackgroundTask for ImageMeasure {
    fn name(&self) -> String {
        "image_measure".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let images = self.app.tree.images();
        // Without a complete copy, the counts would be too low.
        let Some(images) = images.filter(|images| *images.revision().borrow() > 0) else {
            return Ok(Value::Null);
        };
        if !std::ptr::eq(self.read.as_ptr(), Arc::as_ptr(&images)) {
            self.read = Arc::downgrade(&images);
            self.ended.restart();
        }
        for job in self.ended.take(&images, self.app.started) {
            count(job);
        }
        for age in images.ages(self.app.engine.clock.now(), MAX_MEASURED) {
            let labels = [
                ("imageId", age.image.to_string()),
                ("target", age.target.to_string()),
            ];
            gauge!(IMAGE_AGE, &labels).set(seconds(age.age_ms));
        }
        let (n_requested, n_building) = images.count_requested_and_building();
        gauge!(IMAGE_REQUESTS).set(number(n_requested));
        gauge!(IMAGE_BUILDS_RUNNING).set(number(n_building));
        gauge!(IMAGE_BUILDERS).set(number(images.builders().len()));
        Ok(Value::Null)
    }
}

fn count(job: EndedJob) {
    let took = seconds(job.took_ms);
    let (image, outcome) = (job.image.to_string(), job.outcome);
    match job.target {
        None => {
            counter!(IMAGE_BUILDS, "imageId" => image, "outcome" => outcome).increment(1);
            histogram!(IMAGE_BUILD_SECONDS, "outcome" => outcome).record(took);
        }
        Some(target) => {
            let provider = target.provider_id.to_string();
            counter!(IMAGE_UPLOADS, "imageId" => image, "target" => target.to_string(),
                "outcome" => outcome)
            .increment(1);
            histogram!(IMAGE_UPLOAD_SECONDS, "providerId" => provider, "outcome" => outcome)
                .record(took);
        }
    }
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
