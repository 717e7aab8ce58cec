//! The builds that run in this process, for those who read their logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// Bytes of output so far. Closed when the command has ended.
    pub progress: watch::Receiver<u64>,
}

/// All builds that run in this process.
#[derive(Clone, Debug, Default)]
pub struct LiveBuilds(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    builds: Mutex<BTreeMap<(ImageName, BuildNumber), LiveBuild>>,
    /// The name of the builder of this process.
    builder: OnceLock<String>,
}

/// Ends the entry of a build when it is dropped.
#[derive(Debug)]
pub(crate) struct LiveEntry {
    builds: LiveBuilds,
    key: (ImageName, BuildNumber),
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

    pub(crate) fn enter(
        &self,
        image: &ImageName,
        number: BuildNumber,
        build: LiveBuild,
    ) -> LiveEntry {
        let key = (image.clone(), number);
        let mut builds = self.0.builds.lock().unwrap_or_else(PoisonError::into_inner);
        builds.insert(key.clone(), build);
        LiveEntry {
            builds: self.clone(),
            key,
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
