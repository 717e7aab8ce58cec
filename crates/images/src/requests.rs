//! Requests of people about images: nodes that builders act on.

use std::iter;

use backplane::tree::{Lifetime, Op, TreeError, TreePath, lock_path};
use domain::id::ImageName;
use domain::image::{
    BuildNumber, BuildRecord, BuildRequest, BuildState, BuildStateError, ImageInUse, Step,
    WaitReason, image_in_use,
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

/// The build that a request leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedBuild {
    /// It runs already. `None`: it is the next one.
    pub running: Option<BuildNumber>,
    /// The newest build so far.
    pub newer_than: BuildNumber,
}

/// A build, and whether its builder holds the lock.
struct NewestBuild {
    number: BuildNumber,
    /// `None`: it cannot be read.
    record: Option<BuildRecord>,
    is_running: bool,
    /// A person wants it to end.
    is_cancelled: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("image {0} does not exist")]
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
    /// answers it runs already or is ready, another one follows. The first build of a definition
    /// meets all requests that come before it has ended.
    pub async fn request_build(
        &self,
        image: &ImageName,
        asker: &Asker,
    ) -> Result<RequestedBuild, RequestError> {
        self.check_image(image)?;
        let path = Place::Request(image.clone()).path()?;
        let counted_in = Place::Image(image.clone()).path()?;
        for _ in 0..ATTEMPTS {
            // Builds and requests count in its version, as each of them is a new node. It comes
            // first: a later build or request changes it.
            let counted = match self.tree().get(&counted_in).await {
                Err(TreeError::NoNode(_)) => return Err(RequestError::NoImage(image.clone())),
                node => node?.stat.version,
            };
            let newest = self.newest_build(image).await?;
            let requested = RequestedBuild {
                newer_than: newest.as_ref().map_or(BuildNumber(0), |it| it.number),
                running: None,
            };
            if let Some(newest) = &newest
                && self.is_first_of_definition(image, newest)
            {
                let running = Some(newest.number);
                return Ok(RequestedBuild {
                    running,
                    ..requested
                });
            }
            let count = Op::Set {
                path: counted_in.clone(),
                data: Vec::new(),
                expected: Some(counted),
            };
            let create = [Op::create(path.clone(), asker.note()?), count];
            let ops = match self.tree().exists(&path).await? {
                None => create.to_vec(),
                Some(stat) if self.is_answered(image, stat.created, newest.as_ref()) => {
                    iter::once(Op::delete(path.clone())).chain(create).collect()
                }
                Some(_) => return Ok(requested),
            };
            match self.write_together(&ops).await {
                Ok(()) => return Ok(requested),
                // Somebody else asked, a build began, or the request was cleared.
                Err(TreeError::BadVersion(_) | TreeError::NodeExists(_) | TreeError::NoNode(_)) => {
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(changing(image))
    }

    /// The newest build, as the tree has it now. The copy may be behind.
    async fn newest_build(&self, image: &ImageName) -> Result<Option<NewestBuild>, RequestError> {
        let builds = Place::Builds(image.clone()).path()?;
        let names = self.tree().children(&builds).await?;
        let numbers = names
            .iter()
            .filter_map(|name| name.parse::<BuildNumber>().ok());
        let Some(number) = numbers.max() else {
            return Ok(None);
        };
        let record = match self
            .tree()
            .get(&Place::Build(image.clone(), number).path()?)
            .await
        {
            // It was removed a moment ago.
            Err(TreeError::NoNode(_)) => None,
            node => BuildRecord::parse(&node?.data).ok(),
        };
        let is_building = |record: &&BuildRecord| record.state == BuildState::Building;
        let is_running = match record.as_ref().filter(is_building) {
            Some(record) => self.is_held(&builds, record.fence).await?,
            None => false,
        };
        let cancel = Place::Cancel(image.clone(), number).path()?;
        Ok(Some(NewestBuild {
            number,
            record,
            is_running,
            is_cancelled: self.tree().exists(&cancel).await?.is_some(),
        }))
    }

    /// Whether it is made from the present definition, from which no build is ready yet.
    fn is_first_of_definition(&self, image: &ImageName, newest: &NewestBuild) -> bool {
        let made_from = |record: &BuildRecord| record.build_hash.clone();
        let hash = newest.record.as_ref().and_then(made_from);
        let is_wanted = newest.is_running && !newest.is_cancelled;
        let is_first = self.image(image, |it| {
            let wanted = it.definition.as_ref().map(|it| it.definition.build_hash());
            let records = it.builds.values().filter_map(|build| build.record.as_ref());
            let mut ready = records.filter(|record| record.state == BuildState::Ready);
            hash.is_some() && hash == wanted && !ready.any(|record| made_from(record) == hash)
        });
        is_wanted && is_first == Some(true)
    }

    /// Whether the request of this time has its build.
    fn is_answered(&self, image: &ImageName, at: Timestamp, newest: Option<&NewestBuild>) -> bool {
        let is_for = |record: &BuildRecord| record.request == Some(at);
        let has_build = |newest: &NewestBuild| {
            let record = newest.record.as_ref().filter(|record| is_for(record));
            let is_ready = record.is_some_and(|record| record.state == BuildState::Ready);
            is_ready || (record.is_some() && (newest.is_running || newest.is_cancelled))
        };
        let is_ready = self.image(image, |it| {
            let mut records = it.builds.values().filter_map(|build| build.record.as_ref());
            records.any(|record| record.state == BuildState::Ready && is_for(record))
        });
        newest.is_some_and(has_build) || is_ready == Some(true)
    }

    /// Why no build begins now for a request, in words. `None`: it begins.
    pub fn why_no_build(
        &self,
        image: &ImageName,
        asked: &RequestedBuild,
        now: Timestamp,
    ) -> Option<String> {
        let is_begun = self.image(image, |it| {
            let newest = it.builds.keys().next_back();
            newest.is_some_and(|newest| *newest > asked.newer_than)
        });
        if is_begun == Some(true) {
            return None;
        }
        let mut view = self.view(image, now)?;
        // The copy may not show it yet.
        view.request.get_or_insert_with(|| BuildRequest {
            at: now,
            by: String::new(),
            reason: String::new(),
        });
        let is_running = self.image(image, |it| it.running().is_some());
        match view.next_build()? {
            // The lock is taken for the build that was asked for, which begins.
            Step::Wait {
                reason: WaitReason::Building { .. },
                ..
            } if is_running == Some(false) => None,
            Step::Wait { reason, .. } => Some(reason.to_string()),
            Step::Build { .. }
            | Step::Upload { .. }
            | Step::MarkBuildAbandoned { .. }
            | Step::MarkUploadAbandoned { .. }
            | Step::DeleteUpload { .. }
            | Step::DeleteBuild { .. }
            | Step::RemoveLeftover(_)
            | Step::ClearRequest { .. } => None,
        }
    }

    /// Whether the lock under which a record was written still exists. The record must be read
    /// first: its lock is older, so a lock that is missing now has ended for good. Nodepool writes
    /// no fence, so any lock may belong to its record.
    pub(crate) async fn is_held(
        &self,
        locked: &TreePath,
        fence: Option<u64>,
    ) -> Result<bool, TreeError> {
        let directory = lock_path(locked)?;
        let names = match self.tree().children(&directory).await {
            Err(TreeError::NoNode(_)) => return Ok(false),
            names => names?,
        };
        let Some(fence) = fence else {
            return Ok(!names.is_empty());
        };
        for name in names {
            match self.tree().get(&directory.join(&name)?).await {
                Ok(node) if u64::try_from(node.stat.created_by) == Ok(fence) => return Ok(true),
                Ok(_) | Err(TreeError::NoNode(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
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
