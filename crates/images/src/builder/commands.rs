//! Runs the commands of builds: below a supervisor of this machine, or as a test wants.

use std::path::Path;

use async_trait::async_trait;
use cloud::image::{
    BuildError, BuildOutcome, BuildRun, BuildSpec, SupervisorProgram, end_leftovers,
};
use tokio::sync::watch;

/// Runs the commands of builds.
#[async_trait]
pub trait Commands: Send + Sync {
    /// Makes the folder of the run and starts the command.
    async fn start(&self, spec: BuildSpec) -> Result<Box<dyn RunningCommand>, BuildError>;

    /// Kills the processes of a run that ended in an unusual way.
    async fn end_leftovers(&self, folder: &Path);
}

/// A command that runs. Dropping it ends the command with all its processes.
#[async_trait]
pub trait RunningCommand: Send {
    /// Bytes of output so far. Closed when the command has ended.
    fn progress(&self) -> watch::Receiver<u64>;

    fn cancel(&mut self);

    /// Waits for the end. The future may be dropped, and the call repeated.
    async fn wait(&mut self) -> BuildOutcome;
}

#[async_trait]
impl Commands for SupervisorProgram {
    async fn start(&self, spec: BuildSpec) -> Result<Box<dyn RunningCommand>, BuildError> {
        Ok(Box::new(BuildRun::start(spec, self).await?))
    }

    async fn end_leftovers(&self, folder: &Path) {
        end_leftovers(folder).await;
    }
}

#[async_trait]
impl RunningCommand for BuildRun {
    fn progress(&self) -> watch::Receiver<u64> {
        Self::progress(self)
    }

    fn cancel(&mut self) {
        Self::cancel(self);
    }

    async fn wait(&mut self) -> BuildOutcome {
        Self::wait(self).await
    }
}
