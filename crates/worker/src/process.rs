//! A command in its own process group, and all processes of that group.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use processes::is_group_alive;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::machine::pause;

/// Time limit for killed processes to end.
const KILL_LIMIT: Duration = Duration::from_secs(2);
const KILL_POLL: Duration = Duration::from_millis(5);

/// Sets the limits, then becomes the command. A shell does this without unsafe code between fork
/// and exec, and writes to the log why a program cannot be run.
const SETUP: &str = r#"
ulimit -c 0
ulimit -n 65536 2>/dev/null
if [ -n "$1" ]; then ulimit -v "$1" || exit 126; fi
shift
exec "$@"
"#;

/// The command to start.
pub(crate) struct CommandSpec<'a> {
    pub(crate) command: &'a [String],
    /// The complete environment.
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) folder: &'a Path,
    pub(crate) max_memory_mib: Option<u64>,
}

/// A running command.
pub(crate) struct Process {
    child: Child,
    pub(crate) group: Group,
}

/// A process group. Dropping it kills the group, unless it is known to have ended.
pub(crate) struct Group {
    id: Pid,
    has_ended: bool,
}

impl Process {
    /// Starts the command. The pipe carries its output in order.
    pub(crate) fn start(order: &CommandSpec<'_>) -> std::io::Result<(Self, pipe::Receiver)> {
        let (reader, writer) = std::io::pipe()?;
        let memory_kib = order.max_memory_mib.map(|mib| (mib * 1_024).to_string());
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SETUP, "fleetwright"])
            .arg(memory_kib.unwrap_or_default())
            .args(order.command)
            .env_clear()
            .envs(order.env)
            .current_dir(order.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| std::io::Error::other("the process has no id"))?;
        let group = Group {
            id: Pid::from_raw(id),
            has_ended: false,
        };
        Ok((Self { child, group }, output))
    }

    /// Waits until the command itself has ended; processes that it started may continue.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the group to end, and waits for the command during the grace period.
    pub(crate) async fn terminate(&mut self, grace: Duration) {
        self.group.signal(Signal::SIGTERM);
        if timeout(grace, self.child.wait()).await.is_err() {
            tracing::debug!("group {} ignores the request to end", self.group.id);
        }
    }

    /// Kills the group.
    pub(crate) async fn kill(&mut self) {
        self.group.signal(Signal::SIGKILL);
        if let Err(problem) = self.child.wait().await {
            tracing::error!("cannot wait for a killed process: {problem}");
        }
    }
}

impl Group {
    pub(crate) fn id(&self) -> i32 {
        self.id.as_raw()
    }

    fn signal(&self, signal: Signal) {
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(problem) => tracing::error!("cannot send {signal} to group {}: {problem}", self.id),
        }
    }

    /// Kills the rest of the group, and waits until it has ended.
    pub(crate) async fn clear(&mut self) {
        self.signal(Signal::SIGKILL);
        let ended = async {
            // A zombie counts as a member until its parent process, or init, waits for it.
            while killpg(self.id, None) != Err(Errno::ESRCH) && is_group_alive(self.id()) {
                pause(KILL_POLL).await;
            }
        };
        if timeout(KILL_LIMIT, ended).await.is_err() {
            tracing::warn!(
                "group {} was killed, but some of its processes still exist",
                self.id
            );
        }
        // From now on the system may reuse this id.
        self.has_ended = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    struct RunResult {
        output: String,
        status: ExitStatus,
    }

    async fn run(command: &[&str], max_memory_mib: Option<u64>) -> RunResult {
        let folder = tempfile::tempdir().unwrap();
        let command: Vec<_> = command.iter().map(|&text| text.to_owned()).collect();
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let (mut process, mut output) = Process::start(&CommandSpec {
            command: &command,
            env: &env,
            folder: folder.path(),
            max_memory_mib,
        })
        .unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        let status = process.wait().await.unwrap();
        process.group.clear().await;
        RunResult {
            output: text,
            status,
        }
    }

    #[tokio::test]
    async fn a_command_sees_only_its_environment_and_no_descriptor_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let _ours = std::fs::File::create(folder.path().join("ours")).unwrap();
        let ran = run(
            &[
                "sh",
                "-c",
                "env; for f in /proc/$$/fd/*; do readlink $f; done",
            ],
            None,
        )
        .await;
        assert!(!ran.output.contains("CARGO"), "{}", ran.output);
        assert!(!ran.output.contains("ours"), "{}", ran.output);
        assert!(!ran.output.contains("socket:"), "{}", ran.output);
        assert!(ran.output.contains("PATH=/usr/bin:/bin"), "{}", ran.output);
    }

    #[tokio::test]
    async fn both_outputs_come_in_order() {
        let ran = run(&["sh", "-c", "echo 1; echo 2 >&2; echo 3; exit 7"], None).await;
        assert_eq!(ran.output, "1\n2\n3\n");
        assert_eq!(ran.status.code(), Some(7));
    }

    #[tokio::test]
    async fn limits_hold_for_the_command() {
        let ran = run(&["sh", "-c", "ulimit -c; ulimit -v"], Some(512)).await;
        assert_eq!(ran.output, "0\n524288\n");
    }

    #[tokio::test]
    async fn a_missing_program_is_named_in_the_output() {
        let ran = run(&["no-such-program-here"], None).await;
        assert_eq!(ran.status.code(), Some(127));
        assert!(
            ran.output.contains("no-such-program-here"),
            "{}",
            ran.output
        );
    }

    #[tokio::test]
    async fn arguments_arrive_unchanged() {
        let ran = run(&["printf", "%s|", "a b", "$HOME", "", "'\"\n"], None).await;
        assert_eq!(ran.output, "a b|$HOME||'\"\n|");
    }

    #[tokio::test]
    async fn processes_of_the_command_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", "sleep 600 & echo $!"].map(str::to_owned);
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let (mut process, _output) = Process::start(&CommandSpec {
            command: &command,
            env: &env,
            folder: folder.path(),
            max_memory_mib: None,
        })
        .unwrap();
        assert!(process.wait().await.unwrap().success());
        process.group.clear().await;
        assert!(!is_group_alive(process.group.id()));
    }

    #[tokio::test]
    async fn a_command_that_ignores_sigterm_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let command = [
            "sh",
            "-c",
            "trap '' TERM; echo ready; while :; do sleep 1; done",
        ];
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let (mut process, mut output) = Process::start(&CommandSpec {
            command: &command.map(str::to_owned),
            env: &env,
            folder: folder.path(),
            max_memory_mib: None,
        })
        .unwrap();
        let mut line = [0; 6];
        output.read_exact(&mut line).await.unwrap();
        process.terminate(Duration::from_millis(50)).await;
        process.kill().await;
        process.group.clear().await;
        assert!(!is_group_alive(process.group.id()));
    }
}
