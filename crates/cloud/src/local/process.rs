//! A process of this machine, identified so that it is not mistaken for a later one with the same
//! process id.
//!
//! Linux reuses process ids, but the combination of process id, start time and boot is unique.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use processes::Stat;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Process {
    pid: i32,
    /// In kernel ticks since boot.
    start_time: u64,
    boot_id: String,
}

impl Process {
    /// The process that has this id now.
    pub(super) fn with_pid(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let stat = Stat::of(pid)?;
        Ok(Self {
            pid,
            start_time: stat.start_time,
            boot_id: boot_id()?,
        })
    }

    /// The process group leader whose environment has this variable, or that our user started with
    /// this command line; `None`: no such process.
    ///
    /// A worker may hide its environment from us, as ours does. A script has the command line of
    /// its interpreter.
    pub(super) fn started_with(
        command: &[String],
        (name, value): (&str, &str),
    ) -> io::Result<Option<Self>> {
        let variable = format!("{name}={value}");
        let command_line: String = command.iter().flat_map(|word| [word, "\0"]).collect();
        let own_users = users("self");
        // Reads every process: the kernel limits their number, and a worker that is missed could
        // not be ended.
        for pid in processes::ids()? {
            // Processes may end, and those of other users may be unreadable.
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let has_variable = processes::has_variables(pid, std::slice::from_ref(&variable));
            let has_command_line = || {
                !command.is_empty()
                    && read("cmdline") == command_line.as_bytes()
                    && users(&pid.to_string()) == own_users
            };
            if !has_variable && !has_command_line() {
                continue;
            }
            if let Ok(stat) = Stat::of(pid)
                && stat.group == pid
                && stat.is_alive
            {
                return Ok(Some(Self {
                    pid,
                    start_time: stat.start_time,
                    boot_id: boot_id()?,
                }));
            }
        }
        Ok(None)
    }

    #[cfg(test)]
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn is_alive(&self) -> bool {
        let stat = Stat::of(self.pid);
        stat.is_ok_and(|stat| stat.is_alive && stat.start_time == self.start_time)
            && boot_id().is_ok_and(|boot_id| boot_id == self.boot_id)
    }

    /// Sends the signal to the process and its group. Succeeds if the process has ended.
    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match killpg(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The users as which the process runs. Everybody may read this, also of a process that hides its
/// environment.
fn users(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let users = status.lines().find(|line| line.starts_with("Uid:"))?;
    Some(users.to_owned())
}

fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn we_are_alive_and_a_process_with_our_number_that_began_earlier_is_not() {
        let me = Process::with_pid(std::process::id()).unwrap();
        assert!(me.is_alive());
        for other in [
            Process {
                start_time: me.start_time - 1,
                ..me.clone()
            },
            Process {
                boot_id: "another".to_owned(),
                ..me.clone()
            },
            Process {
                pid: i32::MAX,
                ..me.clone()
            },
        ] {
            assert!(!other.is_alive(), "{other:?}");
            // No process gets this signal.
            other.signal_group(Signal::SIGKILL).unwrap();
        }
    }

    #[test]
    fn a_process_is_found_by_its_environment_or_by_its_command_line() {
        let mark = format!("{}-found", std::process::id());
        // The process writes a line first: before that, its environment may not be set.
        let command = ["/bin/sh", "-c", "echo; read line", &mark].map(str::to_owned);
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .env("FLEETWRIGHT_TEST_MARK", &mark)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut line)
            .unwrap();
        let find = |command: &[String], value: &str| {
            Process::started_with(command, ("FLEETWRIGHT_TEST_MARK", value)).unwrap()
        };
        let found = find(&[], &mark);
        assert_eq!(found, Some(Process::with_pid(child.id()).unwrap()));
        assert_eq!(find(&command, "closed to us"), found);
        assert_eq!(find(&command[..3], "closed to us"), None, "not all of it");
        assert_eq!(find(std::slice::from_ref(&mark), "closed to us"), None);
        found
            .as_ref()
            .unwrap()
            .signal_group(Signal::SIGKILL)
            .unwrap();
        child.wait().unwrap();
        assert!(!found.unwrap().is_alive());
        assert_eq!(find(&[], "no such"), None);
    }
}
