//! This machine, and the worker processes on it: started, found again, looked at, ended.
//!
//! Everything here touches files and processes, and may take its time about it.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::launch::Cause;
use domain::time::{SECOND_MS, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use super::LocalSettings;
use super::folder::{self, Claimed, IDENTITY_VARIABLE, LaunchRecord, Life, WorkerFolder};
use super::process::Process;
use crate::identity::Tokens;
use crate::{
    CloudError, LaunchError, LaunchOrder, Launched, Owned, ProviderContext, SetupFailed, Sighting,
};

/// A process that was told to end has so long to do so.
pub(super) const GRACE_MS: i64 = 20 * SECOND_MS;
/// More machines than this are not made at a time.
pub(super) const MAX_MACHINES: u32 = 1_000;
/// Folders of workers that ended; when there are more, the oldest are deleted before their time.
pub(super) const MAX_ENDED: usize = 1_000;
/// What workers get of our own environment: nothing in it is a secret.
const INHERITED: [&str; 8] = [
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "RUST_LOG",
];
/// In a configured command: the path of the identity file.
const IDENTITY_PLACE: &str = "{identity}";
/// The group of workers on a machine whose name cannot be one.
const NAMELESS: &str = "local";
const MAX_GROUP_LENGTH: usize = 38;

pub(super) struct Host {
    pub(super) context: ProviderContext,
    pub(super) max_machines: u32,
    configured: Vec<String>,
    /// The command that is used; known once the provider is set up.
    command: OnceLock<Vec<String>>,
    pub(super) group: WorkerGroup,
    pub(super) tokens: Tokens,
    /// One launch at a time, so that none counts what another is about to start.
    launching: Mutex<()>,
    /// Children of ours whose end has not been written down yet.
    children: Mutex<HashSet<WorkerId>>,
    at_step: fn(Step),
}

/// What has just been done about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Intended,
    Started,
    Recorded,
}

/// A launch order that can be taken along to another thread.
pub(super) struct Order {
    token: LaunchToken,
    pool_id: PoolId,
    launch_config_id: LaunchConfigId,
    /// The variables that the launch config has for tasks.
    environment: BTreeMap<String, String>,
    pub(super) machines: u32,
    capacity_each: u32,
    root_url: String,
}

impl Order {
    pub(super) fn new(order: &LaunchOrder<'_>) -> Self {
        let environment = order.launch_config.configuration.get("env");
        let variables = environment.and_then(Value::as_object).into_iter().flatten();
        Self {
            token: order.token.clone(),
            pool_id: order.pool.id.clone(),
            launch_config_id: order.launch_config.id.clone(),
            environment: variables
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            machines: order.machines.min(MAX_MACHINES),
            capacity_each: order.capacity_each,
            root_url: order.root_url.to_owned(),
        }
    }
}

impl Host {
    pub(super) fn new(
        context: ProviderContext,
        settings: LocalSettings,
        at_step: fn(Step),
    ) -> Self {
        let cores = || {
            let cores = std::thread::available_parallelism();
            cores.map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
        };
        let name = nix::unistd::gethostname().unwrap_or_default();
        Self {
            max_machines: settings.max_machines.unwrap_or_else(cores),
            configured: settings.command,
            command: OnceLock::new(),
            group: group_named(&name.to_string_lossy()),
            tokens: Tokens::new(&context),
            launching: Mutex::default(),
            children: Mutex::default(),
            context,
            at_step,
        }
    }

    fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// The folder of all our workers' folders.
    fn root(&self) -> Option<PathBuf> {
        self.context.folder("local")
    }

    fn known_root(&self) -> io::Result<PathBuf> {
        self.root()
            .ok_or_else(|| io::Error::other("`data` names no folder"))
    }

    fn children(&self) -> MutexGuard<'_, HashSet<WorkerId>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_up(&self) -> Result<(), SetupFailed> {
        let failed = |what: String| move |problem| SetupFailed(format!("{what}: {problem}"));
        let root = self.root().ok_or_else(|| {
            let id = &self.context.id;
            SetupFailed(format!("provider {id} needs a folder for its workers: name one as `data` in the configuration"))
        })?;
        folder::make_root(&root).map_err(failed(format!("{} cannot be made", root.display())))?;
        Process::with_pid(std::process::id())
            .map_err(failed("processes cannot be told apart here".to_owned()))?;
        if self.command.get().is_none() {
            let command = match self.configured.is_empty() {
                true => own_command().map_err(failed("this program cannot be found".to_owned()))?,
                false => self.configured.clone(),
            };
            // Set up side by side: either of the two is right.
            let _ = self.command.set(command);
        }
        let owned = self.owned();
        owned.map_err(|problem| SetupFailed(format!("{}: {problem}", root.display())))?;
        Ok(())
    }

    pub(super) fn launch(self: &Arc<Self>, order: &Order) -> Result<Vec<Launched>, LaunchError> {
        let _alone = self
            .launching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let unknown = |problem: io::Error| LaunchError::Unknown(problem.to_string());
        let root = self.known_root().map_err(|problem| LaunchError::Refused {
            cause: Cause::Unavailable,
            problem: problem.to_string(),
        })?;
        let mut n_alive = self.count_alive(&root).map_err(unknown)?;
        let mut launched = Vec::new();
        let mut problem = None;
        for number in 0..order.machines {
            let record = self.record(&root, order, number);
            let is_known = root.join(&record.worker_id).exists();
            if !is_known && n_alive >= self.max_machines {
                let limit = self.max_machines;
                let text = format!("there are {n_alive} workers here already, and at most {limit}");
                problem.get_or_insert((Cause::Capacity, text));
                continue;
            }
            match self.start(&root, &record, order) {
                Ok(()) => {
                    n_alive += u32::from(!is_known);
                    launched.extend(launched_of(&record));
                }
                Err(failure) => {
                    let text = format!("a worker cannot be started: {failure}");
                    problem.get_or_insert((cause_of(&failure), text));
                }
            }
        }
        match problem {
            Some((cause, problem)) if launched.is_empty() => {
                Err(LaunchError::Refused { cause, problem })
            }
            _ => Ok(launched),
        }
    }

    fn record(&self, root: &Path, order: &Order, number: u32) -> LaunchRecord {
        let worker_id = format!("{}-{number}", order.token);
        let identity = WorkerFolder::identity_file_of(root, &worker_id);
        let identity = identity.to_string_lossy();
        let words = self.command.get().into_iter().flatten();
        LaunchRecord {
            command: words
                .map(|it| it.replace(IDENTITY_PLACE, &identity))
                .collect(),
            token: order.token.to_string(),
            worker_pool_id: order.pool_id.to_string(),
            worker_group: self.group.to_string(),
            worker_id,
            made: self.now().as_millis(),
        }
    }

    fn count_alive(&self, root: &Path) -> io::Result<u32> {
        let mut n_alive = 0;
        for folder in WorkerFolder::all(root, self.now())? {
            n_alive += u32::from(matches!(folder.life(), Ok(Life::Alive(_))));
        }
        Ok(n_alive)
    }

    /// Starts the process of this record, unless that was done before.
    fn start(
        self: &Arc<Self>,
        root: &Path,
        record: &LaunchRecord,
        order: &Order,
    ) -> io::Result<()> {
        let key = record
            .key()
            .ok_or_else(|| io::Error::other("its name cannot be one"))?;
        let identity = |work: &Path| self.identity(&key, order, work);
        let Some(Claimed { folder, alive }) = WorkerFolder::claim(root, record, identity)? else {
            return Ok(());
        };
        (self.at_step)(Step::Intended);
        let command = self.command(record, &folder, alive);
        // Marked beforehand: whoever looks must not tell of its end before the reason is known.
        self.children().insert(key.id.clone());
        let spawned = command.and_then(|mut command| command.spawn());
        let child = match spawned {
            Ok(child) => child,
            Err(problem) => {
                self.children().remove(&key.id);
                folder.delete()?;
                return Err(problem);
            }
        };
        (self.at_step)(Step::Started);
        // It is our child and has not been waited for: the number is still its own.
        let recorded = child
            .id()
            .ok_or_else(|| io::Error::other("it has no number"))
            .and_then(Process::with_pid)
            .and_then(|process| folder.set_process(&process));
        if let Err(problem) = recorded {
            tracing::warn!(worker.id = %key.id, "worker {key} runs, but that cannot be written down: {problem}");
        }
        (self.at_step)(Step::Recorded);
        self.wait_for(child, folder, key.id);
        Ok(())
    }

    /// Takes note of the child's end, so that it leaves no zombie and its reason is known.
    fn wait_for(
        self: &Arc<Self>,
        mut child: tokio::process::Child,
        folder: WorkerFolder,
        id: WorkerId,
    ) {
        let host = Arc::clone(self);
        tokio::spawn(async move {
            let ended = child.wait().await;
            let why = ended.map_or_else(|problem| problem.to_string(), end_of);
            let why = format!("{why}; see {}", folder.log_file().display());
            if let Err(problem) = folder.set_ended(host.now(), &why) {
                tracing::warn!(worker.id = %id, "the end of worker {id} cannot be written down: {problem}");
            }
            host.children().remove(&id);
        });
    }

    fn identity(&self, key: &WorkerKey, order: &Order, work: &Path) -> Value {
        json!({
            "rootUrl": order.root_url,
            "providerId": self.context.id.as_str(),
            "workerPoolId": key.pool_id.as_str(),
            "workerGroup": key.group.as_str(),
            "workerId": key.id.as_str(),
            "launchConfigId": order.launch_config_id.as_str(),
            "capacity": order.capacity_each,
            "proof": {"token": self.tokens.token(key).expose()},
            "staticSecret": self.tokens.static_secret(key).expose(),
            "workDir": work,
            "env": order.environment,
        })
    }

    /// The variables of a launch config are not for this process: it may be a script of another
    /// user, and `PATH` or `LD_PRELOAD` would run code as that user. They stand in the identity
    /// file, for the tasks of the worker.
    fn command(
        &self,
        record: &LaunchRecord,
        folder: &WorkerFolder,
        alive: std::fs::File,
    ) -> io::Result<Command> {
        let (program, arguments) = record
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("the provider is not set up"))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(
                INHERITED
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env(IDENTITY_VARIABLE, folder.identity_file())
            .current_dir(folder.work_folder())
            .process_group(0)
            .stdin(Stdio::from(alive))
            .stdout(folder.open_log()?)
            .stderr(folder.open_log()?);
        Ok(command)
    }

    /// A worker whose folder cannot be read has not been seen either way.
    pub(super) fn look(
        &self,
        keys: Vec<WorkerKey>,
    ) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let root = self.known_root().map_err(broken)?;
        let seen = |key: WorkerKey| {
            let Some(folder) = WorkerFolder::of(&root, &key) else {
                return self
                    .would_be_here(&key)
                    .then_some((key, Sighting::NotFound));
            };
            let sighting = match self.life(&folder, &key.id)? {
                Life::Alive(_) if folder.end_asked().is_some() => Sighting::Going,
                Life::Alive(_) => Sighting::Alive,
                Life::Gone(why) => Sighting::Gone(Some(why)),
            };
            Some((key, sighting))
        };
        Ok(keys.into_iter().filter_map(seen).collect())
    }

    /// Another host may have a provider of this name on the same database. Of a worker that bears its name and has no
    /// folder here we know nothing.
    fn would_be_here(&self, key: &WorkerKey) -> bool {
        key.group == self.group
    }

    /// A child of ours is there until its end has been written down. `None`: nobody can tell.
    fn life(&self, folder: &WorkerFolder, id: &WorkerId) -> Option<Life> {
        // Asked first: its end may be written down while the folder is read.
        let is_child = self.children().contains(id);
        match folder.life() {
            Ok(Life::Gone(_)) if is_child => Some(Life::Alive(None)),
            Ok(life) => Some(life),
            Err(problem) => {
                tracing::warn!(worker.id = %id, "the folder of worker {id} cannot be read: {problem}");
                None
            }
        }
    }

    /// Also keeps house: this is called now and then, and looks at every folder anyway.
    pub(super) fn owned(&self) -> Result<Vec<Owned>, CloudError> {
        let (now, root) = (self.now(), self.known_root().map_err(broken)?);
        let mut owned = Vec::new();
        let mut ended = Vec::new();
        for folder in WorkerFolder::all(&root, now).map_err(broken)? {
            let record = folder.record();
            let Some((record, machine)) = record.and_then(|it| launched_of(&it).map(|m| (it, m)))
            else {
                continue;
            };
            let id = machine.id.clone();
            let kept = match self.life(&folder, &id) {
                None => Ok(()),
                Some(Life::Gone(why)) => folder.tidy(now, &why).map(|kept| {
                    ended.extend(kept.map(|since| (since, folder)));
                }),
                Some(Life::Alive(_)) => {
                    owned.push(Owned {
                        token: record.token(),
                        pool_id: None,
                        machine,
                        sighting: None,
                    });
                    folder.cut_log()
                }
            };
            if let Err(problem) = kept {
                tracing::warn!(worker.id = %id, "the folder of worker {id} cannot be kept tidy: {problem}");
            }
        }
        forget_oldest(ended, MAX_ENDED);
        Ok(owned)
    }

    /// First asks the process to end, then, when it had its time, ends it.
    pub(super) fn end(&self, key: &WorkerKey) -> Result<(), CloudError> {
        let root = self.known_root().map_err(broken)?;
        let Some(folder) = WorkerFolder::of(&root, key) else {
            return match self.would_be_here(key) {
                true => Ok(()),
                false => Err(CloudError::Unavailable(format!(
                    "worker {key} is a process of host {}, whose server ends it",
                    key.group
                ))),
            };
        };
        let process = match folder.life().map_err(broken)? {
            Life::Gone(_) => return Ok(()),
            Life::Alive(Some(process)) => process,
            Life::Alive(None) => {
                let text =
                    format!("the process of worker {key} cannot be found; it is tried again");
                return Err(CloudError::Unavailable(text));
            }
        };
        let now = self.now();
        match folder.end_asked() {
            None => {
                folder.set_end_asked(now).map_err(broken)?;
                process.signal_group(Signal::SIGTERM).map_err(broken)
            }
            Some(asked) if now.millis_since(asked) >= GRACE_MS => {
                process.signal_group(Signal::SIGKILL).map_err(broken)
            }
            Some(_) => Ok(()),
        }
    }
}

/// Deletes the folders of the workers that ended first, until `limit` are left.
fn forget_oldest(mut ended: Vec<(Timestamp, WorkerFolder)>, limit: usize) {
    ended.sort_by_key(|(since, _)| *since);
    let n_excess = ended.len().saturating_sub(limit);
    for (_, folder) in ended.into_iter().take(n_excess) {
        // A folder that cannot be deleted, because its worker ran as another user, must not hide the workers that run.
        if let Err(problem) = folder.delete() {
            let log = folder.log_file();
            tracing::warn!(
                "the folder of {} cannot be deleted: {problem}",
                log.display()
            );
        }
    }
}

fn broken(problem: io::Error) -> CloudError {
    CloudError::Unavailable(problem.to_string())
}

fn launched_of(record: &LaunchRecord) -> Option<Launched> {
    let key = record.key()?;
    Some(Launched {
        group: key.group,
        id: key.id,
        provider_data: json!({}),
    })
}

fn cause_of(problem: &io::Error) -> Cause {
    use io::ErrorKind::{InvalidInput, NotFound, OutOfMemory, PermissionDenied, WouldBlock};
    let is_one_of = |kinds: &[io::ErrorKind]| kinds.contains(&problem.kind());
    if is_one_of(&[NotFound, PermissionDenied, InvalidInput]) {
        Cause::Configuration
    } else if is_one_of(&[WouldBlock, OutOfMemory]) {
        Cause::Capacity
    } else {
        Cause::Unavailable
    }
}

fn end_of(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

fn own_command() -> io::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let program = program
        .into_os_string()
        .into_string()
        .map_err(|_| io::Error::other("its path is not UTF-8"))?;
    let arguments = ["worker", "--identity", IDENTITY_PLACE].map(str::to_owned);
    Ok(std::iter::once(program).chain(arguments).collect())
}

/// A host's name as a worker group.
fn group_named(host: &str) -> WorkerGroup {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let name: String = host.chars().map(fits).take(MAX_GROUP_LENGTH).collect();
    name.parse()
        .unwrap_or_else(|_| NAMELESS.parse().expect("it is a group"))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn so_many_folders_of_the_dead_are_kept_and_they_are_the_youngest() {
        // A thousand of them take seconds.
        const LIMIT: usize = 20;
        let now = Timestamp::from_millis(1_790_000_000_000);
        for count in sizes_around("cloud::local::host::MAX_ENDED", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            let folder = |number: usize| root.path().join(number.to_string());
            for number in 0..count {
                std::fs::create_dir(folder(number)).unwrap();
            }
            // The higher the number, the younger.
            let dead = |one: WorkerFolder| {
                let name = one
                    .log_file()
                    .parent()
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .to_owned();
                let number: i64 = name.to_str().unwrap().parse().unwrap();
                (now.plus_millis(number), one)
            };
            let all = WorkerFolder::all(root.path(), now).unwrap();
            forget_oldest(all.into_iter().map(dead).collect(), LIMIT);
            let kept: Vec<_> = (0..count)
                .filter(|number| folder(*number).exists())
                .collect();
            let youngest = count.saturating_sub(LIMIT)..count;
            assert_eq!(kept, youngest.collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_own_command_is_this_program_as_a_worker() {
        let command = own_command().unwrap();
        assert_eq!(
            command[0],
            std::env::current_exe().unwrap().to_str().unwrap()
        );
        assert_eq!(command[1..], ["worker", "--identity", "{identity}"]);
    }

    #[test]
    fn any_host_name_becomes_a_group() {
        assert_eq!(group_named("ci-7.example.com").as_str(), "ci-7-example-com");
        assert_eq!(group_named(&"ü".repeat(50)).as_str(), "-".repeat(38));
        assert_eq!(group_named("").as_str(), "local");
    }
}
