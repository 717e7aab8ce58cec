//! The builds that run in this process, for those who read their logs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use domain::id::ImageName;
use domain::image::BuildNumber;
use tokio::sync::watch;

/// A build that runs.
#[derive(Clone, Debug)]
pub struct LiveBuild {
    pub log: PathBuf,
    /// The limit with which the log is written.
    pub max_log_bytes: u64,
    /// Bytes of the log so far. Closed when the record of the build says where its log is.
    pub progress: watch::Receiver<u64>,
}

/// All builds that run in this process.
#[derive(Clone, Debug, Default)]
pub struct LiveBuilds(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    builds: Mutex<BTreeMap<(ImageName, BuildNumber), LiveBuild>>,
    /// Counts the builds that began.
    n_begun: watch::Sender<u64>,
    /// The name of the builder of this process.
    builder: OnceLock<String>,
}

/// Ends the entry of a build when it is dropped.
#[derive(Debug)]
pub(crate) struct LiveEntry {
    builds: LiveBuilds,
    key: (ImageName, BuildNumber),
    progress: watch::Sender<u64>,
}

impl LiveEntry {
    /// Passes on how far the log has grown, until the caller drops it.
    pub(crate) async fn follow(&self, mut command: watch::Receiver<u64>) -> Infallible {
        while command.changed().await.is_ok() {
            let n_bytes = *command.borrow_and_update();
            self.progress.send_replace(n_bytes);
        }
        std::future::pending().await
    }

    /// The log is complete so far. Its last line is not counted by the command.
    pub(crate) fn add_length_of(&self, log: &Path) {
        if let Ok(metadata) = std::fs::metadata(log) {
            self.progress
                .send_modify(|known| *known = metadata.len().max(*known));
        }
    }
}

impl LiveBuilds {
    /// Whether the builder of this name works in this process.
    pub(crate) fn is_own(&self, builder: &str) -> bool {
        self.0.builder.get().is_some_and(|own| own == builder)
    }

    pub(crate) fn set_builder(&self, name: &str) {
        self.0.builder.get_or_init(|| name.to_owned());
    }

    pub fn get(&self, image: &ImageName, build: BuildNumber) -> Option<LiveBuild> {
        let builds = self.0.builds.lock().unwrap_or_else(PoisonError::into_inner);
        builds.get(&(image.clone(), build)).cloned()
    }

    /// Returns when the command of this build runs.
    pub(crate) async fn running(&self, image: &ImageName, build: BuildNumber) {
        let mut begun = self.0.n_begun.subscribe();
        // An error is impossible: the sender is ours.
        let _ = begun.wait_for(|_| self.get(image, build).is_some()).await;
    }

    pub(crate) fn enter(
        &self,
        image: &ImageName,
        number: BuildNumber,
        log: PathBuf,
        max_log_bytes: u64,
    ) -> LiveEntry {
        let key = (image.clone(), number);
        let (sender, progress) = watch::channel(0);
        let build = LiveBuild {
            log,
            max_log_bytes,
            progress,
        };
        let mut builds = self.0.builds.lock().unwrap_or_else(PoisonError::into_inner);
        builds.insert(key.clone(), build);
        drop(builds);
        self.0.n_begun.send_modify(|count| *count += 1);
        LiveEntry {
            builds: self.clone(),
            key,
            progress: sender,
        }
    }
}

impl Drop for LiveEntry {
    fn drop(&mut self) {
        let mut builds = self
            .builds
            .0
            .builds
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        builds.remove(&self.key);
    }
}
