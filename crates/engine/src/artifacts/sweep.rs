//! Finds files that belong to nothing: what a crash left between a row and its file.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use domain::id::TaskId;
use domain::time::{DAY_MS, Timestamp};

use super::folder::{is_log, task_of};

/// A file that is younger may be on its way.
const YOUNG_MS: i64 = DAY_MS;

/// The files of one run.
#[derive(Debug, PartialEq, Eq)]
pub struct RunFolder {
    pub task_id: TaskId,
    pub run_id: u32,
    path: PathBuf,
}

/// What a run's rows say that there should be.
#[derive(Debug, Default)]
pub struct Wanted {
    pub files: BTreeSet<String>,
    pub log: bool,
}

/// The folders of tasks on a shelf, in order, after this one; at most so many.
pub fn tasks_after(shelf: &Path, after: &str, limit: usize) -> io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for entry in entries(shelf)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.as_str() > after {
            names.insert(name);
        }
        if names.len() > limit {
            names.pop_last();
        }
    }
    Ok(names.into_iter().collect())
}

/// The runs in the folder of a task. What we did not put there is not ours to look at.
pub fn runs_in(shelf: &Path, folder: &str) -> io::Result<Vec<RunFolder>> {
    let Some(task_id) = task_of(folder) else {
        return Ok(Vec::new());
    };
    let mut runs = Vec::new();
    for entry in entries(&shelf.join(folder))? {
        let entry = entry?;
        if let Ok(run_id) = entry.file_name().to_string_lossy().parse() {
            runs.push(RunFolder {
                task_id: task_id.clone(),
                run_id,
                path: entry.path(),
            });
        }
    }
    Ok(runs)
}

impl RunFolder {
    /// Removes what should not be there and is old enough; returns how many files that were.
    pub fn tidy(&self, wanted: &Wanted, now: Timestamp) -> io::Result<u64> {
        let mut n_removed = 0;
        for entry in entries(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_wanted = if is_log(&name) {
                wanted.log
            } else {
                wanted.files.contains(&name)
            };
            if !is_wanted && is_old(&entry, now)? {
                n_removed += u64::from(unlink(&entry.path())?);
            }
        }
        leave(&self.path);
        Ok(n_removed)
    }
}

/// Removes a file whose row has gone, and its folders if it was the last.
pub fn remove(file: &Path) -> io::Result<()> {
    if unlink(file)?
        && let Some(run) = file.parent()
    {
        leave(run);
    }
    Ok(())
}

/// `false`: somebody else was first.
fn unlink(file: &Path) -> io::Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// The folders of a run and of its task go when they are empty; otherwise that is no problem.
fn leave(run: &Path) {
    if fs::remove_dir(run).is_ok()
        && let Some(task) = run.parent()
    {
        let _ = fs::remove_dir(task);
    }
}

fn is_old(entry: &DirEntry, now: Timestamp) -> io::Result<bool> {
    let modified = match entry.metadata() {
        Ok(metadata) => metadata.modified()?,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(problem) => return Err(problem),
    };
    let since = modified
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(io::Error::other)?;
    let modified = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Ok(now.millis_since(modified) > YOUNG_MS)
}

/// None, if there is no such folder.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(problem) => Err(problem),
    }
}
