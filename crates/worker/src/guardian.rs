//! A small process that kills the tasks of a killed worker.
//!
//! Each task has its own process group, so a signal that kills the worker does not reach it. The
//! worker writes its groups to the guardian through a pipe. When the pipe closes, the guardian
//! kills the remaining groups. It is a shell script, so it needs very little memory.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = r#"
groups=
while read -r verb group; do
    case $verb in
    watch) groups="$groups $group" ;;
    leave)
        others=
        for other in $groups; do
            [ "$other" = "$group" ] || others="$others $other"
        done
        groups=$others
        ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
done
"#;

pub(crate) struct Guardian(Mutex<Child>);

/// A guarded process group, until this is dropped.
pub(crate) struct GuardedGroup<'a> {
    guardian: &'a Guardian,
    group: i32,
}

impl Guardian {
    pub(crate) fn start() -> std::io::Result<Self> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "fleetwright-guardian"])
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(Mutex::new(child)))
    }

    pub(crate) fn watch(&self, group: i32) -> GuardedGroup<'_> {
        self.send("watch", group);
        GuardedGroup {
            guardian: self,
            group,
        }
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> u32 {
        self.lock().id()
    }

    fn send(&self, verb: &str, group: i32) {
        let mut child = self.lock();
        let sent = match &mut child.stdin {
            // One short write to a pipe is atomic.
            Some(pipe) => pipe.write_all(format!("{verb} {group}\n").as_bytes()),
            None => Ok(()),
        };
        if let Err(problem) = sent {
            child.stdin = None;
            tracing::warn!(
                "tasks will stay if this worker is killed, because its guardian has failed: {problem}"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GuardedGroup<'_> {
    fn drop(&mut self) {
        self.guardian.send("leave", self.group);
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let mut child = self.lock();
        drop(child.stdin.take());
        if let Err(problem) = child.wait() {
            tracing::warn!("cannot wait for the guardian: {problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::sys::signal::killpg;
    use nix::unistd::Pid;

    use super::*;

    fn sleeper() -> (Child, i32) {
        let child = Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap();
        let group = i32::try_from(child.id()).unwrap();
        (child, group)
    }

    #[test]
    fn remaining_groups_of_a_dead_worker_are_killed_and_no_others() {
        let guardian = Guardian::start().unwrap();
        let (mut left, left_group) = sleeper();
        let (mut other, other_group) = sleeper();
        drop(guardian.watch(other_group));
        std::mem::forget(guardian.watch(left_group));
        drop(guardian);
        // The guardian has been waited for, so it has finished.
        assert!(!left.wait().unwrap().success());
        assert_eq!(killpg(Pid::from_raw(left_group), None), Err(Errno::ESRCH));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_worker_continues_when_its_guardian_was_killed() {
        let guardian = Guardian::start().unwrap();
        let id = i32::try_from(guardian.id()).unwrap();
        nix::sys::signal::kill(Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
        guardian.lock().wait().unwrap();
        drop(guardian.watch(i32::MAX));
    }
}
