//! Builds an image under its lock, and records the result.

use std::future::Future;
use std::iter;

use backplane::tree::{Lifetime, Lock, LockError, Op, OpResult, TreeError, TreePath};
use domain::id::ImageName;
use domain::image::{
    BuildLeft, BuildLog, BuildNumber, BuildRecord, BuildState, ImageDefinition, NewBuild, Step,
};
use serde_json::Value;

use super::Builder;
use super::job::{JobError, JobOutcome};
use crate::image_tree::OwnedView;
use crate::live_builds::LiveEntry;
use crate::paths::Place;

/// A build whose record is in the tree.
pub(super) struct Begun {
    pub(super) image: ImageName,
    pub(super) number: BuildNumber,
    pub(super) definition: ImageDefinition,
    pub(super) record: BuildRecord,
    path: TreePath,
}

/// Files, record and log of a build that ended.
pub(super) struct Made {
    pub(super) result: Result<Finished, BuildFailure>,
    pub(super) log: Option<BuildLog>,
    /// The log can be read here until the record names its place in the store.
    pub(super) entry: Option<LiveEntry>,
}

pub(super) struct Finished {
    pub(super) left: BuildLeft,
    /// The signed provenance record.
    pub(super) provenance: String,
}

pub(super) enum BuildFailure {
    Failed(String),
    /// This builder stops, so that another one builds it.
    Stopped,
}

impl Builder {
    pub(super) async fn build(&self, image: &ImageName) -> JobOutcome {
        let node = Place::Builds(image.clone()).path()?;
        let lock = self.lock(&node).await?;
        let built = self.build_under(&lock, &node, image).await;
        let released = lock.release().await;
        built?;
        Ok(released?)
    }

    async fn build_under(&self, lock: &Lock, node: &TreePath, image: &ImageName) -> JobOutcome {
        let fence = u64::try_from(lock.number()).unwrap_or_default();
        let shows = |it: &crate::ImageNode| it.build_lock().is_some_and(|it| it.fence == fence);
        let view = self.view_under_lock(image, shows).await?;
        // The holder of the lock knows that no other build of the image runs.
        let view = view.without_build_lock(fence).with_abandoned_builds();
        let counted = self.check_request(&view).await?;
        let marks = self.marks(image)?;
        let steps = view.steps();
        let Some(definition) = view.definition else {
            return Ok(());
        };
        let wanted = steps.into_iter().find_map(|step| {
            let Step::Build {
                reason,
                attempt,
                n_deaths,
                request,
                ..
            } = step
            else {
                return None;
            };
            Some((reason, attempt, n_deaths, request))
        });
        let Some((reason, attempt, n_deaths, request)) = wanted else {
            if !marks.is_empty() {
                lock.write(&marks).await?;
            }
            return Ok(());
        };
        let new = NewBuild {
            builder: self.settings.name.clone(),
            builder_id: self.disk.id.clone(),
            attempt,
            n_deaths,
            fence,
            build_hash: definition.build_hash(),
            reason: reason.to_string(),
            request,
        };
        let record = new.begin(self.parts.clock.now());
        let changes = marks.into_iter().chain([counted]).collect();
        let (number, path) = self.begin(lock, node, &record, changes).await?;
        tracing::info!(%image, build = %number, %reason, "building {image} {number}: {reason}");
        let begun = Begun {
            image: image.clone(),
            number,
            definition,
            record,
            path,
        };
        // A build disturbs nobody, so it goes on until the lock is lost for good.
        let made = run_until(lock.lost(), self.make(&begun)).await;
        let ended = match made {
            Some(made) => self.record_end(lock, &begun, made, fence).await,
            None => Err(LockError::Lost(node.clone()).into()),
        };
        self.remove_work(&begun).await;
        ended
    }

    /// Whether the request in the tree is that of the view. A build counts in the version of the
    /// image's node, as requests do: if one of them came first, the other is decided again.
    async fn check_request(&self, view: &OwnedView) -> Result<Op, JobError> {
        let path = Place::Image(view.name.clone()).path()?;
        // The version comes first: a request that follows changes it.
        let version = self.tree().get(&path).await?.stat.version;
        let request = Place::Request(view.name.clone()).path()?;
        let asked = self.tree().exists(&request).await?;
        if asked.map(|stat| stat.created) != view.request.as_ref().map(|request| request.at) {
            return Err(JobError::Busy);
        }
        Ok(Op::Set {
            path,
            data: Vec::new(),
            expected: Some(version),
        })
    }

    /// Notes that unfinished builds were abandoned. The caller holds the lock of builds.
    fn marks(&self, image: &ImageName) -> Result<Vec<Op>, JobError> {
        let now = self.parts.clock.now();
        let unfinished = self.images().image(image, |node| {
            let builds = node.builds.iter().filter_map(|(number, build)| {
                let record = build.record.clone()?;
                let is_unfinished = record.state == BuildState::Building;
                is_unfinished.then_some((*number, build.version, record))
            });
            builds.collect::<Vec<_>>()
        });
        let mut marks = Vec::new();
        for (number, version, record) in unfinished.unwrap_or_default() {
            marks.push(Op::Set {
                path: Place::Build(image.clone(), number).path()?,
                data: text(record.abandon(now)?.to_document()),
                expected: Some(version),
            });
        }
        Ok(marks)
    }

    /// Writes the record of a new build, together with these changes. Returns its number and its
    /// node.
    async fn begin(
        &self,
        lock: &Lock,
        node: &TreePath,
        record: &BuildRecord,
        changes: Vec<Op>,
    ) -> Result<(BuildNumber, TreePath), JobError> {
        let create = Op::CreateSequential {
            parent: node.clone(),
            prefix: String::new(),
            data: text(record.to_document()),
            lifetime: Lifetime::Persistent,
        };
        let ops: Vec<Op> = iter::once(create).chain(changes).collect();
        let results = match lock.write(&ops).await {
            // A request came meanwhile, or a record changed.
            Err(LockError::Tree(TreeError::Operation { source, .. }))
                if matches!(*source, TreeError::BadVersion(_)) =>
            {
                return Err(JobError::Busy);
            }
            written => written?,
        };
        let Some(OpResult::Created(path)) = results.into_iter().next() else {
            let error = TreeError::Unexpected("a create without its path".to_owned());
            return Err(error.into());
        };
        let number = path.name().parse();
        let number = number.map_err(|_| TreeError::Unexpected(path.to_string()))?;
        Ok((number, path))
    }

    async fn record_end(&self, lock: &Lock, begun: &Begun, made: Made, fence: u64) -> JobOutcome {
        let (image, number) = (&begun.image, begun.number);
        let now = self.parts.clock.now();
        let record = begun.record.clone();
        let (record, provenance) = match made.result {
            Ok(Finished { left, provenance }) => {
                (record.succeed(left, fence, now)?, Some(provenance))
            }
            Err(BuildFailure::Failed(error)) => {
                tracing::warn!(%image, build = %number, %error, "{image} {number} failed: {error}");
                (record.fail(error, made.log, fence, now)?, None)
            }
            Err(BuildFailure::Stopped) => (record.stop(fence, now)?, None),
        };
        let document = text(record.to_document());
        let set = Op::Set {
            path: begun.path.clone(),
            data: document.clone(),
            expected: Some(0),
        };
        let (ops, first) = match provenance {
            // First: a build without its record counts as failed.
            Some(provenance) => {
                let path = Place::Provenance(image.clone(), number).path()?;
                let create = Op::create(path, provenance.clone());
                (vec![create, set], provenance.into_bytes())
            }
            None => (vec![set], document),
        };
        self.write_result(lock, &ops, &first).await?;
        drop(made.entry);
        if record.state == BuildState::Ready {
            tracing::info!(%image, build = %number, "{image} {number} is ready");
        }
        Ok(())
    }
}

/// Runs work until this happens. `None`: it was stopped.
pub(super) async fn run_until<T>(
    end: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = end => None,
        done = work => Some(done),
    }
}

pub(super) fn text(document: Value) -> Vec<u8> {
    document.to_string().into_bytes()
}
