//! The images of the fake cloud.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use domain::launch::Cause;
use domain::time::Timestamp;

use super::outcome::Call;
use super::{DEFAULT_GROUP, FakeCloud};
use crate::{
    ImageError, ImageTarget, ImageUpload, OwnedImage, UploadState, UploadToken, UploadedImage,
};

/// Begins the id of each image.
pub(super) const PREFIX: &str = "fake-image-";
const FORMATS: [&str; 5] = ["raw", "qcow2", "vhd", "tar", "folder"];
/// A slow upload is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The outcome of one upload call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    Made,
    /// None is made, and the cloud reports this cause.
    Refused(Cause),
    /// The image is made, and the response is lost.
    AnswerLost,
    /// The request is lost, and none is made.
    CallLost,
    /// A part of the image is made, and the call fails. The next call completes it.
    HalfDone,
    /// The image is ready after this many milliseconds.
    Slow(i64),
    /// None is made, and the cloud says that it is ready, as this image. If `is_found`, it finds
    /// this image for the upload, as long as it exists.
    Lie {
        external_id: String,
        is_found: bool,
    },
}

/// The defects of an image, which its machines show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageDefect {
    /// The workers of its machines never start.
    pub never_registers: bool,
    /// Its machines take this much longer to boot.
    pub slower_boot_ms: i64,
    /// The part of tasks that fail on its machines, from 0 to 1. The test or rehearsal that runs
    /// tasks reads it.
    pub failing_tasks: f64,
    /// Tasks take this many times as long.
    pub slower_tasks: Option<f64>,
}

/// An image of the fake cloud, as tests see it.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeImage {
    pub external_id: String,
    pub token: UploadToken,
    pub name: String,
    pub format: String,
    pub region: String,
    pub metadata: BTreeMap<String, String>,
    pub sha256: String,
    /// `None`: only a part of it is here.
    pub ready: Option<Timestamp>,
    pub defect: ImageDefect,
}

#[derive(Default)]
pub(super) struct Images {
    images: BTreeMap<String, FakeImage>,
    outcomes: VecDeque<UploadOutcome>,
    /// The images that the cloud finds for uploads that made none.
    lies: BTreeMap<UploadToken, String>,
    /// Images that are listed once more, with these tokens.
    also_listed: Vec<(String, UploadToken)>,
    n_made: u64,
}

impl Images {
    pub(super) fn get(&self, external_id: &str) -> Option<&FakeImage> {
        self.images.get(external_id)
    }

    pub(super) fn behave(&mut self) {
        self.outcomes.clear();
        self.lies.clear();
        self.also_listed.clear();
    }

    fn of_token(&mut self, token: &UploadToken) -> Option<&mut FakeImage> {
        self.images.values_mut().find(|image| image.token == *token)
    }

    fn make(&mut self, upload: &ImageUpload<'_>, ready: Option<Timestamp>) {
        self.lies.remove(upload.token);
        if let Some(image) = self.of_token(upload.token) {
            if image.ready.is_none() {
                image.ready = ready;
            }
            return;
        }
        self.n_made += 1;
        // Each process has a cloud of its own, and records of all of them meet in one tree.
        let (number, token) = (self.n_made, upload.token.as_str());
        let part = token.get(..8).unwrap_or(token);
        let external_id = format!("{PREFIX}{number}-{part}");
        let image = FakeImage {
            external_id: external_id.clone(),
            token: upload.token.clone(),
            name: upload.name.to_owned(),
            format: upload.format.to_owned(),
            region: upload.region.unwrap_or(DEFAULT_GROUP).to_owned(),
            metadata: upload.metadata.clone(),
            sha256: upload.checksum.sha256.clone(),
            ready,
            defect: ImageDefect::default(),
        };
        self.images.insert(external_id, image);
    }
}

impl FakeImage {
    fn uploaded(&self) -> UploadedImage {
        UploadedImage {
            external_id: self.external_id.clone(),
            region: Some(self.region.clone()),
        }
    }
}

/// Scripts and queries.
impl FakeCloud {
    /// Sets the outcomes of the next uploads, in order.
    pub fn next_uploads(&self, outcomes: impl IntoIterator<Item = UploadOutcome>) {
        self.state().images.outcomes.extend(outcomes);
    }

    /// Sets the defects of an image. Holds for the machines that are launched from now on, and
    /// for the tasks of all its machines. Does nothing if the image does not exist.
    pub fn set_image_defect(&self, external_id: &str, defect: ImageDefect) {
        let mut state = self.state();
        if let Some(image) = state.images.images.get_mut(external_id) {
            image.defect = defect;
        }
    }

    /// The images, ordered by id, also incomplete ones.
    pub fn images(&self) -> Vec<FakeImage> {
        self.state().images.images.values().cloned().collect()
    }

    /// The defects of the image of this worker's machine.
    pub fn image_defect_of(&self, worker: &domain::id::WorkerKey) -> ImageDefect {
        let state = self.state();
        let machine = state.inventory.get(&worker.id);
        let image = machine.and_then(|machine| state.images.get(machine.image.as_deref()?));
        image.map(|image| image.defect).unwrap_or_default()
    }

    /// Lists an image once more from now on, with the token of another upload.
    pub fn list_also(&self, external_id: &str, token: UploadToken) {
        let listed = (external_id.to_owned(), token);
        self.state().images.also_listed.push(listed);
    }

    /// Deletes an image behind our back.
    pub fn lose_image(&self, external_id: &str) {
        self.state().images.images.remove(external_id);
    }
}

#[async_trait]
impl ImageTarget for FakeCloud {
    fn image_formats(&self) -> Vec<String> {
        FORMATS.map(str::to_owned).into()
    }

    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        let now = self.now();
        let mut state = self.state();
        state.begin(Call::UploadImage)?;
        let images = &mut state.images;
        let outcome = images.outcomes.pop_front().unwrap_or(UploadOutcome::Made);
        let lost = || ImageError::new(Cause::Lost, "the response was lost");
        match outcome {
            UploadOutcome::Refused(cause) => {
                return Err(ImageError::new(cause, "the script says so"));
            }
            UploadOutcome::CallLost => return Err(lost()),
            UploadOutcome::HalfDone => {
                images.make(upload, None);
                return Err(ImageError::new(
                    Cause::Unavailable,
                    "the upload was cut off",
                ));
            }
            UploadOutcome::AnswerLost => {
                images.make(upload, Some(now));
                return Err(lost());
            }
            UploadOutcome::Lie {
                external_id,
                is_found,
            } => {
                if is_found {
                    images
                        .lies
                        .insert(upload.token.clone(), external_id.clone());
                }
                return Ok(UploadState::Ready(UploadedImage {
                    external_id,
                    region: None,
                }));
            }
            UploadOutcome::Slow(millis) => images.make(upload, Some(now.plus_millis(millis))),
            UploadOutcome::Made => images.make(upload, Some(now)),
        }
        let image = images.of_token(upload.token);
        let image = image.ok_or_else(|| ImageError::new(Cause::Unavailable, "it was deleted"))?;
        if image.ready.is_some_and(|ready| ready <= now) {
            upload.progress.add(upload.checksum.size_bytes);
            return Ok(UploadState::Ready(image.uploaded()));
        }
        Ok(UploadState::Pending {
            status: "importing".to_owned(),
            done: None,
            call_after: LOOK_AGAIN,
        })
    }

    async fn find_image(
        &self,
        _region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let now = self.now();
        let mut state = self.state();
        state.begin(Call::FindImage)?;
        let lie = state.images.lies.get(token);
        if let Some(other) = lie.and_then(|id| state.images.images.get(id)) {
            return Ok(Some(other.uploaded()));
        }
        let image = state.images.of_token(token);
        let ready = image.filter(|image| image.ready.is_some_and(|ready| ready <= now));
        Ok(ready.map(|image| image.uploaded()))
    }

    async fn delete_image(
        &self,
        _region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        let mut state = self.state();
        state.begin(Call::DeleteImage)?;
        state.images.images.remove(external_id);
        Ok(())
    }

    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let now = self.now();
        let mut state = self.state();
        state.begin(Call::OwnedImages)?;
        let owned = |image: &FakeImage| OwnedImage {
            external_id: image.external_id.clone(),
            region: Some(image.region.clone()),
            token: Some(image.token.clone()),
            is_ready: image.ready.is_some_and(|ready| ready <= now),
        };
        let listed = state.images.images.values().map(owned);
        let also = state
            .images
            .also_listed
            .iter()
            .map(|(id, token)| OwnedImage {
                external_id: id.clone(),
                region: None,
                token: Some(token.clone()),
                is_ready: true,
            });
        Ok(listed.chain(also).collect())
    }
}
