//! The folders of a worker: one for each run of a task, deleted when the run has ended.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use permissions::{create_private, make_private};

use crate::api::Run;

/// Unique names: the content of these folders is deleted.
const TASKS: &str = "worker-tasks";
const LOGS: &str = "worker-logs";
const LOCK: &str = "worker.lock";

/// The folders and logs of this worker's runs.
pub(crate) struct Folders {
    tasks: PathBuf,
    logs: PathBuf,
    /// Held until the worker ends.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum UnusableFolder {
    #[error("cannot use the folder {}", path.display())]
    Broken {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("another worker uses the folder {}: give each worker its own", .0.display())]
    Taken(PathBuf),
}

impl Folders {
    /// Makes the folders, and deletes what a killed process of this worker left in them.
    pub(crate) fn prepare(work_dir: &Path) -> Result<Self, UnusableFolder> {
        create_private(work_dir).map_err(broken(work_dir))?;
        let work_dir = std::path::absolute(work_dir).map_err(broken(work_dir))?;
        let lock = File::create(work_dir.join(LOCK)).map_err(broken(&work_dir))?;
        lock.try_lock().map_err(|problem| match problem {
            TryLockError::WouldBlock => UnusableFolder::Taken(work_dir.clone()),
            TryLockError::Error(source) => broken(&work_dir)(source),
        })?;
        let folders = Self {
            tasks: work_dir.join(TASKS),
            logs: work_dir.join(LOGS),
            _lock: lock,
        };
        for path in [&folders.tasks, &folders.logs] {
            remove(path);
            make_private(path).map_err(broken(path))?;
        }
        Ok(folders)
    }

    /// Makes an empty folder for a run.
    pub(crate) fn make_for(&self, run: &Run) -> Result<PathBuf, UnusableFolder> {
        let path = self.path_of(run);
        remove(&path);
        make_private(&path).map_err(broken(&path))?;
        Ok(path)
    }

    pub(crate) fn path_of(&self, run: &Run) -> PathBuf {
        self.tasks.join(name(run))
    }

    pub(crate) fn log_of(&self, run: &Run) -> PathBuf {
        self.logs.join(name(run))
    }
}

fn broken(path: &Path) -> impl Fn(std::io::Error) -> UnusableFolder {
    move |source| UnusableFolder::Broken {
        path: path.to_owned(),
        source,
    }
}

fn name(run: &Run) -> String {
    format!("{}-{}", run.task, run.number)
}

/// Deletes a folder or file with its content. Logs what cannot be deleted.
pub(crate) fn remove(path: &Path) {
    if let Err(problem) = permissions::remove(path) {
        tracing::warn!("cannot delete {}: {problem}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn run() -> Run {
        Run {
            task: "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap(),
            number: 3,
        }
    }

    #[test]
    fn each_run_starts_in_an_empty_folder_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::prepare(&root.path().join("work")).unwrap();
        let path = folders.make_for(&run()).unwrap();
        std::fs::write(path.join("left"), "x").unwrap();
        let again = folders.make_for(&run()).unwrap();
        assert_eq!(std::fs::read_dir(&again).unwrap().count(), 0);
        let mode = std::fs::metadata(&again).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn leftovers_of_a_killed_worker_are_deleted() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::prepare(root.path()).unwrap();
        let path = folders.make_for(&run()).unwrap();
        let taken = Folders::prepare(root.path()).err().unwrap();
        assert!(taken.to_string().contains("another worker"), "{taken}");
        assert!(path.exists());
        drop(folders);
        // A process that a test beside this one is starting has a copy of the lock for a moment.
        let mut attempts_left = 1_000_000;
        loop {
            match Folders::prepare(root.path()) {
                Err(UnusableFolder::Taken(_)) if attempts_left > 0 => attempts_left -= 1,
                prepared => break drop(prepared.unwrap()),
            }
            std::thread::yield_now();
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let problem = Folders::prepare(&file.join("work")).err().unwrap();
        assert!(problem.to_string().contains("file/work"), "{problem}");
    }
}
