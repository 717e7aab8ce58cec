//! One run of an image's build command, from its start to checked output files.
//!
//! Each run has a folder of its own: `work` (the working folder), `output`, `tmp`, `secrets` and
//! `build.log`. The supervisor runs the command (see `supervisor`); dropping the run closes the
//! supervisor's input, and so ends every process of the build.

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::tests::SmallDisk;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use access::Secret;
use nix::sys::statvfs::statvfs;
use permissions::{create_private, make_passable, make_private};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::confinement::{Confinement, Rights};
use super::output::{OutputError, OutputFile, check_outputs};
use super::redact::MIN_SECRET_BYTES;
use super::supervisor::{self, Ended, NotStarted, Order, PART, REPORT, Report, Stopped};

/// Variables of our own environment that a build gets.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "USER"];
/// Variables of our own environment that the supervisor gets.
const SUPERVISOR_INHERITED: [&str; 2] = ["PATH", "LANG"];
/// The variable with the folder of the run, by which its processes are found.
const FOLDER_VARIABLE: &str = "FLEETWRIGHT_BUILD";
/// The variable with the path of the output, without the format.
const OUTPUT_VARIABLE: &str = "FLEETWRIGHT_OUTPUT";
/// The variable with the path of this program, for images in which workers run.
const PROGRAM_VARIABLE: &str = "FLEETWRIGHT_PROGRAM";
/// Stands for the same path in a command and its environment.
const OUTPUT_PLACEHOLDER: &str = "{output}";
/// Added to the name of a secret, for the variable with the path of its file.
const FILE_SUFFIX: &str = "_FILE";
/// Total size of the command, its environment and its secrets.
const MAX_SPEC_BYTES: usize = 1024 * 1024;
/// A disk with less free space counts as full.
const FULL_BYTES: u64 = 64 * 1024;
/// Rounds of killing the processes of a lost supervisor at most.
const MAX_ROUNDS: u32 = 200;
const ROUND: Duration = Duration::from_millis(10);

/// A build to run.
#[derive(Clone, Debug)]
pub struct BuildSpec {
    /// The program and its arguments; `{output}` stands for the path of the output without format.
    pub command: Vec<String>,
    /// `{output}` has the same meaning here.
    pub environment: BTreeMap<String, String>,
    pub secrets: Vec<BuildSecret>,
    /// The folder of this run, which must not exist yet.
    pub folder: PathBuf,
    /// The name of the output, without the format.
    pub output: String,
    /// The build must make `<output>.<format>` of each.
    pub formats: Vec<String>,
    pub time_limit: Duration,
    /// Time that processes have to end after SIGTERM.
    pub grace: Duration,
    pub max_log_bytes: u64,
    pub confinement: Confinement,
}

/// A secret of a build. Its value is redacted in the log.
#[derive(Clone, Debug)]
pub struct BuildSecret {
    pub name: String,
    pub value: Secret,
    /// As a file, whose path is in the variable `<name>_FILE`. Otherwise as the variable `<name>`.
    pub as_file: bool,
}

/// The program that runs as supervisor: it must call [`run_build_part`] first.
///
/// [`run_build_part`]: super::supervisor::run_build_part
#[derive(Clone, Debug)]
pub struct SupervisorProgram(pub Vec<String>);

/// A running build. Dropping it ends the build.
pub struct BuildRun {
    spec: BuildSpec,
    child: Child,
    /// Closing it ends the build.
    input: Option<ChildStdin>,
    /// `None`: all reports have been read.
    reports: Option<JoinHandle<Option<Ended>>>,
    /// The last report; `None`: the supervisor was lost, or still runs.
    ended: Option<Ended>,
    progress: watch::Receiver<u64>,
}

/// The end of a build.
#[derive(Debug)]
pub struct BuildOutcome {
    pub result: Result<Vec<OutputFile>, BuildError>,
    pub exit_code: Option<i32>,
    pub duration: Duration,
    /// Of the largest process.
    pub peak_memory_kib: u64,
    pub log: LogSummary,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Bytes of the complete output.
    pub bytes: u64,
    /// Bytes left out in the middle.
    pub left_out: u64,
    /// Why the end of the output is missing.
    pub error: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{0}")]
    BadSpec(String),
    /// This machine cannot run builds now.
    #[error("cannot prepare the build: {0}")]
    NotPrepared(String),
    #[error("{0}")]
    MissingProgram(String),
    #[error("{0}")]
    NotExecutable(String),
    #[error("{0}")]
    NotStarted(String),
    #[error("the command exited with {0}")]
    Failed(i32),
    #[error("the command was killed by signal {0}")]
    Killed(i32),
    #[error("the build exceeded its time limit of {} s and was ended", .0.as_secs_f64())]
    TimeLimit(Duration),
    #[error("the build was cancelled")]
    Cancelled,
    #[error("the disk of {} is full: {how}", folder.display())]
    DiskFull { folder: PathBuf, how: String },
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Someone killed the supervisor; the processes of the build were killed too.
    #[error("the supervisor of the build was killed")]
    SupervisorLost,
}

impl SupervisorProgram {
    /// This program.
    pub fn own() -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let program = program.into_os_string().into_string();
        let program =
            program.map_err(|_| io::Error::other("the path of this program is not UTF-8"))?;
        Ok(Self(vec![program]))
    }
}

impl BuildSpec {
    /// The folder in which the build puts its output.
    pub fn output_folder(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// The path of the output, without the format.
    pub fn output_path(&self) -> PathBuf {
        self.output_folder().join(&self.output)
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder.join("build.log")
    }

    fn check(&self) -> Result<(), BuildError> {
        let bad = |text: String| Err(BuildError::BadSpec(text));
        if self.command.first().is_none_or(String::is_empty) {
            return bad("the command of the build is empty".to_owned());
        }
        for name in std::iter::once(&self.output).chain(&self.formats) {
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
                return bad(format!("{name:?} cannot be part of a file name"));
            }
        }
        let names = self.environment.keys().map(String::as_str);
        for name in names.chain(self.secrets.iter().map(|it| it.name.as_str())) {
            if !is_variable(name) {
                return bad(format!(
                    "{name:?} cannot be the name of a variable: use letters, digits and _"
                ));
            }
        }
        let texts = self.command.iter().chain(self.environment.values());
        if texts.into_iter().any(|text| text.contains('\0')) {
            return bad("the command and its environment must not have NUL characters".to_owned());
        }
        let texts = self.command.iter().chain(self.environment.keys());
        let texts = texts.chain(self.environment.values()).map(String::len);
        let secrets = self.secrets.iter();
        let secrets = secrets.map(|it| it.name.len() + it.value.expose().len());
        if texts.chain(secrets).sum::<usize>() > MAX_SPEC_BYTES {
            return bad(format!(
                "the command, its environment and its secrets have more than {MAX_SPEC_BYTES} bytes"
            ));
        }
        for secret in &self.secrets {
            let (name, value) = (&secret.name, secret.value.expose());
            if self.environment.contains_key(name) {
                return bad(format!(
                    "{name} is a secret and a variable of the environment"
                ));
            }
            if value.trim_end().len() < MIN_SECRET_BYTES {
                return bad(format!(
                    "secret {name} has fewer than {MIN_SECRET_BYTES} bytes, so it cannot be redacted in the log"
                ));
            }
            if value.contains('\0') && !secret.as_file {
                return bad(format!(
                    "secret {name} has a NUL character: give it as a file"
                ));
            }
        }
        Ok(())
    }

    /// Makes the folders and the files of secrets.
    fn prepare(&self) -> io::Result<()> {
        let account = self.confinement.account.as_ref();
        let own = |path: &Path| match account {
            Some(account) => chown(path, Some(account.user), Some(account.group)),
            None => Ok(()),
        };
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        // The folder itself stays ours, so that another user cannot replace the log. He passes
        // through it to his own folders.
        let make = if account.is_some() {
            make_passable
        } else {
            make_private
        };
        if let Some(parent) = self.folder.parent() {
            create_private(parent)?;
        }
        builder.create(&self.folder)?;
        make(&self.folder)?;
        for name in ["work", "output", "tmp", "secrets"] {
            let folder = self.folder.join(name);
            builder.create(&folder)?;
            own(&folder)?;
        }
        for secret in self.secrets.iter().filter(|it| it.as_file) {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let path = self.secret_file(&secret.name);
            let mut file = options.open(&path)?;
            io::Write::write_all(&mut file, secret.value.expose().as_bytes())?;
            own(&path)?;
        }
        Ok(())
    }

    fn secret_file(&self, name: &str) -> PathBuf {
        self.folder.join("secrets").join(name)
    }

    fn environment(&self, program: &SupervisorProgram) -> BTreeMap<String, String> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let inherited = INHERITED.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            Some(((*name).to_owned(), value))
        });
        let mut all: BTreeMap<String, String> = inherited.collect();
        if let Some(account) = &self.confinement.account {
            all.insert("USER".to_owned(), account.name.clone());
            all.insert("LOGNAME".to_owned(), account.name.clone());
        }
        all.insert("HOME".to_owned(), text(self.folder.join("work")));
        all.insert("TMPDIR".to_owned(), text(self.folder.join("tmp")));
        let output = text(self.output_path());
        let given = self.environment.iter();
        all.extend(
            given.map(|(name, value)| (name.clone(), value.replace(OUTPUT_PLACEHOLDER, &output))),
        );
        for secret in &self.secrets {
            let name = secret.name.clone();
            if secret.as_file {
                all.insert(name.clone() + FILE_SUFFIX, text(self.secret_file(&name)));
            } else {
                all.insert(name, secret.value.expose().to_owned());
            }
        }
        all.insert(OUTPUT_VARIABLE.to_owned(), output);
        all.insert(FOLDER_VARIABLE.to_owned(), text(self.folder.clone()));
        let program = program.0.first().cloned().unwrap_or_default();
        all.insert(PROGRAM_VARIABLE.to_owned(), program);
        all
    }

    fn order(&self, program: &SupervisorProgram) -> Order {
        let output = self.output_path().to_string_lossy().into_owned();
        let words = self.command.iter();
        Order {
            program: program.0.clone(),
            command: words
                .map(|word| word.replace(OUTPUT_PLACEHOLDER, &output))
                .collect(),
            environment: self.environment(program),
            folder: self.folder.join("work"),
            log: self.log_path(),
            max_log_bytes: self.max_log_bytes,
            secrets: self
                .secrets
                .iter()
                .map(|it| it.value.expose().to_owned())
                .collect(),
            time_limit_ms: in_milliseconds(self.time_limit),
            grace_ms: in_milliseconds(self.grace),
            rights: Rights::of(&self.confinement),
        }
    }
}

impl BuildRun {
    /// Makes the folder of the run and starts the command.
    pub async fn start(
        mut spec: BuildSpec,
        program: &SupervisorProgram,
    ) -> Result<Self, BuildError> {
        spec.folder = std::path::absolute(&spec.folder).map_err(not_prepared)?;
        spec.check()?;
        let prepared = {
            let spec = spec.clone();
            tokio::task::spawn_blocking(move || spec.prepare()).await
        };
        prepared
            .map_err(|error| BuildError::NotPrepared(error.to_string()))?
            .map_err(|error| prepare_error(&spec.folder, &error))?;
        let (first, arguments) = program
            .0
            .split_first()
            .ok_or_else(|| BuildError::NotPrepared("no supervisor is configured".to_owned()))?;
        // The build is a child of the supervisor, and could read its environment: ours may hold
        // secrets.
        let inherited = SUPERVISOR_INHERITED.iter();
        let mut child = Command::new(first)
            .args(arguments)
            .env_clear()
            .envs(inherited.filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env(PART, supervisor::SUPERVISE)
            .env(FOLDER_VARIABLE, &spec.folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| BuildError::NotPrepared(format!("the supervisor: {error}")))?;
        let mut order = serde_json::to_vec(&spec.order(program))
            .map_err(|error| BuildError::NotPrepared(error.to_string()))?;
        order.push(b'\n');
        let (grown, progress) = watch::channel(0);
        let output = child.stdout.take();
        let reports = tokio::spawn(async move {
            let mut lines = BufReader::new(output?).lines();
            let mut ended = None;
            while let Ok(Some(line)) = lines.next_line().await {
                let report = line.strip_prefix(REPORT).map(serde_json::from_str);
                match report {
                    Some(Ok(Report::Output(bytes))) => drop(grown.send_replace(bytes)),
                    Some(Ok(Report::Ended(how))) => {
                        grown.send_replace(how.log_bytes);
                        ended = Some(how);
                    }
                    Some(Err(_)) | None => {}
                }
            }
            ended
        });
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            // If this fails, the supervisor has ended, which `wait` reports.
            let _ = input.write_all(&order).await;
        }
        Ok(Self {
            spec,
            child,
            input,
            reports: Some(reports),
            ended: None,
            progress,
        })
    }

    /// Bytes of output so far. Closed when the build has ended.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.clone()
    }

    pub fn spec(&self) -> &BuildSpec {
        &self.spec
    }

    /// Ends the build: SIGTERM, and SIGKILL after the grace time. `wait` returns the outcome.
    pub fn cancel(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the build, and checks its output files. The future may be dropped, and
    /// the call repeated.
    pub async fn wait(&mut self) -> BuildOutcome {
        if let Some(reports) = &mut self.reports {
            self.ended = reports.await.ok().flatten();
            self.reports = None;
        }
        let ended = self.ended.clone();
        self.input = None;
        if let Err(error) = self.child.wait().await {
            tracing::warn!("cannot wait for the supervisor of a build: {error}");
        }
        let spec = self.spec.clone();
        let ended = match ended {
            Some(ended) => Some(ended),
            None => {
                end_leftovers(&spec.folder).await;
                None
            }
        };
        let checked = tokio::task::spawn_blocking(move || conclude(&spec, ended));
        checked.await.unwrap_or_else(|error| {
            failed(BuildError::NotPrepared(format!(
                "the check of the output: {error}"
            )))
        })
    }
}

/// Kills the processes of a run whose supervisor was killed together with its server.
pub async fn end_leftovers(folder: &Path) {
    let mark = [format!("{FOLDER_VARIABLE}={}", folder.display())];
    let mut rounds = tokio::time::interval(ROUND);
    for _ in 0..MAX_ROUNDS {
        rounds.tick().await;
        let mark = mark.clone();
        let killed = tokio::task::spawn_blocking(move || {
            let found = processes::with_variables(&mark).unwrap_or_default();
            for id in &found {
                if let Err(error) = processes::kill(*id) {
                    tracing::error!("cannot kill process {id} of a build: {error}");
                }
            }
            found.len()
        });
        if killed.await.unwrap_or(0) == 0 {
            return;
        }
    }
    tracing::error!(
        "processes of the build in {} cannot be killed",
        folder.display()
    );
}

/// Blocks on the output files.
fn conclude(spec: &BuildSpec, ended: Option<Ended>) -> BuildOutcome {
    let secrets = spec.folder.join("secrets");
    match std::fs::remove_dir_all(&secrets) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("cannot delete {}: {error}", secrets.display());
        }
        Ok(()) | Err(_) => {}
    }
    let Some(ended) = ended else {
        return failed(BuildError::SupervisorLost);
    };
    if !ended.survivors.is_empty() {
        let survivors = &ended.survivors;
        tracing::error!(
            "processes {survivors:?} of the build in {} cannot be killed",
            spec.folder.display()
        );
    }
    BuildOutcome {
        result: result_of(spec, &ended),
        exit_code: ended.exit_code,
        duration: Duration::from_millis(ended.duration_ms),
        peak_memory_kib: ended.peak_memory_kib,
        log: LogSummary {
            bytes: ended.log_bytes,
            left_out: ended.log_left_out,
            error: ended.log_error,
        },
    }
}

fn result_of(spec: &BuildSpec, ended: &Ended) -> Result<Vec<OutputFile>, BuildError> {
    match &ended.not_started {
        Some(NotStarted::Missing(text)) => return Err(BuildError::MissingProgram(text.clone())),
        Some(NotStarted::NotExecutable(text)) => {
            return Err(BuildError::NotExecutable(text.clone()));
        }
        Some(NotStarted::Other(text)) => return Err(BuildError::NotStarted(text.clone())),
        None => {}
    }
    match ended.stopped {
        Some(Stopped::TimeLimit) => return Err(BuildError::TimeLimit(spec.time_limit)),
        Some(Stopped::Cancelled) => return Err(BuildError::Cancelled),
        None => {}
    }
    let error = match (ended.exit_code, ended.signal) {
        (Some(0), _) => return Ok(check_outputs(&spec.output_path(), &spec.formats)?),
        (Some(code), _) => BuildError::Failed(code),
        (None, Some(signal)) => BuildError::Killed(signal),
        (None, None) => BuildError::NotStarted("the end of the command is not known".to_owned()),
    };
    if is_full(&spec.folder) {
        return Err(BuildError::DiskFull {
            folder: spec.folder.clone(),
            how: error.to_string(),
        });
    }
    Err(error)
}

fn failed(error: BuildError) -> BuildOutcome {
    BuildOutcome {
        result: Err(error),
        exit_code: None,
        duration: Duration::ZERO,
        peak_memory_kib: 0,
        log: LogSummary::default(),
    }
}

fn not_prepared(error: io::Error) -> BuildError {
    BuildError::NotPrepared(error.to_string())
}

fn prepare_error(folder: &Path, error: &io::Error) -> BuildError {
    let path = folder.display();
    if error.kind() == io::ErrorKind::StorageFull {
        return BuildError::DiskFull {
            folder: folder.to_owned(),
            how: "the folder of the build cannot be made".to_owned(),
        };
    }
    BuildError::NotPrepared(format!("{path}: {error}"))
}

/// Whether the disk has no room for even a small file.
fn is_full(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|disk| {
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        free < FULL_BYTES || (disk.files() > 0 && disk.files_available() == 0)
    })
}

fn is_variable(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.chars().all(is_plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn in_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
