//! The folders of a worker: one for each run of a task, deleted when the run has ended.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::api::Run;

/// Unique names: the content of these folders is deleted.
const TASKS: &str = "worker-tasks";
const LOGS: &str = "worker-logs";
const LOCK: &str = "worker.lock";
/// Maximum depth of nested folders that are reopened. Deeper ones are an attempt to prevent their
/// removal.
const MAX_DEPTH: u32 = 1_000;

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
        make(work_dir).map_err(broken(work_dir))?;
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
            make(path).map_err(broken(path))?;
        }
        Ok(folders)
    }

    /// Makes an empty folder for a run.
    pub(crate) fn make_for(&self, run: &Run) -> Result<PathBuf, UnusableFolder> {
        let path = self.path_of(run);
        remove(&path);
        make(&path).map_err(broken(&path))?;
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

fn make(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Deletes a folder or file with its content. Logs what cannot be deleted.
pub(crate) fn remove(path: &Path) {
    let mut removed = remove_at_once(path);
    if matches!(&removed, Err(problem) if problem.kind() == ErrorKind::PermissionDenied) {
        open_up(path, MAX_DEPTH);
        removed = remove_at_once(path);
    }
    if let Err(problem) = removed {
        tracing::warn!("cannot delete {}: {problem}", path.display());
    }
}

fn remove_at_once(path: &Path) -> std::io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(problem) => Err(problem),
    };
    match removed {
        Err(problem) if problem.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Restores our right to delete in folders that a task closed, down to this depth.
fn open_up(path: &Path, depth: u32) {
    if !path
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir())
    {
        return;
    }
    if let Err(problem) = std::fs::set_permissions(path, Permissions::from_mode(0o700)) {
        tracing::debug!("cannot change the mode of {}: {problem}", path.display());
        return;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path(), depth);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

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
    fn closed_folders_are_opened_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        let path = root.path().join("run");
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&kept, path.join("a/link")).unwrap();
        std::fs::set_permissions(path.join("a"), Permissions::from_mode(0o000)).unwrap();
        remove(&path);
        assert!(!path.exists());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn closed_folders_are_reopened_down_to_a_limit() {
        // The system does not allow paths of ten thousand folders.
        const LIMIT: usize = 20;
        for depth in sizes_around("worker::folders::MAX_DEPTH", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            let nested = |depth: usize| root.path().join("run").join(["d"].repeat(depth).join("/"));
            std::fs::create_dir_all(nested(depth)).unwrap();
            let set_mode = |depth: usize, mode: u32| {
                std::fs::set_permissions(nested(depth), Permissions::from_mode(mode)).unwrap();
            };
            for depth in (0..=depth).rev() {
                set_mode(depth, 0o000);
            }
            open_up(&root.path().join("run"), u32::try_from(LIMIT).unwrap());
            // Without root's rights, only the first closed folder can be read.
            for depth in 0..=depth.min(LIMIT + 1) {
                let mode = std::fs::metadata(nested(depth))
                    .unwrap()
                    .permissions()
                    .mode();
                let expected = if depth <= LIMIT { 0o700 } else { 0o000 };
                assert_eq!(mode & 0o777, expected, "{depth}");
            }
            for depth in 0..=depth {
                set_mode(depth, 0o700);
            }
        }
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
