//! Requests of people about images: nodes that builders act on.

use std::iter;

use backplane::tree::{Lifetime, Op, TreeError};
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, BuildState, BuildStateError, ImageInUse, image_in_use,
};
use domain::time::Timestamp;

use crate::image_tree::{ImageTree, Note, OwnedView};
use crate::mirror::text;
use crate::paths::Place;

/// Attempts to change what another process changes at the same time.
const ATTEMPTS: usize = 10;

/// The author of a request, and the reason.
#[derive(Clone, Debug)]
pub struct Asker {
    pub by: String,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("image {0} is not in the tree: it does not exist, or was created a moment ago")]
    NoImage(ImageName),
    #[error("image {image} has no build {build}")]
    NoBuild {
        image: ImageName,
        build: BuildNumber,
    },
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<backplane::tree::BadTreePath> for RequestError {
    fn from(error: backplane::tree::BadTreePath) -> Self {
        Self::Tree(error.into())
    }
}

impl Asker {
    fn note(&self) -> Result<Vec<u8>, TreeError> {
        text(&Note {
            at: Timestamp::from_millis(0),
            by: self.by.clone(),
            reason: self.reason.clone(),
        })
    }
}

impl ImageTree {
    /// Asks for a build. While a request waits, further ones change nothing. If a build that
    /// answers it runs already or is ready, another one follows.
    pub async fn request_build(
        &self,
        image: &ImageName,
        asker: &Asker,
    ) -> Result<(), RequestError> {
        self.check_image(image)?;
        let place = Place::Request(image.clone());
        let is_answered = self.image(image, |it| {
            let Some(request) = &it.request else {
                return false;
            };
            let running = it.running().map(|(number, _)| number);
            it.builds.iter().any(|(number, build)| {
                let record = build.record.as_ref();
                record.is_some_and(|record| {
                    let is_good = record.state == BuildState::Ready || running == Some(*number);
                    is_good && record.request == Some(request.at)
                })
            })
        });
        let path = place.path()?;
        let create = [Op::create(path.clone(), asker.note()?), count(image)?];
        if is_answered == Some(true) {
            let again: Vec<Op> = iter::once(Op::delete(path)).chain(create.clone()).collect();
            match self.tree().multi(&again).await {
                Ok(_) => return Ok(()),
                // It was answered meanwhile.
                Err(TreeError::Operation { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.write_together(&create).await {
            Ok(()) | Err(TreeError::NodeExists(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the request of this time, but none that was made since.
    pub async fn clear_request(&self, image: &ImageName, at: Timestamp) -> Result<(), TreeError> {
        let (counted, path) = (
            Place::Image(image.clone()).path()?,
            Place::Request(image.clone()).path()?,
        );
        // The count comes first: a request that follows changes it.
        let expected = self.tree().get(&counted).await?.stat.version;
        let request = self.tree().get(&path).await?;
        if request.stat.created != at {
            return Ok(());
        }
        let unchanged = Op::Check {
            path: counted,
            expected: Some(expected),
        };
        self.write_together(&[unchanged, Op::delete(path)]).await
    }

    /// Nothing is built or uploaded until the image is resumed.
    pub async fn pause(&self, image: &ImageName, asker: &Asker) -> Result<(), RequestError> {
        self.check_image(image)?;
        self.flag(&Place::Pause(image.clone()), asker).await
    }

    pub async fn resume(&self, image: &ImageName) -> Result<(), RequestError> {
        self.check_image(image)?;
        self.unflag(&Place::Pause(image.clone())).await
    }

    /// Keeps a build until it is unpinned.
    pub async fn pin(
        &self,
        image: &ImageName,
        build: BuildNumber,
        asker: &Asker,
    ) -> Result<(), RequestError> {
        self.record(image, build)?;
        self.flag(&Place::Pin(image.clone(), build), asker).await
    }

    pub async fn unpin(&self, image: &ImageName, build: BuildNumber) -> Result<(), RequestError> {
        self.record(image, build)?;
        self.unflag(&Place::Pin(image.clone(), build)).await
    }

    /// Ends a build that is being made.
    pub async fn cancel_build(
        &self,
        image: &ImageName,
        build: BuildNumber,
        asker: &Asker,
    ) -> Result<(), RequestError> {
        let record = self.record(image, build)?;
        if record.state != BuildState::Building {
            let state = record.state.as_str();
            return Err(RequestError::Refused(format!(
                "build {build} of {image} is {state}: there is nothing to cancel"
            )));
        }
        self.flag(&Place::Cancel(image.clone(), build), asker).await
    }

    /// Deletes a build with its uploads. The build from which machines start is not deleted.
    pub async fn delete_build(
        &self,
        image: &ImageName,
        build: BuildNumber,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let view = self.view(image, now);
        let view = view.ok_or_else(|| RequestError::NoImage(image.clone()))?;
        if let Some(target) = starts_from(&view, build) {
            return Err(RequestError::Refused(format!(
                "machines of {target} start from build {build} of {image}: promote or roll back to \
                 another one first"
            )));
        }
        for _ in 0..ATTEMPTS {
            let path = Place::Build(image.clone(), build).path()?;
            let node = match self.tree().get(&path).await {
                Err(TreeError::NoNode(_)) => return Err(no_build(image, build)),
                node => node?,
            };
            let record = BuildRecord::parse(&node.data);
            let record = record.map_err(|error| RequestError::Refused(error.to_string()))?;
            let deleted = match record.delete(now) {
                Ok(deleted) => deleted,
                Err(BuildStateError::State {
                    from: "deleting", ..
                }) => return Ok(()),
                Err(error) => {
                    return Err(RequestError::Refused(format!("{error}: cancel it first")));
                }
            };
            let data = text(&deleted.to_document())?;
            match self.tree().set(&path, &data, Some(node.stat.version)).await {
                Err(TreeError::BadVersion(_)) => {}
                set => return Ok(set.map(drop)?),
            }
        }
        Err(changing(image))
    }

    fn check_image(&self, image: &ImageName) -> Result<(), RequestError> {
        let is_defined = self.image(image, |it| it.definition.is_some());
        match is_defined {
            Some(true) => Ok(()),
            Some(false) | None => Err(RequestError::NoImage(image.clone())),
        }
    }

    fn record(&self, image: &ImageName, build: BuildNumber) -> Result<BuildRecord, RequestError> {
        let record = self.image(image, |it| it.builds.get(&build)?.record.clone());
        let record = record.ok_or_else(|| RequestError::NoImage(image.clone()))?;
        record.ok_or_else(|| no_build(image, build))
    }

    async fn flag(&self, place: &Place, asker: &Asker) -> Result<(), RequestError> {
        let (path, note) = (place.path()?, asker.note()?);
        match self.tree().create(&path, &note, Lifetime::Persistent).await {
            Ok(_) | Err(TreeError::NodeExists(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the error of the operation that failed.
    pub(crate) async fn write_together(&self, ops: &[Op]) -> Result<(), TreeError> {
        match self.tree().multi(ops).await {
            Ok(_) => Ok(()),
            Err(TreeError::Operation { source, .. }) => Err(*source),
            Err(error) => Err(error),
        }
    }

    async fn unflag(&self, place: &Place) -> Result<(), RequestError> {
        match self.tree().delete(&place.path()?, None).await {
            Ok(()) | Err(TreeError::NoNode(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Counts a request in the version of the image's node. The version of the request itself does not
/// tell two requests apart, as each is a new node.
fn count(image: &ImageName) -> Result<Op, TreeError> {
    Ok(Op::Set {
        path: Place::Image(image.clone()).path()?,
        data: Vec::new(),
        expected: None,
    })
}

fn no_build(image: &ImageName, build: BuildNumber) -> RequestError {
    let image = image.clone();
    RequestError::NoBuild { image, build }
}

fn changing(image: &ImageName) -> RequestError {
    RequestError::Refused(format!(
        "{image} changed {ATTEMPTS} times meanwhile: try again"
    ))
}

/// A target whose machines start from the build.
fn starts_from(view: &OwnedView, build: BuildNumber) -> Option<String> {
    let targets = view
        .definition
        .iter()
        .flat_map(|definition| &definition.uploads);
    let mut targets = targets.filter(|target| {
        let ImageInUse { in_use, canary } = image_in_use(&view.builds, &target.id, &view.standing);
        [in_use, canary]
            .into_iter()
            .flatten()
            .any(|upload| upload.build == build)
    });
    targets.next().map(|target| target.id.to_string())
}
