//! Finds and kills processes that remain after a run has ended.
//!
//! They are found under `/proc`. A process that leaves its group is recognised by the variables of
//! its task in its environment. A process that changes those too can be stopped only with its
//! machine.

use std::time::Duration;

use crate::api::Run;
use crate::machine::pause;

/// Rounds of killing at most, in case processes are started as fast as they are killed.
const MAX_ROUNDS: u32 = 20;
const ROUND: Duration = Duration::from_millis(10);

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
            if let Err(error) = processes::kill(id) {
                tracing::error!("cannot kill process {id}: {error}");
            }
        }
        pause(ROUND).await;
    }
    tracing::error!("{run} left processes that cannot be killed");
}

fn of_run(run: &Run) -> Vec<i32> {
    let marks = [
        format!("TASK_ID={}", run.task),
        format!("RUN_ID={}", run.number),
    ];
    processes::with_variables(&marks).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use processes::is_group_alive;

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
