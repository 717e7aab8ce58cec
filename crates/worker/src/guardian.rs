//! A small process that outlives a killed worker, to end the tasks that the worker left behind.
//!
//! Each task has a process group of its own, so a signal that kills the worker does not reach it. The
//! guardian is told which groups there are; when the pipe through which it is told breaks off, it kills
//! those that are left. It is the system's shell, so it costs next to nothing.

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

/// A group under guard, until this is dropped.
pub(crate) struct Guarded<'a> {
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

    pub(crate) fn watch(&self, group: i32) -> Guarded<'_> {
        self.tell("watch", group);
        Guarded {
            guardian: self,
            group,
        }
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> u32 {
        self.lock().id()
    }

    fn tell(&self, verb: &str, group: i32) {
        let mut child = self.lock();
        let told = match &mut child.stdin {
            // One short write reaches a pipe whole.
            Some(pipe) => pipe.write_all(format!("{verb} {group}\n").as_bytes()),
            None => Ok(()),
        };
        if let Err(problem) = told {
            child.stdin = None;
            tracing::warn!("nobody will end the tasks if this worker is killed: {problem}");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        self.guardian.tell("leave", self.group);
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
    fn what_is_left_when_the_worker_is_gone_is_killed_and_nothing_else() {
        let guardian = Guardian::start().unwrap();
        let (mut left, left_group) = sleeper();
        let (mut other, other_group) = sleeper();
        drop(guardian.watch(other_group));
        std::mem::forget(guardian.watch(left_group));
        drop(guardian);
        // It has been waited for, so it has done its work.
        assert!(!left.wait().unwrap().success());
        assert_eq!(killpg(Pid::from_raw(left_group), None), Err(Errno::ESRCH));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_worker_goes_on_when_its_guardian_was_killed() {
        let guardian = Guardian::start().unwrap();
        let id = i32::try_from(guardian.id()).unwrap();
        nix::sys::signal::kill(Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL).unwrap();
        guardian.lock().wait().unwrap();
        drop(guardian.watch(i32::MAX));
    }
}
