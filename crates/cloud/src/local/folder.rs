//! The folder of one worker process: its identity, its log, and what is needed to know it again after a restart.
//!
//! The folder appears complete, by a rename, before there is a process; that is the intent. Its file `alive` is locked
//! at that time, and the process inherits the lock: so as long as nobody could write down its number, the lock says
//! whether it is there. A folder starts one process, ever.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use domain::id::{LaunchToken, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::process::Process;

/// In the environment of each worker process: the path of its identity file. By this it is found again.
pub(super) const IDENTITY_VARIABLE: &str = "FLEETWRIGHT_IDENTITY";
/// The folder of a process that ended is deleted after this time.
const KEPT_MS: i64 = DAY_MS;
/// In a folder of workers with more entries than this something is wrong, and nobody counts on.
const MAX_FOLDERS: usize = 100_000;
/// A folder that was never finished is deleted after this time.
const UNFINISHED_MS: i64 = HOUR_MS;
/// A larger log is cut: its end becomes `worker.log.1`.
const MAX_LOG_BYTES: u64 = 4 * 1024 * 1024;
const KEPT_LOG_BYTES: u64 = 1024 * 1024;
/// Our own small files; a larger one is not ours.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// Begins the name of a folder that is not finished; no worker's id begins so.
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

/// Which worker the folder is of, and which launch made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LaunchRecord {
    pub(super) token: String,
    pub(super) worker_pool_id: String,
    pub(super) worker_group: String,
    pub(super) worker_id: String,
    /// Milliseconds.
    pub(super) made: i64,
    /// What is started.
    #[serde(default)]
    pub(super) command: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct EndRecord {
    /// Milliseconds.
    asked: i64,
}

#[derive(Serialize, Deserialize)]
struct EndedRecord {
    /// Milliseconds.
    at: i64,
    why: String,
}

pub(super) struct WorkerFolder {
    path: PathBuf,
}

/// A folder that is ready for its process; nobody else can start that.
pub(super) struct Claimed {
    pub(super) folder: WorkerFolder,
    /// Locked; becomes the standard input of the process.
    pub(super) alive: File,
}

/// What has become of the process.
#[derive(Debug)]
pub(super) enum Life {
    /// It is there. Its number may not be known yet.
    Alive(Option<Process>),
    Gone(String),
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

/// Makes the folder in which those of the workers are.
pub(super) fn make_root(root: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)
}

impl WorkerFolder {
    /// Makes the folder complete; `None`: it is there already. `identity` is made from the path of the working folder.
    pub(super) fn claim(
        root: &Path,
        record: &LaunchRecord,
        identity: impl FnOnce(&Path) -> Value,
    ) -> io::Result<Option<Claimed>> {
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
            Ok(alive) => Ok(Some(Claimed {
                folder: Self { path },
                alive,
            })),
            Err(problem) => {
                // What cannot be deleted now is deleted with what is left over.
                let _ = fs::remove_dir_all(&fresh);
                match path.exists() {
                    true => Ok(None),
                    false => Err(problem),
                }
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

    /// Where the identity file of this worker will be.
    pub(super) fn identity_file_of(root: &Path, worker_id: &str) -> PathBuf {
        root.join(worker_id).join(IDENTITY)
    }

    /// The folder of this worker, if there is one.
    pub(super) fn of(root: &Path, worker: &WorkerKey) -> Option<Self> {
        let folder = Self {
            path: root.join(worker.id.as_str()),
        };
        let record = folder.record()?;
        (record.key().as_ref() == Some(worker)).then_some(folder)
    }

    /// The folders of all workers, every one of them or an error; deletes what was never finished.
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
                    "{root} has more than {limit} entries: delete those that hold {ENDED}, and what is not ours"
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

    pub(super) fn identity_file(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn work_folder(&self) -> PathBuf {
        self.path.join(WORK)
    }

    /// For the output of the process.
    pub(super) fn open_log(&self) -> io::Result<File> {
        private().append(true).create(true).open(self.log_file())
    }

    pub(super) fn set_process(&self, process: &Process) -> io::Result<()> {
        write_json(&self.path, PROCESS, process)
    }

    pub(super) fn life(&self) -> io::Result<Life> {
        if let Some(ended) = read_json::<EndedRecord>(&self.path, ENDED) {
            return Ok(Life::Gone(ended.why));
        }
        if let Some(process) = read_json::<Process>(&self.path, PROCESS) {
            return Ok(match process.is_alive() {
                true => Life::Alive(Some(process)),
                false => Life::Gone("its process has ended".to_owned()),
            });
        }
        let alive = File::open(self.path.join(ALIVE))?;
        match alive.try_lock() {
            Ok(()) => Ok(Life::Gone("its process was never seen".to_owned())),
            Err(TryLockError::WouldBlock) => self.find_process(),
            Err(TryLockError::Error(problem)) => Err(problem),
        }
    }

    /// We died before the number of the process was written down, or it is being started this moment.
    fn find_process(&self) -> io::Result<Life> {
        let identity = self.identity_file();
        let identity = identity.to_string_lossy();
        // A command line that does not name the worker may be that of others as well.
        let command = self.record().map(|it| it.command).filter(|command| {
            let mut words = command.iter();
            words.any(|word| word.contains(&*identity))
        });
        let variable = (IDENTITY_VARIABLE, &*identity);
        let found = Process::started_with(&command.unwrap_or_default(), variable)?;
        if let Some(process) = &found {
            self.set_process(process)?;
        }
        Ok(Life::Alive(found))
    }

    /// When the process was told to end.
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

    /// Of one whose process is gone: notes when that was first seen, and deletes it when it has had its time.
    /// Returns since when it has ended, if it is kept.
    pub(super) fn tidy(&self, now: Timestamp, why: &str) -> io::Result<Option<Timestamp>> {
        let Some(ended) = read_json::<EndedRecord>(&self.path, ENDED) else {
            return self.set_ended(now, why).map(|()| Some(now));
        };
        if now.as_millis().saturating_sub(ended.at) > KEPT_MS {
            return self.delete().map(|()| None);
        }
        Ok(Some(Timestamp::from_millis(ended.at)))
    }

    pub(super) fn delete(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }

    /// Of one whose process is there: a log that has grown too large is cut.
    pub(super) fn cut_log(&self) -> io::Result<()> {
        let Ok(mut log) = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.log_file())
        else {
            return Ok(());
        };
        let length = log.metadata()?.len();
        if length <= MAX_LOG_BYTES {
            return Ok(());
        }
        log.seek(SeekFrom::Start(length.saturating_sub(KEPT_LOG_BYTES)))?;
        let mut end = Vec::new();
        (&mut log).take(KEPT_LOG_BYTES).read_to_end(&mut end)?;
        let old = private()
            .create(true)
            .truncate(true)
            .open(self.path.join(OLD_LOG));
        old?.write_all(&end)?;
        // The process appends, so it goes on at the new end.
        log.set_len(0)
    }
}

/// A folder that was begun and never renamed: we died over it.
fn delete_unfinished(path: &Path, name: &str, now: Timestamp) {
    let begun = name.split('-').next().and_then(|made| made.parse().ok());
    let begun = begun.unwrap_or(i64::MIN);
    if now.as_millis().saturating_sub(begun) > UNFINISHED_MS {
        // Not deleted now is deleted at the next look.
        let _ = fs::remove_dir_all(path);
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Whole or not at all, also when we die over it.
fn write_json(folder: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = folder.join(format!(".{name}.{}.{number}", std::process::id()));
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    let mut file = private().create(true).truncate(true).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&fresh, folder.join(name))
}

/// `None`: there is no such file, or it is not one of ours.
fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    let mut text = String::new();
    let file = File::open(folder.join(name)).ok()?;
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
    fn so_many_folders_are_all_listed_and_more_are_an_error_that_says_what_to_do() {
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
                Err(problem) => {
                    assert!(count > LIMIT, "{count} are not too many");
                    let path = root.path().display();
                    let told = format!("{path} has more than 20 entries: delete those");
                    assert!(problem.to_string().starts_with(&told), "{problem}");
                }
            }
            // In service there is room for as many again, and more.
            assert_eq!(WorkerFolder::all(root.path(), now).unwrap().len(), count);
        }
    }
}
