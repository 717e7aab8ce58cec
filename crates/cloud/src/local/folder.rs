//! The folder of one worker process: its identity, its log, and the records to find it after a
//! restart.
//!
//! The folder appears complete, by a rename, before the process is started: it records the intent.
//! Its file `alive` is locked at that time, and the process inherits the lock. So the lock tells
//! whether the process runs even if we died before its process id was stored. A folder starts at
//! most one process.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use domain::id::{LaunchToken, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use nix::fcntl::OFlag;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::process::Process;
use crate::{LogEnd, MAX_WORKER_LOG_BYTES};

/// The variable with the path of the identity file, by which a worker process is found again.
pub(super) const IDENTITY_VARIABLE: &str = "FLEETWRIGHT_IDENTITY";
/// Delete the folder of an ended process after this time.
const KEPT_MS: i64 = DAY_MS;
/// Entries in a folder of workers at most: more are a sign of an error.
const MAX_FOLDERS: usize = 100_000;
/// Delete an unfinished folder after this time.
const UNFINISHED_MS: i64 = HOUR_MS;
/// A larger log is cut: its end becomes `worker.log.1`.
const MAX_LOG_BYTES: u64 = 4 * 1024 * 1024;
const KEPT_LOG_BYTES: u64 = 1024 * 1024;
/// Longest record file: a larger file is not ours.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// Prefix of an unfinished folder; no worker id begins like this.
const UNFINISHED: &str = ".new-";

const IDENTITY: &str = "identity.json";
const LAUNCH: &str = "launch.json";
const ALIVE: &str = "alive";
const PROCESS: &str = "process.json";
const END: &str = "end.json";
const ENDED: &str = "ended.json";
const LOG: &str = "worker.log";
const OLD_LOG: &str = "worker.log.1";
const WORK: &str = "work";

/// The worker of the folder, and the launch that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LaunchRecord {
    pub(super) token: String,
    pub(super) worker_pool_id: String,
    pub(super) worker_group: String,
    pub(super) worker_id: String,
    /// Milliseconds since 1970.
    pub(super) made: i64,
    /// The command that is started.
    #[serde(default)]
    pub(super) command: Vec<String>,
    /// The image in which the worker runs, and how it is kept in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) isolation: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct EndRecord {
    /// Milliseconds since 1970.
    asked: i64,
}

#[derive(Serialize, Deserialize)]
struct EndedRecord {
    /// Milliseconds since 1970.
    at: i64,
    why: String,
}

pub(super) struct WorkerFolder {
    path: PathBuf,
}

/// A folder that was just made, so that only its maker can start the process.
pub(super) struct NewFolder {
    pub(super) folder: WorkerFolder,
    /// Locked; becomes the standard input of the process.
    pub(super) alive: File,
}

/// The state of the process.
#[derive(Debug)]
pub(super) enum ProcessState {
    /// It runs. Its process id may not be known yet.
    Alive(Option<Process>),
    Ended(String),
}

impl LaunchRecord {
    pub(super) fn key(&self) -> Option<WorkerKey> {
        Some(WorkerKey {
            pool_id: self.worker_pool_id.parse::<PoolId>().ok()?,
            group: self.worker_group.parse::<WorkerGroup>().ok()?,
            id: self.worker_id.parse::<WorkerId>().ok()?,
        })
    }

    pub(super) fn token(&self) -> Option<LaunchToken> {
        self.token.parse().ok()
    }
}

impl WorkerFolder {
    /// Makes the complete folder; `None`: it exists already. `identity` gets the path of the
    /// working folder.
    pub(super) fn create(
        root: &Path,
        record: &LaunchRecord,
        identity: impl FnOnce(&Path) -> Value,
    ) -> io::Result<Option<NewFolder>> {
        let path = root.join(&record.worker_id);
        if path.exists() {
            return Ok(None);
        }
        let name = format!(
            "{UNFINISHED}{}-{}-{}",
            record.made,
            std::process::id(),
            record.worker_id
        );
        let fresh = root.join(name);
        DirBuilder::new().mode(0o700).create(&fresh)?;
        let made = Self::fill(&fresh, record, &identity(&path.join(WORK)));
        let renamed = made.and_then(|alive| fs::rename(&fresh, &path).map(|()| alive));
        match renamed {
            Ok(alive) => Ok(Some(NewFolder {
                folder: Self { path },
                alive,
            })),
            Err(error) => {
                // A folder that cannot be deleted now is deleted later as an unfinished one.
                let _ = fs::remove_dir_all(&fresh);
                if path.exists() { Ok(None) } else { Err(error) }
            }
        }
    }

    fn fill(path: &Path, record: &LaunchRecord, identity: &Value) -> io::Result<File> {
        let alive = private()
            .create_new(true)
            .read(true)
            .open(path.join(ALIVE))?;
        alive.lock()?;
        write_json(path, IDENTITY, identity)?;
        write_json(path, LAUNCH, record)?;
        DirBuilder::new().mode(0o700).create(path.join(WORK))?;
        Ok(alive)
    }

    /// The path of the identity file of this worker.
    pub(super) fn identity_file_of(root: &Path, worker_id: &str) -> PathBuf {
        root.join(worker_id).join(IDENTITY)
    }

    /// The folder of this worker, if it exists.
    pub(super) fn of(root: &Path, worker: &WorkerKey) -> Option<Self> {
        let folder = Self {
            path: root.join(worker.id.as_str()),
        };
        let record = folder.record()?;
        (record.key().as_ref() == Some(worker)).then_some(folder)
    }

    /// The folders of all workers, or an error if one cannot be listed. Deletes unfinished folders.
    pub(super) fn all(root: &Path, now: Timestamp) -> io::Result<Vec<Self>> {
        Self::at_most(MAX_FOLDERS, root, now)
    }

    fn at_most(limit: usize, root: &Path, now: Timestamp) -> io::Result<Vec<Self>> {
        let mut folders = Vec::new();
        for (number, entry) in fs::read_dir(root)?.enumerate() {
            let path = entry?.path();
            if number >= limit {
                let root = root.display();
                return Err(io::Error::other(format!(
                    "{root} has more than {limit} entries: delete folders that contain {ENDED}, and files of other programs"
                )));
            }
            let name = path.file_name().and_then(|name| name.to_str());
            match name.and_then(|name| name.strip_prefix(UNFINISHED)) {
                Some(rest) => delete_unfinished(&path, rest, now),
                None => folders.push(Self { path }),
            }
        }
        Ok(folders)
    }

    pub(super) fn record(&self) -> Option<LaunchRecord> {
        read_json(&self.path, LAUNCH)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn identity_file(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn work_folder(&self) -> PathBuf {
        self.path.join(WORK)
    }

    /// Opens the file for the output of the process.
    pub(super) fn open_log(&self) -> io::Result<File> {
        private().append(true).create(true).open(self.log_file())
    }

    /// The end of the output of the process, also of the part that was moved.
    pub(super) fn log_end(&self) -> io::Result<LogEnd> {
        // A byte more than is passed on shows that there is more.
        let wanted = MAX_WORKER_LOG_BYTES + 1;
        let mut end = read_end(&self.log_file(), wanted)?;
        if end.len() < wanted {
            let mut before = read_end(&self.path.join(OLD_LOG), wanted - end.len())?;
            before.append(&mut end);
            end = before;
        }
        Ok(LogEnd::of(end))
    }

    pub(super) fn set_process(&self, process: &Process) -> io::Result<()> {
        write_json(&self.path, PROCESS, process)
    }

    pub(super) fn state(&self) -> io::Result<ProcessState> {
        if let Some(ended) = read_json::<EndedRecord>(&self.path, ENDED) {
            return Ok(ProcessState::Ended(ended.why));
        }
        if let Some(process) = read_json::<Process>(&self.path, PROCESS) {
            return Ok(if process.is_alive() {
                ProcessState::Alive(Some(process))
            } else {
                ProcessState::Ended("its process has ended".to_owned())
            });
        }
        let alive = File::open(self.path.join(ALIVE))?;
        match alive.try_lock() {
            Ok(()) => Ok(ProcessState::Ended(
                "its process was never started".to_owned(),
            )),
            Err(TryLockError::WouldBlock) => self.find_process(),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Finds the process when its id is not stored: we died before that, or the process is just
    /// being started.
    fn find_process(&self) -> io::Result<ProcessState> {
        let identity = self.identity_file();
        let identity = identity.to_string_lossy();
        // A command line that does not contain the path of the identity file may belong to another
        // process too.
        let command = self.record().map(|it| it.command).filter(|command| {
            let mut words = command.iter();
            words.any(|word| word.contains(&*identity))
        });
        let variable = (IDENTITY_VARIABLE, &*identity);
        let found = Process::started_with(&command.unwrap_or_default(), variable)?;
        if let Some(process) = &found {
            self.set_process(process)?;
        }
        Ok(ProcessState::Alive(found))
    }

    /// When the process was asked to end.
    pub(super) fn end_asked(&self) -> Option<Timestamp> {
        let end: EndRecord = read_json(&self.path, END)?;
        Some(Timestamp::from_millis(end.asked))
    }

    pub(super) fn set_end_asked(&self, now: Timestamp) -> io::Result<()> {
        let asked = now.as_millis();
        write_json(&self.path, END, &EndRecord { asked })
    }

    pub(super) fn set_ended(&self, now: Timestamp, why: &str) -> io::Result<()> {
        let ended = EndedRecord {
            at: now.as_millis(),
            why: why.to_owned(),
        };
        write_json(&self.path, ENDED, &ended)
    }

    /// Records the end of the process, and deletes the folder when that is long ago. Returns when
    /// the process ended, if the folder is kept.
    pub(super) fn record_end(&self, now: Timestamp, why: &str) -> io::Result<Option<Timestamp>> {
        let Some(ended) = read_json::<EndedRecord>(&self.path, ENDED) else {
            return self.set_ended(now, why).map(|()| Some(now));
        };
        if now.as_millis().saturating_sub(ended.at) > KEPT_MS {
            return self.delete().map(|()| None);
        }
        Ok(Some(Timestamp::from_millis(ended.at)))
    }

    /// A worker may have closed folders, and so does an overlay.
    pub(super) fn delete(&self) -> io::Result<()> {
        permissions::remove(&self.path)
    }

    /// Cuts the log of a running process if it is too large.
    pub(super) fn cut_log(&self) -> io::Result<()> {
        let opened = open_regular(OpenOptions::new().read(true).write(true), &self.log_file())?;
        let Some(mut log) = opened else {
            return Ok(());
        };
        let length = log.metadata()?.len();
        if length <= MAX_LOG_BYTES {
            return Ok(());
        }
        log.seek(SeekFrom::Start(length.saturating_sub(KEPT_LOG_BYTES)))?;
        let mut end = Vec::new();
        (&mut log).take(KEPT_LOG_BYTES).read_to_end(&mut end)?;
        self.replace_old_log(&end)?;
        // The process appends, so it continues at the new end.
        log.set_len(0)
    }

    /// By a new file: the process may have put a link in the place of the old one.
    fn replace_old_log(&self, end: &[u8]) -> io::Result<()> {
        let fresh = self.path.join(format!(".{OLD_LOG}"));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(&fresh)?;
        file.write_all(end)?;
        fs::rename(&fresh, self.path.join(OLD_LOG))
    }
}

/// Deletes a folder that was never renamed because we died.
fn delete_unfinished(path: &Path, name: &str, now: Timestamp) {
    let begun = name.split('-').next().and_then(|made| made.parse().ok());
    let begun = begun.unwrap_or(i64::MIN);
    if now.as_millis().saturating_sub(begun) > UNFINISHED_MS {
        // A folder that cannot be deleted now is deleted at the next look.
        let _ = fs::remove_dir_all(path);
    }
}

/// At most this many of the last bytes of a file; none if it does not exist.
fn read_end(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let Some(mut file) = open_regular(OpenOptions::new().read(true), path)? else {
        return Ok(Vec::new());
    };
    let max_bytes = max_bytes as u64;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max_bytes)))?;
    let mut end = Vec::new();
    file.take(max_bytes).read_to_end(&mut end)?;
    Ok(end)
}

/// `None`: it does not exist. The process can replace the files of its folder: a link is not
/// followed, for it may lead to files that the process cannot read, and a pipe is not waited for.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = match options.custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        let text = format!("{} is not a file", path.display());
        return Err(io::Error::other(text));
    }
    Ok(Some(file))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Writes the file atomically, also if we die.
pub(super) fn write_json(folder: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = folder.join(format!(".{name}.{}.{number}", std::process::id()));
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    let mut file = private().create(true).truncate(true).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&fresh, folder.join(name))
}

/// `None`: the file does not exist or is not ours.
pub(super) fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    let mut text = String::new();
    let file = open_regular(OpenOptions::new().read(true), &folder.join(name)).ok()??;
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    /// Making 100,000 folders takes longer than a test may.
    const LIMIT: usize = 20;

    #[test]
    fn more_folders_than_the_limit_are_an_error_that_says_what_to_do() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        for count in sizes_around("cloud::local::folder::MAX_FOLDERS", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            for number in 0..count {
                fs::create_dir(root.path().join(format!("w{number}"))).unwrap();
            }
            match WorkerFolder::at_most(LIMIT, root.path(), now) {
                Ok(folders) => {
                    assert!(count <= LIMIT, "{count} are too many");
                    assert_eq!(folders.len(), count);
                }
                Err(error) => {
                    assert!(count > LIMIT, "{count} are not too many");
                    let path = root.path().display();
                    let message = format!("{path} has more than 20 entries: delete folders");
                    assert!(error.to_string().starts_with(&message), "{error}");
                }
            }
            // The real limit leaves room for all of them.
            assert_eq!(WorkerFolder::all(root.path(), now).unwrap().len(), count);
        }
    }
}
