//! Removes files without a row, which a crash can leave behind.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use domain::id::TaskId;
use domain::time::{DAY_MS, Timestamp};

use super::artifact_folder::{LOG, if_exists, task_of};

/// A younger file may belong to a running upload.
const YOUNG_MS: i64 = DAY_MS;

#[derive(Debug, PartialEq, Eq)]
pub struct RunFolder {
    pub task_id: TaskId,
    pub run_id: u32,
    path: PathBuf,
}

/// The files that a run has by its rows.
#[derive(Debug, Default)]
pub struct KnownFiles {
    pub files: BTreeSet<String>,
    pub log: bool,
}

/// The task folders of a shard after this one, in order; at most `limit`.
pub fn list_tasks_after(shard: &Path, after: &str, limit: usize) -> io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for entry in entries(shard)? {
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

/// The runs in the folder of a task. Unknown entries are ignored.
pub fn list_runs(shard: &Path, folder: &str) -> io::Result<Vec<RunFolder>> {
    let Some(task_id) = task_of(folder) else {
        return Ok(Vec::new());
    };
    let mut runs = Vec::new();
    for entry in entries(&shard.join(folder))? {
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
    /// Removes old files that are not known; returns how many.
    pub fn remove_orphans(&self, known: &KnownFiles, now: Timestamp) -> io::Result<u64> {
        let mut n_removed = 0;
        for entry in entries(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_known = if name == LOG {
                known.log
            } else {
                known.files.contains(&name)
            };
            if !is_known && is_old(&entry, now)? {
                n_removed += u64::from(unlink(&entry.path())?);
            }
        }
        remove_empty_folders(&self.path);
        Ok(n_removed)
    }
}

/// Removes the file of a deleted row, and its folders if they are empty.
pub fn remove_file(file: &Path) -> io::Result<()> {
    if unlink(file)?
        && let Some(run) = file.parent()
    {
        remove_empty_folders(run);
    }
    Ok(())
}

/// `false`: the file did not exist.
fn unlink(file: &Path) -> io::Result<bool> {
    Ok(if_exists(fs::remove_file(file))?.is_some())
}

/// Removes the folders of a run and its task, if they are empty.
fn remove_empty_folders(run: &Path) {
    if fs::remove_dir(run).is_ok()
        && let Some(task) = run.parent()
    {
        let _ = fs::remove_dir(task);
    }
}

fn is_old(entry: &DirEntry, now: Timestamp) -> io::Result<bool> {
    let Some(metadata) = if_exists(entry.metadata())? else {
        return Ok(false);
    };
    let since = metadata
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(io::Error::other)?;
    let modified = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Ok(now.millis_since(modified) > YOUNG_MS)
}

/// The entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    Ok(if_exists(fs::read_dir(folder))?.into_iter().flatten())
}
