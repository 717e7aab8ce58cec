//! The common parts of jobs: their locks, their errors, and writes whose answer was lost.

use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{Lock, LockError, Op, Tree, TreeError, TreePath};
use cloud::image::ArtifactError;
use domain::id::ImageName;
use domain::image::{BuildStateError, UploadStateError};
use tokio::time::timeout;

use super::Builder;
use super::agenda::Job;
use crate::image_tree::{ImageNode, OwnedView};

/// Pause between two attempts to write a result.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// The copy shows our own lock within this time, or the connection is bad.
const SYNC_LIMIT: Duration = Duration::from_secs(10);

/// `Ok`: it was done, or is not needed any more.
pub(super) type JobOutcome = Result<(), JobError>;

/// A job could not be done, and is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error("another builder was faster")]
    Busy,
    #[error("the tree did not show our own lock in time")]
    NotInSync,
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    BuildState(#[from] BuildStateError),
    #[error(transparent)]
    UploadState(#[from] UploadStateError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error("the provider cannot delete the image: {0}")]
    Provider(String),
    #[error("{0}")]
    Other(String),
}

impl From<backplane::tree::BadTreePath> for JobError {
    fn from(error: backplane::tree::BadTreePath) -> Self {
        Self::Tree(error.into())
    }
}

impl JobError {
    pub(super) fn log(&self, job: &Job) {
        let (image, job) = (job.image(), job.kind());
        if self.is_usual() {
            tracing::debug!(%image, ?job, "somebody else was faster: {self}");
        } else {
            tracing::warn!(%image, ?job, "it is tried again: {self}");
        }
    }

    /// Whether it happens where several builders work.
    fn is_usual(&self) -> bool {
        let is_gone = matches!(
            self,
            Self::Tree(TreeError::NoNode(_) | TreeError::NodeExists(_))
                | Self::Lock(LockError::NoNode(_))
        );
        self.is_contention() || is_gone
    }

    /// Another builder did it, or is about to. This says nothing about the next attempt.
    pub(super) fn is_contention(&self) -> bool {
        matches!(self, Self::Busy | Self::Tree(TreeError::BadVersion(_)))
    }
}

impl Builder {
    pub(super) async fn carry_out(&self, job: &Job) -> JobOutcome {
        match job {
            Job::Build(image) => self.build(image).await,
            Job::Upload(image, build, target) => self.upload(image, *build, target).await,
            Job::Tidy(image, step) => self.tidy(image, step).await,
        }
    }

    pub(super) fn tree(&self) -> &Arc<dyn Tree> {
        self.images().tree()
    }

    pub(super) async fn lock(&self, node: &TreePath) -> Result<Lock, JobError> {
        let lock = Lock::try_acquire(self.tree(), node, &self.settings.name).await?;
        lock.ok_or(JobError::Busy)
    }

    /// The image, as it is under a lock that the copy shows. Whatever others did before is in it.
    pub(super) async fn view_under_lock(
        &self,
        image: &ImageName,
        shows_lock: impl Fn(&ImageNode) -> bool,
    ) -> Result<OwnedView, JobError> {
        let shows_lock = |node: Option<&ImageNode>| node.is_some_and(&shows_lock);
        if !self.images().wait_for(image, SYNC_LIMIT, shows_lock).await {
            return Err(JobError::NotInSync);
        }
        let now = self.parts.clock.now();
        let view = self.images().view(image, now);
        view.ok_or(JobError::NotInSync)
    }

    /// Writes a result under the lock. If the connection is lost, waits for it, as long as the lock
    /// may be held. `expected` is the data that the first operation leaves in its node.
    pub(super) async fn write_result(
        &self,
        lock: &Lock,
        ops: &[Op],
        expected: &[u8],
    ) -> Result<(), JobError> {
        loop {
            match lock.write(ops).await {
                Ok(_) => return Ok(()),
                Err(LockError::Tree(error)) if error.is_temporary() => {
                    // The pause ends early with the lock.
                    let _ = timeout(WRITE_PAUSE, lock.lost()).await;
                    if !lock.certain_again().await {
                        return self.written_before(ops, expected, error.into()).await;
                    }
                }
                Err(error) => return self.written_before(ops, expected, error.into()).await,
            }
        }
    }

    /// Whether an earlier attempt succeeded without its answer. Otherwise, this is the error.
    async fn written_before(&self, ops: &[Op], expected: &[u8], error: JobError) -> JobOutcome {
        if let Some(path) = ops.first().map(Op::path)
            && let Ok(node) = self.tree().get(path).await
            && node.data == expected
        {
            return Ok(());
        }
        Err(error)
    }
}
