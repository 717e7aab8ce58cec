//! The provider protocol with a program: a question on its standard input, the answer on its standard output.
//!
//! The operation is the program's last argument. Its process group is killed when it takes too long or says too much; a
//! machine that it makes must therefore leave the group (`setsid`).

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

use crate::ProviderContext;
use crate::outside::{Answer, Carrier, MAX_ANSWER_BYTES, NoAnswer, Operation, OutsideProvider};

const DEFAULT_TIME_LIMIT_SECONDS: u64 = 60;
/// So many programs run at a time; the others wait, within their time limit.
const MAX_AT_ONCE: usize = 8;
/// Anybody can make us verify a proof, so that must not keep launches waiting.
const MAX_VERIFYING_AT_ONCE: usize = 2;
/// More of what the program complains about is not kept.
const MAX_COMPLAINT_BYTES: usize = 4 * 1024;
/// A killed program has so long to be gone.
const REAPING: Duration = Duration::from_secs(5);
/// What the program gets of our own environment.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];
/// In its environment: a folder for what it must remember.
const STATE_VARIABLE: &str = "FLEETWRIGHT_STATE";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecSettings {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// No call takes longer.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
    /// Environment variables for it, beside the few that it gets anyway.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_SECONDS
}

/// A provider behind a program.
pub type ExecProvider = OutsideProvider<Program>;

/// The program.
pub struct Program {
    context: ProviderContext,
    settings: ExecSettings,
    calls: Semaphore,
    verifications: Semaphore,
}

/// A process group that is killed unless its leader was waited for.
struct Group(Option<Pid>);

/// What a program did with a question.
struct Run {
    code: Option<i32>,
    output: Vec<u8>,
    complaint: String,
}

impl ExecProvider {
    pub fn new(context: ProviderContext, settings: ExecSettings) -> Self {
        let program = Program::new(context.clone(), settings);
        Self::over(context, program)
    }
}

impl Program {
    fn new(context: ProviderContext, settings: ExecSettings) -> Self {
        Self {
            context,
            settings,
            calls: Semaphore::new(MAX_AT_ONCE),
            verifications: Semaphore::new(MAX_VERIFYING_AT_ONCE),
        }
    }

    fn state(&self) -> Option<PathBuf> {
        self.context.folder("exec")
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

    /// Runs a program that was started to its end.
    async fn converse(&self, child: &mut Child, question: &[u8]) -> Result<Run, String> {
        let (Some(mut input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("its standard streams are missing".to_owned());
        };
        let tell = async move {
            // A program that does not read all of it may still know what to do.
            let _ = input.write_all(question).await;
        };
        let (_, output, complaint) = tokio::join!(
            tell,
            read_all(output, MAX_ANSWER_BYTES),
            read_some(errors, MAX_COMPLAINT_BYTES)
        );
        // Only now: as long as it was not waited for, its number is not given to another.
        let status = child.wait().await.map_err(|problem| problem.to_string())?;
        Ok(Run {
            code: status.code(),
            output: output?,
            complaint,
        })
    }

    async fn run(&self, operation: Operation, question: Vec<u8>) -> Result<Run, NoAnswer> {
        let name = operation.as_str();
        let mut command = self
            .command(operation)
            .ok_or_else(|| NoAnswer::NotSent("its command is empty".to_owned()))?;
        let mut child = command.spawn().map_err(|problem| {
            NoAnswer::NotSent(format!("{name}: the program cannot be started: {problem}"))
        })?;
        let mut group = Group::of(&child);
        let run = self.converse(&mut child, &question).await;
        match run {
            Ok(run) => {
                group.0 = None;
                Ok(run)
            }
            Err(problem) => {
                group.kill();
                let _ = tokio::time::timeout(REAPING, child.wait()).await;
                group.0 = None;
                Err(NoAnswer::Lost(format!("{name}: {problem}")))
            }
        }
    }
}

#[async_trait]
impl Carrier for Program {
    fn kind(&self) -> &'static str {
        "exec"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-exec.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        if self.settings.command.is_empty() {
            return Err(format!(
                "providers.{}.command is empty: name a program",
                self.context.id
            ));
        }
        if let Some(state) = self.state() {
            let made = tokio::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&state)
                .await;
            made.map_err(|problem| format!("{} cannot be made: {problem}", state.display()))?;
        }
        Ok(())
    }

    async fn carry(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, NoAnswer> {
        let limit = Duration::from_secs(self.settings.time_limit_seconds);
        let (name, seconds) = (operation.as_str(), self.settings.time_limit_seconds);
        let places = match operation {
            Operation::Verify => &self.verifications,
            Operation::Setup
            | Operation::Validate
            | Operation::Bids
            | Operation::Launch
            | Operation::Look
            | Operation::Owned
            | Operation::End => &self.calls,
        };
        let until = Instant::now() + limit;
        let place = tokio::time::timeout_at(until, places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            let text = format!("{name}: too many programs run already, for {seconds} s now");
            return Err(NoAnswer::NotSent(text));
        };
        // Dropping what runs too long kills its group.
        let run = tokio::time::timeout_at(until, self.run(operation, question)).await;
        let run = run.map_err(|_| {
            NoAnswer::Lost(format!(
                "{name}: the program took longer than {seconds} s and was killed"
            ))
        })??;
        if !run.complaint.is_empty() {
            let id = &self.context.id;
            tracing::info!(provider.id = %id, "the program of {id} says about {name}: {}", run.complaint);
        }
        Ok(Answer {
            done: run.code == Some(0),
            body: run.output,
            outline: run.code.map_or("killed by a signal".to_owned(), |code| {
                format!("exit code {code}")
            }),
            cause: None,
        })
    }
}

impl Group {
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

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_all(from: impl AsyncRead + Unpin, limit: usize) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    let taken = from.take(limit as u64 + 1).read_to_end(&mut read).await;
    taken.map_err(|problem| problem.to_string())?;
    if read.len() > limit {
        return Err(format!(
            "the answer is longer than {limit} bytes, and the program was killed"
        ));
    }
    Ok(read)
}

/// The beginning of it as one line of text; the rest is read and thrown away, so that nobody waits for us.
async fn read_some(mut from: impl AsyncRead + Unpin, limit: usize) -> String {
    let mut kept = Vec::new();
    let mut piece = [0; 1024];
    while let Ok(length) = from.read(&mut piece).await {
        if length == 0 {
            break;
        }
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..length.min(room)]);
    }
    String::from_utf8_lossy(&kept)
        .trim()
        .escape_debug()
        .to_string()
}
