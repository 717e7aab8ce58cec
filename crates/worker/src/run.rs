//! One run of a task, from its claim to its report.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout};

use crate::api::{Claim, Done, Outcome, Reason, report};
use crate::artifacts;
use crate::client::Client;
use crate::folders::{Folders, remove};
use crate::guardian::Guardian;
use crate::identity::Identity;
use crate::log::RunLog;
use crate::machine::pause;
use crate::mounts;
use crate::payload::{Payload, PayloadErrors};
use crate::process::{CommandSpec, Process};
use crate::stop::{Stop, Stops};
use crate::stragglers;
use crate::tenure::Tenure;

/// Time that a task has to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// The same when the worker stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// After all writers have ended, the rest of a pipe is read at once; a process outside of the group
/// may hold it open.
const REST_OF_OUTPUT: Duration = Duration::from_secs(1);
/// Time for the log and the report when the worker must stop at once.
const FINAL_REPORT_LIMIT: Duration = Duration::from_secs(2);
const PIPE_BYTES: usize = 64 << 10;
/// Characters of a command that the head of the log shows at most.
const MAX_SHOWN_CHARACTERS: usize = 2_000;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The parts that all runs of a worker share.
pub(crate) struct RunContext {
    pub(crate) identity: Arc<Identity>,
    pub(crate) client: Arc<Client>,
    pub(crate) folders: Folders,
    pub(crate) guardian: Guardian,
    /// Stops the runs: `Drain` leaves a task a grace period, `Now` does not.
    pub(crate) stops: Stops,
}

/// Why a command has ended.
enum CommandEnd {
    Exited(std::io::Result<ExitStatus>),
    TooLong,
    Stopped,
    Lost,
}

/// Executes a claim and reports its outcome.
pub(crate) async fn run(site: Arc<RunContext>, claim: Claim) {
    let tenure = Tenure::new(
        claim.run.clone(),
        claim.lease.clone(),
        Arc::clone(&site.client),
    );
    let start = Instant::now();
    let kept = async {
        tenure.keep().await;
        // After the claim is lost, the run still has to be cleaned up.
        pending::<Infallible>().await
    };
    let outcome = tokio::select! {
        outcome = execute_and_report(&site, &claim, &tenure) => outcome,
        never = kept => match never {},
    };
    tracing::info!(
        task.id = %claim.run.task,
        run.id = claim.run.number,
        elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        "{}: {}",
        claim.run,
        outcome.map_or("lost", Outcome::name),
    );
    stragglers::end(&claim.run).await;
    let folder = site.folders.path_of(&claim.run);
    let log = site.folders.log_of(&claim.run);
    // Deleting a large folder takes time, and must not block other tasks.
    let removed = tokio::task::spawn_blocking(move || {
        remove(&folder);
        remove(&log);
    });
    if removed.await.is_err() {
        tracing::error!("removing the folder of {} panicked", claim.run);
    }
}

/// Runs the task, sends its log at the same time, and reports. `None`: the run is no longer ours.
async fn execute_and_report(site: &RunContext, claim: &Claim, tenure: &Tenure) -> Option<Outcome> {
    tracing::info!(task.id = %claim.run.task, run.id = claim.run.number, "{}: claimed", claim.run);
    let outcome = match RunLog::create(&site.folders.log_of(&claim.run)) {
        Ok(log) => {
            let working = async {
                let outcome = work(site, claim, tenure, &log).await;
                log.close();
                outcome
            };
            let sending = until_final_limit(&site.stops, log.upload(tenure));
            tokio::join!(working, sending).0
        }
        Err(problem) => {
            tracing::error!("cannot create the log of {}: {problem}", claim.run);
            Some(Outcome::Exception(Reason::InternalError))
        }
    };
    let outcome = outcome.filter(|_| !tenure.is_lost())?;
    let call = report(&claim.run, outcome);
    let told = until_final_limit(&site.stops, tenure.send::<Done>(&call)).await;
    match told {
        Some(Ok(_)) => Some(outcome),
        Some(Err(problem)) => {
            tracing::warn!(
                "cannot report {} as {}: {problem}",
                claim.run,
                outcome.name()
            );
            None
        }
        None => {
            tracing::warn!("no time was left to report {}", claim.run);
            None
        }
    }
}

/// Waits for the work, but only a short time if the worker must stop at once.
async fn until_final_limit<T>(stops: &Stops, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = async { stops.reaches(Stop::Now).await; pause(FINAL_REPORT_LIMIT).await } => None,
    }
}

/// Executes the payload. The log contains the outcome.
async fn work(site: &RunContext, claim: &Claim, tenure: &Tenure, log: &RunLog) -> Option<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    log.say(&format!(
        "{} on worker {}, fleetwright {version}",
        claim.run, site.identity
    ));
    let payload = match Payload::read(&claim.payload) {
        Ok(payload) => payload,
        Err(PayloadErrors(problems)) => {
            problems.iter().for_each(|problem| log.say(problem));
            return Some(Outcome::Exception(Reason::MalformedPayload));
        }
    };
    log.say(&format!("command: {}", shown(&payload.command)));
    let folder = match site.folders.make_for(&claim.run) {
        Ok(folder) => folder,
        Err(problem) => {
            tracing::error!("cannot create the folder of {}: {problem:?}", claim.run);
            log.say("the worker cannot create a folder for the task");
            return Some(Outcome::Exception(Reason::InternalError));
        }
    };
    if let Some(reason) = unpack_mounts(&payload, &folder, log).await {
        return Some(Outcome::Exception(reason));
    }
    let start = Instant::now();
    let end = match execute(site, claim, &payload, &folder, tenure, log).await {
        Ok(end) => end,
        Err(problem) => return Some(not_started(&problem, claim, log)),
    };
    let took = format!("after {:.1} s", start.elapsed().as_secs_f64());
    let outcome = outcome_of(&end, &took, payload.max_run_time, log)?;
    if matches!(end, CommandEnd::Stopped)
        || upload_artifacts(claim, &payload, &folder, tenure, log).await
    {
        return Some(outcome);
    }
    Some(Outcome::Failed)
}

/// Unpacks the archives of the payload. Returns why the task cannot run.
async fn unpack_mounts(payload: &Payload, folder: &Path, log: &RunLog) -> Option<Reason> {
    if payload.mounts.is_empty() {
        return None;
    }
    let (mounts, folder) = (payload.mounts.clone(), folder.to_owned());
    let unpacking = tokio::task::spawn_blocking(move || mounts::unpack_all(&mounts, &folder));
    match unpacking.await {
        Ok(Ok(n_entries)) => {
            log.say(&format!(
                "unpacked payload.mounts: files and folders: {n_entries}"
            ));
            None
        }
        Ok(Err(error)) => {
            log.say(&format!("cannot unpack payload.mounts: {error}"));
            let ours = [ErrorKind::StorageFull, ErrorKind::PermissionDenied];
            Some(if ours.contains(&error.kind()) {
                Reason::InternalError
            } else {
                Reason::MalformedPayload
            })
        }
        Err(_) => {
            log.say("the worker failed to unpack payload.mounts");
            Some(Reason::InternalError)
        }
    }
}

/// Runs the command to its end, and kills its remaining processes.
async fn execute(
    site: &RunContext,
    claim: &Claim,
    payload: &Payload,
    folder: &Path,
    tenure: &Tenure,
    log: &RunLog,
) -> std::io::Result<CommandEnd> {
    let env = environment(site, claim, payload, folder);
    let (mut process, mut output) = Process::start(&CommandSpec {
        command: &payload.command,
        env: &env,
        folder,
        max_memory_mib: payload.max_memory_mib,
    })?;
    let guarded = site.guardian.watch(process.group.id());
    let end = {
        let mut is_read = false;
        let mut reading = pin!(copy(&mut output, log));
        let mut ending = pin!(until_ended(&mut process, payload, site, tenure));
        loop {
            tokio::select! {
                end = &mut ending => break end,
                () = &mut reading, if !is_read => is_read = true,
            }
        }
    };
    process.group.clear().await;
    drop(guarded);
    if timeout(REST_OF_OUTPUT, copy(&mut output, log))
        .await
        .is_err()
    {
        log.say(
            "a process outside of the task's group holds the output open; the rest is not read",
        );
    }
    Ok(end)
}

/// Waits for the command to end, or ends it when its time is over.
async fn until_ended(
    process: &mut Process,
    payload: &Payload,
    site: &RunContext,
    tenure: &Tenure,
) -> CommandEnd {
    let (end, grace) = tokio::select! {
        status = process.wait() => return CommandEnd::Exited(status),
        () = tenure.lost() => (CommandEnd::Lost, STOP_GRACE),
        () = site.stops.reaches(Stop::Drain) => (CommandEnd::Stopped, STOP_GRACE),
        () = pause(payload.max_run_time) => (CommandEnd::TooLong, TERM_GRACE),
    };
    tokio::select! {
        () = process.terminate(grace) => {}
        () = site.stops.reaches(Stop::Now) => {}
    }
    process.kill().await;
    end
}

/// The outcome of a task by the end of its command, with the last line of its log.
fn outcome_of(
    end: &CommandEnd,
    took: &str,
    max_run_time: Duration,
    log: &RunLog,
) -> Option<Outcome> {
    match end {
        CommandEnd::Exited(Ok(status)) => {
            match (status.code(), status.signal()) {
                (Some(code), _) => log.say(&format!("exit code {code} {took}")),
                (None, Some(signal)) => log.say(&format!("killed by signal {signal} {took}")),
                (None, None) => log.say(&format!("{status} {took}")),
            }
            Some(if status.success() {
                Outcome::Completed
            } else {
                Outcome::Failed
            })
        }
        CommandEnd::Exited(Err(problem)) => {
            log.say(&format!("the worker lost the command {took}: {problem}"));
            Some(Outcome::Exception(Reason::InternalError))
        }
        CommandEnd::TooLong => {
            let most = max_run_time.as_secs();
            log.say(&format!(
                "ended {took}: it ran longer than maxRunTime ({most} s)"
            ));
            Some(Outcome::Failed)
        }
        CommandEnd::Stopped => {
            log.say(&format!("ended {took}: the worker is stopping"));
            Some(Outcome::Exception(Reason::WorkerShutdown))
        }
        CommandEnd::Lost => None,
    }
}

/// An argument list that is too long is an error of the task; other failures are ours.
fn not_started(problem: &std::io::Error, claim: &Claim, log: &RunLog) -> Outcome {
    log.say(&format!("cannot start the command: {problem}"));
    if problem.kind() == ErrorKind::ArgumentListTooLong {
        return Outcome::Exception(Reason::MalformedPayload);
    }
    tracing::error!("cannot start the command of {}: {problem}", claim.run);
    Outcome::Exception(Reason::InternalError)
}

/// Uploads the artifacts; false if one is missing.
async fn upload_artifacts(
    claim: &Claim,
    payload: &Payload,
    folder: &Path,
    tenure: &Tenure,
    log: &RunLog,
) -> bool {
    let keeping = artifacts::upload_all(&payload.artifacts, folder, claim.expires, tenure);
    let failed = tokio::select! {
        failed = keeping => failed,
        () = tenure.lost() => return false,
    };
    for (name, problem) in &failed {
        log.say(&format!(
            "artifact {name}: {}",
            api_client::with_causes(problem)
        ));
    }
    failed.is_empty()
}

/// The environment of the command: its own variables, those of the launch config, and ours. It has
/// no variable of the worker.
fn environment(
    site: &RunContext,
    claim: &Claim,
    payload: &Payload,
    folder: &Path,
) -> BTreeMap<String, String> {
    let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), folder.display().to_string()),
    ]);
    env.extend(site.identity.env.clone());
    env.extend(payload.env.clone());
    let ours = [
        ("TASK_ID", claim.run.task.to_string()),
        ("RUN_ID", claim.run.number.to_string()),
        ("TASK_GROUP_ID", claim.group.clone()),
        ("TASKCLUSTER_ROOT_URL", site.client.root_url().to_owned()),
        (
            "TASKCLUSTER_WORKER_LOCATION",
            site.identity.location.to_string(),
        ),
    ];
    env.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    env
}

/// Copies the pipe to the log, until all writers have closed it.
async fn copy(output: &mut pipe::Receiver, log: &RunLog) {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        match output.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n_bytes) => log.write(&buffer[..n_bytes]),
            Err(problem) => {
                return log.say(&format!("cannot read the rest of the output: {problem}"));
            }
        }
    }
}

/// A command in one line.
fn shown(command: &[String]) -> String {
    let line = serde_json::Value::from(command).to_string();
    match line.char_indices().nth(MAX_SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_in_one_line_of_bounded_length() {
        let command = ["sh", "-c", "echo a\necho b"].map(str::to_owned);
        assert_eq!(shown(&command), r#"["sh","-c","echo a\necho b"]"#);
        let long = shown(&["é".repeat(5_000)]);
        assert_eq!(long.chars().count(), MAX_SHOWN_CHARACTERS + 2);
    }
}
