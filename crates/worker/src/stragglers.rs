//! Finds and kills processes that remain after a run has ended.
//!
//! They are found under `/proc`. A process that leaves its group is recognised by the variables of
//! its task in its environment. A process that changes those too can be stopped only with its
//! machine.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::api::Run;
use crate::machine::pause;

/// Rounds of killing at most, in case processes are started as fast as they are killed.
const MAX_ROUNDS: u32 = 20;
const ROUND: Duration = Duration::from_millis(10);

/// Whether any process of a group still runs. Zombies do not count.
pub(crate) fn is_group_alive(group: i32) -> bool {
    processes().any(|id| stat(id).is_some_and(|stat| stat.is_alive && stat.group == group))
}

/// Kills the processes of a run, also outside of its group.
pub(crate) async fn end(run: &Run) {
    for _ in 0..MAX_ROUNDS {
        let found = {
            let run = run.clone();
            tokio::task::spawn_blocking(move || of_run(&run)).await
        };
        let found = found.unwrap_or_default();
        if found.is_empty() {
            return;
        }
        for id in found {
            tracing::warn!("killing process {id}, which left the group of {run}");
            match kill(Pid::from_raw(id), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(problem) => tracing::error!("cannot kill process {id}: {problem}"),
            }
        }
        pause(ROUND).await;
    }
    tracing::error!("{run} left processes that cannot be killed");
}

struct Stat {
    is_alive: bool,
    group: i32,
}

fn of_run(run: &Run) -> Vec<i32> {
    let marks = [
        format!("TASK_ID={}", run.task),
        format!("RUN_ID={}", run.number),
    ];
    let is_marked = |id: &i32| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        marks.iter().all(|mark| {
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
    };
    let is_alive = |id: &i32| stat(*id).is_some_and(|stat| stat.is_alive);
    processes().filter(is_marked).filter(is_alive).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// `None` if the process does not exist.
fn stat(id: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // A program's name may contain anything, but the fields after it may not.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        is_alive: !matches!(state, "Z" | "X"),
        group,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_process_outside_of_the_group_is_found_by_its_environment_and_no_other() {
        let run = |number| Run {
            task: "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap(),
            number,
        };
        let sleeper = |number: u32| {
            Command::new("sleep")
                .arg("600")
                .env("TASK_ID", run(number).task.as_str())
                .env("RUN_ID", number.to_string())
                .process_group(0)
                .spawn()
                .unwrap()
        };
        let (mut ours, mut other) = (sleeper(1), sleeper(2));
        let group = i32::try_from(ours.id()).unwrap();
        assert!(is_group_alive(group));
        end(&run(1)).await;
        assert!(!is_group_alive(group), "a zombie is not alive");
        assert!(!ours.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        end(&run(2)).await;
        other.wait().unwrap();
    }
}
