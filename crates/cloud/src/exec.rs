//! The provider protocol with a program, over standard input and output.
//!
//! The operation is the program's last argument. The program's process group is killed when it
//! exceeds its time limit or its output limit, so a machine process that it starts must leave the
//! group (`setsid`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use access::Secret;
use async_trait::async_trait;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::protocol::{Answer, Failure, MAX_ANSWER_BYTES, Operation, ProtocolProvider, Transport};
use crate::stderr::{Stderr, telling_lines};
use crate::{ConfiguredRegion, ProviderContext};

const DEFAULT_TIME_LIMIT_SECONDS: u64 = 60;
/// Programs that run at the same time at most. Others wait, within their time limit.
const MAX_AT_ONCE: usize = 8;
/// Anybody can cause a verification, so verifications must not delay launches.
const MAX_VERIFYING_AT_ONCE: usize = 2;
/// Callers cause validations by plans and edits, so these must not delay launches either.
const MAX_VALIDATING_AT_ONCE: usize = 2;
/// Time that a killed program has to exit.
const EXIT_LIMIT: Duration = Duration::from_secs(5);
/// Variables of our own environment that the program gets.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];
/// The name of the folder of such folders.
const KIND: &str = "exec";
/// The variable with the path of a folder in which the program may keep state.
const STATE_VARIABLE: &str = "FLEETWRIGHT_STATE";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSettings {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// Time limit of every call.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
    /// The region of places that have none. Default: the id of the provider.
    #[serde(default)]
    pub region: Option<ConfiguredRegion>,
    /// Further environment variables for the program.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_SECONDS
}

/// A provider behind a program.
pub type ExecProvider = ProtocolProvider<Program>;

/// Runs the program.
pub struct Program {
    context: ProviderContext,
    settings: ExecSettings,
    calls: Semaphore,
    verifications: Semaphore,
    validations: Semaphore,
}

/// A process group. Dropping it kills the group, unless its leader was waited for.
struct ProcessGroup(Option<Pid>);

/// The outcome of a program that ended by itself.
struct ProgramRun {
    code: Option<i32>,
    output: Vec<u8>,
}

impl ExecProvider {
    pub fn new(context: ProviderContext, settings: ExecSettings) -> Self {
        let program = Program::new(context.clone(), settings);
        Self::new_over(context, program)
    }
}

impl Program {
    fn new(context: ProviderContext, settings: ExecSettings) -> Self {
        Self {
            context,
            settings,
            calls: Semaphore::new(MAX_AT_ONCE),
            verifications: Semaphore::new(MAX_VERIFYING_AT_ONCE),
            validations: Semaphore::new(MAX_VALIDATING_AT_ONCE),
        }
    }

    fn state(&self) -> Option<PathBuf> {
        self.context.folder(KIND)
    }

    fn command(&self, operation: Operation) -> Option<Command> {
        let (program, arguments) = self.settings.command.split_first()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(operation.as_str())
            .env_clear()
            .envs(
                INHERITED
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .envs(
                self.settings
                    .env
                    .iter()
                    .map(|(name, value)| (name, value.expose())),
            )
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(state) = self.state() {
            command.env(STATE_VARIABLE, &state).current_dir(state);
        }
        Some(command)
    }

    /// Writes the request to a started program, reads its output and waits for its end.
    async fn exchange(
        child: &mut Child,
        question: &[u8],
        stderr: &mut Stderr,
    ) -> Result<ProgramRun, String> {
        let (Some(mut input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the program has no standard streams".to_owned());
        };
        let write = async move {
            // A program need not read all of its input.
            let _ = input.write_all(question).await;
        };
        let ((), output, ()) = tokio::join!(
            write,
            read_all(output, MAX_ANSWER_BYTES),
            stderr.read(errors)
        );
        // Wait only now: until then, the process id is not given to another process.
        let status = child.wait().await.map_err(|error| error.to_string())?;
        Ok(ProgramRun {
            code: status.code(),
            output: output?,
        })
    }

    async fn run(
        &self,
        operation: Operation,
        question: Vec<u8>,
        stderr: &mut Stderr,
    ) -> Result<ProgramRun, Failure> {
        let name = operation.as_str();
        let mut command = self
            .command(operation)
            .ok_or_else(|| Failure::not_sent("the provider's command is empty"))?;
        let mut child = command.spawn().map_err(|error| {
            Failure::not_sent(format!("{name}: the program cannot be started: {error}"))
        })?;
        let mut group = ProcessGroup::of(&child);
        let run = Self::exchange(&mut child, &question, stderr).await;
        match run {
            Ok(run) => {
                group.0 = None;
                Ok(run)
            }
            Err(error) => {
                group.kill();
                let _ = tokio::time::timeout(EXIT_LIMIT, child.wait()).await;
                group.0 = None;
                Err(Failure::Lost(format!("{name}: {error}")))
            }
        }
    }
}

#[async_trait]
impl Transport for Program {
    fn kind(&self) -> &'static str {
        "exec"
    }

    fn region(&self) -> Option<&ConfiguredRegion> {
        self.settings.region.as_ref()
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-exec.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        if self.settings.command.is_empty() {
            return Err(format!(
                "providers.{}.command is empty: set it to a program and its arguments",
                self.context.id
            ));
        }
        if let Some(state) = self.state() {
            let context = self.context.clone();
            let made = tokio::task::spawn_blocking(move || context.make_folder(KIND)).await;
            let made = made.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            made.map_err(|error| format!("cannot create folder {}: {error}", state.display()))?;
        }
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let limit = Duration::from_secs(self.settings.time_limit_seconds);
        let (name, seconds) = (operation.as_str(), self.settings.time_limit_seconds);
        let permits = match operation {
            Operation::Verify => &self.verifications,
            Operation::Validate => &self.validations,
            Operation::Setup
            | Operation::Bids
            | Operation::Launch
            | Operation::Look
            | Operation::Owned
            | Operation::End
            | Operation::UploadImage
            | Operation::FindImage
            | Operation::DeleteImage
            | Operation::OwnedImages
            | Operation::CreateWorker
            | Operation::UpdateWorker
            | Operation::PreparePool
            | Operation::ReleasePool
            | Operation::Terminate => &self.calls,
        };
        let until = Instant::now() + limit;
        let permit = tokio::time::timeout_at(until, permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            let text = format!("{name}: waited {seconds} s because too many programs were running");
            return Err(Failure::not_sent(text));
        };
        // Dropping a run that exceeds its time limit kills its group.
        let mut stderr = Stderr::default();
        let run = self.run(operation, question, &mut stderr);
        let run = tokio::time::timeout_at(until, run).await;
        let run = run.unwrap_or_else(|_| {
            Err(Failure::Lost(format!(
                "{name}: the program was killed after {seconds} s"
            )))
        });
        let stderr = stderr.text(&self.settings.env);
        if !stderr.is_empty() {
            let (id, text) = (&self.context.id, stderr.escape_debug());
            tracing::info!(provider.id = %id, "the program of {id} wrote to stderr during {name}: {text}");
        }
        let log = telling_lines(&stderr);
        let run = run.map_err(|failure| failure.with_log(log.as_deref()))?;
        Ok(Answer {
            done: run.code == Some(0),
            body: run.output,
            outline: run.code.map_or("killed by a signal".to_owned(), |code| {
                format!("exit code {code}")
            }),
            cause: None,
            log,
        })
    }
}

impl ProcessGroup {
    fn of(leader: &Child) -> Self {
        let pid = leader.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.map(Pid::from_raw))
    }

    fn kill(&self) {
        if let Some(group) = self.0 {
            // It may have ended by itself.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_all(from: impl AsyncRead + Unpin, limit: usize) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    let taken = from.take(limit as u64 + 1).read_to_end(&mut read).await;
    taken.map_err(|error| error.to_string())?;
    if read.len() > limit {
        return Err(format!(
            "the response is longer than {limit} bytes, and the program was killed"
        ));
    }
    Ok(read)
}
