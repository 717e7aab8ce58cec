//! The process that owns the embedded tree, as others see it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names a process of any machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerProcess {
    host: String,
    pid: u32,
    /// When it started, in ticks of its machine: numbers of processes are used again.
    started: String,
    /// The boot of the machine and the namespace of process numbers.
    namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Running,
    Ended,
    /// It runs, or ran, elsewhere.
    Unknown,
}

impl OwnerProcess {
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self {
            host: read("/proc/sys/kernel/hostname"),
            pid,
            started: start_of(pid).unwrap_or_default(),
            namespace: namespace(),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// A text that no version of the program wrote names no process.
    pub(super) fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn liveness(&self) -> Liveness {
        if self.namespace.is_empty() || self.namespace != namespace() {
            return Liveness::Unknown;
        }
        match start_of(self.pid) {
            Some(started) if started == self.started => Liveness::Running,
            Some(_) | None => Liveness::Ended,
        }
    }
}

impl fmt::Display for OwnerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            return f.write_str("another process");
        }
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

fn read(file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().to_owned()
}

/// Empty where the system has no such files.
fn namespace() -> String {
    let boot = read("/proc/sys/kernel/random/boot_id");
    let link = std::fs::read_link("/proc/self/ns/pid");
    match link {
        Ok(link) if !boot.is_empty() => format!("{boot} {}", link.display()),
        Ok(_) | Err(_) => String::new(),
    }
}

/// The 22nd field of `/proc/<pid>/stat`. The second one, in brackets, may contain anything.
fn start_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let started = rest.split_whitespace().nth(19)?;
    // A zombie runs no more.
    let is_zombie = rest.split_whitespace().next() == Some("Z");
    (!is_zombie).then(|| started.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_one_with_another_start_has_ended() {
        let this = OwnerProcess::this();
        assert_eq!(OwnerProcess::from_json(&this.to_json()), this);
        assert_eq!(this.liveness(), Liveness::Running);
        let started = "1".to_owned();
        let earlier = OwnerProcess {
            started,
            ..this.clone()
        };
        assert_eq!(earlier.liveness(), Liveness::Ended);
        let pid = u32::MAX;
        let missing = OwnerProcess {
            pid,
            ..this.clone()
        };
        assert_eq!(missing.liveness(), Liveness::Ended);
        let namespace = "elsewhere".to_owned();
        let elsewhere = OwnerProcess { namespace, ..this };
        assert_eq!(elsewhere.liveness(), Liveness::Unknown);
        assert_eq!(
            OwnerProcess::from_json("no json").liveness(),
            Liveness::Unknown
        );
    }
}
