//! Build commands that only take time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cloud::image::{BuildError, BuildOutcome, BuildSpec, Checksum, LogSummary, OutputFile};
use domain::id::ImageName;
use domain::image::BuildNumber;
use images::{Commands, RunningCommand};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::monitor::{LiveRun, Monitor};
use testing::Chance;

pub(super) struct FakeCommands {
    pub(super) chance: Chance,
    pub(super) monitor: Arc<Monitor>,
    /// A command takes at most this long.
    pub(super) longest_ms: i64,
}

struct FakeCommand {
    spec: BuildSpec,
    time: Duration,
    fails: bool,
    cancelled: CancellationToken,
    progress: watch::Receiver<u64>,
    _run: LiveRun,
}

#[async_trait]
impl Commands for FakeCommands {
    async fn start(&self, spec: BuildSpec) -> Result<Box<dyn RunningCommand>, BuildError> {
        let (image, build) = of_folder(&spec.folder);
        let run = self.monitor.begin_build(&image, build).await;
        let longest = match self.chance.percent(50) {
            true => self.longest_ms / 100,
            false => self.longest_ms,
        };
        let millis = self.chance.between(0, longest);
        Ok(Box::new(FakeCommand {
            spec,
            time: Duration::from_millis(u64::try_from(millis).unwrap()),
            fails: !self.monitor.is_calm() && self.chance.percent(15),
            cancelled: CancellationToken::new(),
            progress: watch::channel(0).1,
            _run: run,
        }))
    }

    async fn end_leftovers(&self, _folder: &Path) {}
}

#[async_trait]
impl RunningCommand for FakeCommand {
    fn progress(&self) -> watch::Receiver<u64> {
        self.progress.clone()
    }

    fn cancel(&mut self) {
        self.cancelled.cancel();
    }

    async fn wait(&mut self) -> BuildOutcome {
        let is_cancelled = timeout(self.time, self.cancelled.cancelled()).await.is_ok();
        let result = match (is_cancelled, self.fails) {
            (true, _) => Err(BuildError::Cancelled),
            (false, true) => Err(BuildError::Failed(1)),
            (false, false) => Ok(self.outputs()),
        };
        BuildOutcome {
            result,
            exit_code: None,
            duration: self.time,
            peak_memory_kib: 0,
            log: LogSummary::default(),
        }
    }
}

impl FakeCommand {
    fn outputs(&self) -> Vec<OutputFile> {
        let outputs = self.spec.formats.iter().map(|format| OutputFile {
            format: format.clone(),
            path: self.spec.output_path().with_extension(format),
            checksum: Checksum {
                sha256: "ab".repeat(32),
                size_bytes: 1,
            },
        });
        outputs.collect()
    }
}

/// The folder of a run has the name of its build.
fn of_folder(folder: &Path) -> (ImageName, BuildNumber) {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let (image, build) = name.rsplit_once('-').unwrap();
    (image.parse().unwrap(), build.parse().unwrap())
}
