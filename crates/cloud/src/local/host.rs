//! This machine as a host of worker processes: starts, finds, looks at and ends them.
//! Everything here blocks on files and processes.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use domain::id::{WorkerGroup, WorkerId, WorkerKey};
use domain::launch::Cause;
use domain::time::{SECOND_MS, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use super::LocalSettings;
use super::folder::{IDENTITY_VARIABLE, LaunchRecord, NewFolder, ProcessState, WorkerFolder};
use super::order::Order;
use super::process::Process;
use super::rooted::{Isolation, Setuid};
use crate::identity::Tokens;
use crate::{
    CloudError, ConfiguredRegion, CostPerHour, LaunchError, LaunchedMachine, MachineEnd,
    OwnedMachine, ProviderContext, SetupError, Sighting,
};

/// Time that a process has to end after SIGTERM.
pub(super) const GRACE_MS: i64 = 20 * SECOND_MS;
/// Folders of ended workers that are kept at most; the oldest above this are deleted early.
pub(super) const MAX_ENDED: usize = 1_000;
/// Variables of our environment that workers get. None holds a secret.
const INHERITED: [&str; 8] = [
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "RUST_LOG",
];
/// Stands for the path of the identity file in a configured command.
const IDENTITY_PLACEHOLDER: &str = "{identity}";
/// The name of the folder of worker folders.
const KIND: &str = "local";
/// The group of workers on a machine whose host name cannot be a group.
const DEFAULT_GROUP: &str = "local";
const MAX_GROUP_LENGTH: usize = 38;

pub(super) struct Host {
    pub(super) context: ProviderContext,
    pub(super) max_machines: u32,
    configured: Vec<String>,
    pub(super) cost: CostPerHour,
    pub(super) region: Option<ConfiguredRegion>,
    /// The command that is used; set when the provider is set up.
    command: OnceLock<Vec<String>>,
    /// How workers are kept in their images; set when the first one is launched.
    pub(super) isolation: OnceLock<Isolation>,
    pub(super) setuid: Setuid,
    pub(super) group: WorkerGroup,
    pub(super) tokens: Tokens,
    /// Allows one launch at a time, so that each counts the processes of the others.
    launching: Mutex<()>,
    /// Our child processes whose end has not been recorded yet.
    children: Mutex<HashSet<WorkerId>>,
    at_step: fn(Step),
}

/// The steps of starting a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Intended,
    Started,
    Recorded,
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
            cost: settings.cost_per_hour,
            region: settings.region,
            command: OnceLock::new(),
            isolation: OnceLock::new(),
            setuid: match settings.image_setuid {
                true => Setuid::On,
                false => Setuid::Off,
            },
            group: group_named(&name.to_string_lossy()),
            tokens: Tokens::new(&context),
            launching: Mutex::default(),
            children: Mutex::default(),
            context,
            at_step,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// Whether workers are this program, and not a configured one.
    pub(super) fn runs_own_program(&self) -> bool {
        self.configured.is_empty()
    }

    /// The folder that holds the worker folders.
    fn root(&self) -> Option<PathBuf> {
        self.context.folder(KIND)
    }

    pub(super) fn known_root(&self) -> io::Result<PathBuf> {
        self.root()
            .ok_or_else(|| io::Error::other("the configuration has no `data` folder"))
    }

    fn children(&self) -> MutexGuard<'_, HashSet<WorkerId>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_up(&self) -> Result<(), SetupError> {
        let failed = |what: String| move |error| SetupError(format!("{what}: {error}"));
        let root = self.root().ok_or_else(|| {
            let id = &self.context.id;
            SetupError(format!(
                "provider {id} needs a folder for its workers: set `data` in the configuration"
            ))
        })?;
        self.context
            .make_folder(KIND)
            .map_err(failed(format!("cannot create {}", root.display())))?;
        self.close_images()
            .map_err(failed("cannot close the folder of images".to_owned()))?;
        Process::with_pid(std::process::id()).map_err(failed("cannot read /proc".to_owned()))?;
        if self.command.get().is_none() {
            let command = if self.configured.is_empty() {
                own_command().map_err(failed("cannot find the path of this program".to_owned()))?
            } else {
                self.configured.clone()
            };
            // Two set-ups may run at the same time; either result is valid.
            let _ = self.command.set(command);
        }
        let owned = self.owned();
        owned.map_err(|error| SetupError(format!("{}: {error}", root.display())))?;
        Ok(())
    }

    pub(super) fn launch(
        self: &Arc<Self>,
        order: &Order,
    ) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let _guard = self
            .launching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let unknown = |error: io::Error| LaunchError::Unknown(error.to_string());
        let root = self.known_root().map_err(|error| LaunchError::Refused {
            cause: Cause::Unavailable,
            error: error.to_string(),
        })?;
        self.check_image(order)?;
        let mut n_alive = self.count_alive(&root).map_err(unknown)?;
        let mut launched = Vec::new();
        let mut error = None;
        for number in 0..order.machines {
            let record = self.record(&root, order, number);
            let is_known = root.join(&record.worker_id).exists();
            if !is_known && n_alive >= self.max_machines {
                let limit = self.max_machines;
                let text = format!("{n_alive} workers run on this host, and the limit is {limit}");
                error.get_or_insert((Cause::Capacity, text));
                continue;
            }
            match self.start(&root, &record, order) {
                Ok(()) => {
                    n_alive += u32::from(!is_known);
                    launched.extend(launched_of(&record));
                }
                Err(failure) => {
                    let text = format!("cannot start a worker: {failure}");
                    error.get_or_insert((cause_of(&failure), text));
                }
            }
        }
        match error {
            Some((cause, error)) if launched.is_empty() => {
                Err(LaunchError::Refused { cause, error })
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
                .map(|it| it.replace(IDENTITY_PLACEHOLDER, &identity))
                .collect(),
            token: order.token.to_string(),
            worker_pool_id: order.pool_id.to_string(),
            worker_group: self.group.to_string(),
            worker_id,
            made: self.now().as_millis(),
            isolation: order
                .image
                .as_ref()
                .map(|_| self.isolation(root).as_str().to_owned()),
            image: order.image.clone(),
        }
    }

    fn count_alive(&self, root: &Path) -> io::Result<u32> {
        let mut n_alive = 0;
        for folder in WorkerFolder::all(root, self.now())? {
            n_alive += u32::from(matches!(folder.state(), Ok(ProcessState::Alive(_))));
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
            .ok_or_else(|| io::Error::other("the worker's name is not valid"))?;
        let environment = self.task_environment(record, order);
        let identity = |work: &Path| self.identity(&key, order, &environment, work);
        let Some(NewFolder { folder, alive }) = WorkerFolder::create(root, record, identity)?
        else {
            return Ok(());
        };
        (self.at_step)(Step::Intended);
        let command = self.command(record, &folder, alive);
        // Added before the start: `look` must not report the end before its reason is recorded.
        self.children().insert(key.id.clone());
        let spawned = command.and_then(|mut command| command.spawn());
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                self.children().remove(&key.id);
                folder.delete()?;
                return Err(error);
            }
        };
        (self.at_step)(Step::Started);
        // The child has not been waited for, so its process id is still its own.
        let recorded = child
            .id()
            .ok_or_else(|| io::Error::other("the process has no id"))
            .and_then(Process::with_pid)
            .and_then(|process| folder.set_process(&process));
        if let Err(error) = recorded {
            tracing::warn!(worker.id = %key.id, "worker {key} runs, but its process id cannot be stored: {error}");
        }
        (self.at_step)(Step::Recorded);
        self.wait_for(child, folder, key.id);
        Ok(())
    }

    /// Waits for the child and records its end, so that it leaves no zombie and its reason is
    /// known.
    fn wait_for(
        self: &Arc<Self>,
        mut child: tokio::process::Child,
        folder: WorkerFolder,
        id: WorkerId,
    ) {
        let host = Arc::clone(self);
        tokio::spawn(async move {
            let ended = child.wait().await;
            let why = ended.map_or_else(|error| error.to_string(), end_of);
            let why = format!("{why}; see {}", folder.log_file().display());
            if let Err(error) = folder.set_ended(host.now(), &why) {
                tracing::warn!(worker.id = %id, "cannot record the end of worker {id}: {error}");
            }
            host.children().remove(&id);
        });
    }

    fn identity(
        &self,
        key: &WorkerKey,
        order: &Order,
        environment: &BTreeMap<String, String>,
        work: &Path,
    ) -> Value {
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
            "env": environment,
        })
    }

    /// Leaves out the variables of the launch config. This process may be a script that runs as
    /// another user, and `PATH` or `LD_PRELOAD` would run code as that user. The variables are in
    /// the identity file, for the tasks of the worker.
    fn command(
        &self,
        record: &LaunchRecord,
        folder: &WorkerFolder,
        alive: std::fs::File,
    ) -> io::Result<Command> {
        let words = self.words(record, folder)?;
        let (program, arguments) = words
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
            .envs(self.image_environment(record))
            .env(IDENTITY_VARIABLE, folder.identity_file())
            .current_dir(folder.work_folder())
            .process_group(0)
            .stdin(Stdio::from(alive))
            .stdout(folder.open_log()?)
            .stderr(folder.open_log()?);
        Ok(command)
    }

    /// A worker whose folder cannot be read is left out.
    pub(super) fn look(
        &self,
        keys: Vec<WorkerKey>,
    ) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let root = self.known_root().map_err(unavailable)?;
        let seen = |key: WorkerKey| {
            let Some(folder) = WorkerFolder::of(&root, &key) else {
                return self
                    .would_be_here(&key)
                    .then_some((key, Sighting::NotFound));
            };
            let sighting = match self.state(&folder, &key.id)? {
                ProcessState::Alive(_) if folder.end_asked().is_some() => Sighting::Ending,
                ProcessState::Alive(_) => Sighting::Alive,
                ProcessState::Ended(why) => Sighting::Ended(MachineEnd::because(Some(why))),
            };
            Some((key, sighting))
        };
        Ok(keys.into_iter().filter_map(seen).collect())
    }

    /// Other hosts may share the database and the provider. Of their workers we know nothing.
    fn would_be_here(&self, key: &WorkerKey) -> bool {
        key.group == self.group
    }

    pub(super) fn may_have(&self, key: &WorkerKey) -> bool {
        let root = self.root();
        self.would_be_here(key) || root.is_some_and(|root| WorkerFolder::of(&root, key).is_some())
    }

    /// Our child counts as running until its end is recorded. `None`: the state is unknown.
    fn state(&self, folder: &WorkerFolder, id: &WorkerId) -> Option<ProcessState> {
        // Read first: the end may be recorded while the folder is read.
        let is_child = self.children().contains(id);
        match folder.state() {
            Ok(ProcessState::Ended(_)) if is_child => Some(ProcessState::Alive(None)),
            Ok(life) => Some(life),
            Err(error) => {
                tracing::warn!(worker.id = %id, "cannot read the folder of worker {id}: {error}");
                None
            }
        }
    }

    /// Lists the running workers. Also records ends, cuts logs and deletes old folders, since it
    /// reads every folder anyway.
    pub(super) fn owned(&self) -> Result<Vec<OwnedMachine>, CloudError> {
        let (now, root) = (self.now(), self.known_root().map_err(unavailable)?);
        let mut owned = Vec::new();
        let mut ended = Vec::new();
        for folder in WorkerFolder::all(&root, now).map_err(unavailable)? {
            let record = folder.record();
            let Some((record, machine)) = record.and_then(|it| launched_of(&it).map(|m| (it, m)))
            else {
                continue;
            };
            let id = machine.id.clone();
            let kept = match self.state(&folder, &id) {
                None => Ok(()),
                Some(ProcessState::Ended(why)) => folder.record_end(now, &why).map(|kept| {
                    ended.extend(kept.map(|since| (since, folder)));
                }),
                Some(ProcessState::Alive(_)) => {
                    owned.push(OwnedMachine {
                        token: record.token(),
                        pool_id: None,
                        machine,
                        sighting: None,
                    });
                    folder.cut_log()
                }
            };
            if let Err(error) = kept {
                tracing::warn!(worker.id = %id, "cannot clean up the folder of worker {id}: {error}");
            }
        }
        delete_oldest(ended, MAX_ENDED);
        Ok(owned)
    }

    /// Sends SIGTERM, and SIGKILL when the grace period is over.
    pub(super) fn end(&self, key: &WorkerKey) -> Result<(), CloudError> {
        let root = self.known_root().map_err(unavailable)?;
        let Some(folder) = WorkerFolder::of(&root, key) else {
            return if self.would_be_here(key) {
                Ok(())
            } else {
                Err(CloudError::Unavailable(format!(
                    "worker {key} is a process on host {}, and only the server there can end it",
                    key.group
                )))
            };
        };
        let process = match folder.state().map_err(unavailable)? {
            ProcessState::Ended(_) => return Ok(()),
            ProcessState::Alive(Some(process)) => process,
            ProcessState::Alive(None) => {
                let text =
                    format!("cannot find the process of worker {key}; the next scan tries again");
                return Err(CloudError::Unavailable(text));
            }
        };
        let now = self.now();
        match folder.end_asked() {
            None => {
                folder.set_end_asked(now).map_err(unavailable)?;
                process.signal_group(Signal::SIGTERM).map_err(unavailable)
            }
            Some(asked) if now.millis_since(asked) >= GRACE_MS => {
                process.signal_group(Signal::SIGKILL).map_err(unavailable)
            }
            Some(_) => Ok(()),
        }
    }
}

/// Deletes the folders of the workers that ended first, until `limit` are left.
fn delete_oldest(mut ended: Vec<(Timestamp, WorkerFolder)>, limit: usize) {
    ended.sort_by_key(|(since, _)| *since);
    let n_excess = ended.len().saturating_sub(limit);
    for (_, folder) in ended.into_iter().take(n_excess) {
        // A folder that cannot be deleted, because its worker ran as another user, must not hide
        // running workers.
        if let Err(error) = folder.delete() {
            let log = folder.log_file();
            tracing::warn!("cannot delete the folder of {}: {error}", log.display());
        }
    }
}

pub(super) fn unavailable(error: io::Error) -> CloudError {
    CloudError::Unavailable(error.to_string())
}

fn launched_of(record: &LaunchRecord) -> Option<LaunchedMachine> {
    let key = record.key()?;
    Some(LaunchedMachine {
        group: key.group,
        id: key.id,
        made: None,
        provider_data: match (&record.image, &record.isolation) {
            (Some(image), Some(isolation)) => {
                // A start beside the image says nothing about the image.
                let is_in_image = Isolation::named(isolation).is_some_and(Isolation::is_in_image);
                json!({"image": image, "isolation": isolation, "inImage": is_in_image})
            }
            _ => json!({}),
        },
    })
}

fn cause_of(error: &io::Error) -> Cause {
    use io::ErrorKind::{InvalidInput, NotFound, OutOfMemory, PermissionDenied, WouldBlock};
    let is_one_of = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
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
        .map_err(|_| io::Error::other("the path of this program is not UTF-8"))?;
    let arguments = ["worker", "--identity", IDENTITY_PLACEHOLDER].map(str::to_owned);
    Ok(std::iter::once(program).chain(arguments).collect())
}

/// Makes a worker group of a host name.
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
        .unwrap_or_else(|_| DEFAULT_GROUP.parse().expect("it is a group"))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn the_folders_of_the_last_ended_workers_are_kept_up_to_a_limit() {
        // A thousand folders take seconds.
        const LIMIT: usize = 20;
        let now = Timestamp::from_millis(1_790_000_000_000);
        for count in sizes_around("cloud::local::host::MAX_ENDED", LIMIT) {
            let root = tempfile::tempdir().unwrap();
            let folder = |number: usize| root.path().join(number.to_string());
            for number in 0..count {
                std::fs::create_dir(folder(number)).unwrap();
            }
            // A higher number is a later end.
            let ended = |one: WorkerFolder| {
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
            delete_oldest(all.into_iter().map(ended).collect(), LIMIT);
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
