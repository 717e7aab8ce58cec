//! One run of a task, from its claim to its report.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
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
use crate::client::{Client, chain};
use crate::folders::{Folders, remove};
use crate::guardian::Guardian;
use crate::identity::Identity;
use crate::log::RunLog;
use crate::machine::pause;
use crate::payload::{Malformed, Payload};
use crate::process::{Order, Process};
use crate::stop::{Stop, Stops};
use crate::stragglers;
use crate::tenure::Tenure;

/// How long a task may take to end when it is asked to.
const TERM_GRACE: Duration = Duration::from_secs(5);
/// The same when the whole worker has to go.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// What is in a pipe when all writers are dead is read in no time; somebody else may hold it open.
const REST_OF_OUTPUT: Duration = Duration::from_secs(1);
/// How long the log and the report may take when the worker has to go at once.
const LAST_WORDS: Duration = Duration::from_secs(2);
const PIPE_BYTES: usize = 64 << 10;
/// As much of a command as the head of the log shows.
const MAX_SHOWN_CHARACTERS: usize = 2_000;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What all runs of a worker share.
pub(crate) struct Site {
    pub(crate) identity: Arc<Identity>,
    pub(crate) client: Arc<Client>,
    pub(crate) folders: Folders,
    pub(crate) guardian: Guardian,
    /// Tells the runs to end: `Drain` leaves a task a moment, `Now` none.
    pub(crate) stops: Stops,
}

/// Why a command is not running any more.
enum End {
    Exited(std::io::Result<ExitStatus>),
    TooLong,
    Stopped,
    Lost,
}

/// Carries a claim out and reports what became of it.
pub(crate) async fn run(site: Arc<Site>, claim: Claim) {
    let tenure = Tenure::new(
        claim.run.clone(),
        claim.lease.clone(),
        Arc::clone(&site.client),
    );
    let start = Instant::now();
    let kept = async {
        tenure.keep().await;
        // Once it is lost there is nothing to keep, but the run has to be cleared away.
        pending::<Infallible>().await
    };
    let outcome = tokio::select! {
        outcome = carry_out(&site, &claim, &tenure) => outcome,
        never = kept => match never {},
    };
    tracing::info!(
        task.id = %claim.run.task,
        run.id = claim.run.number,
        elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        "{}: {}",
        claim.run,
        outcome.map_or("given up", Outcome::name),
    );
    stragglers::end(&claim.run).await;
    let folder = site.folders.path_of(&claim.run);
    let log = site.folders.log_of(&claim.run);
    // A large folder takes its time, which others should not wait for.
    let removed = tokio::task::spawn_blocking(move || {
        remove(&folder);
        remove(&log);
    });
    if removed.await.is_err() {
        tracing::error!("removing the folder of {} panicked", claim.run);
    }
}

/// Works, sends the log meanwhile, and reports. `None` when the run is not ours any more.
async fn carry_out(site: &Site, claim: &Claim, tenure: &Tenure) -> Option<Outcome> {
    tracing::info!(task.id = %claim.run.task, run.id = claim.run.number, "{}: claimed", claim.run);
    let outcome = match RunLog::create(&site.folders.log_of(&claim.run)) {
        Ok(log) => {
            let working = async {
                let outcome = work(site, claim, tenure, &log).await;
                log.close();
                outcome
            };
            let sending = at_most_a_moment_longer(&site.stops, log.upload(tenure));
            tokio::join!(working, sending).0
        }
        Err(problem) => {
            tracing::error!("{} cannot have a log: {problem}", claim.run);
            Some(Outcome::Exception(Reason::InternalError))
        }
    };
    let outcome = outcome.filter(|_| !tenure.is_lost())?;
    let call = report(&claim.run, outcome);
    let told = at_most_a_moment_longer(&site.stops, tenure.speak::<Done>(&call)).await;
    match told {
        Some(Ok(_)) => Some(outcome),
        Some(Err(problem)) => {
            tracing::warn!(
                "{} could not be reported as {}: {problem}",
                claim.run,
                outcome.name()
            );
            None
        }
        None => {
            tracing::warn!("there was no time to report {}", claim.run);
            None
        }
    }
}

/// Waits for something, but when the worker has to go at once only for a moment.
async fn at_most_a_moment_longer<T>(stops: &Stops, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = async { stops.reaches(Stop::Now).await; pause(LAST_WORDS).await } => None,
    }
}

/// Does what the payload says. Whatever comes of it stands in the log.
async fn work(site: &Site, claim: &Claim, tenure: &Tenure, log: &RunLog) -> Option<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    log.say(&format!(
        "{} on worker {}, fleetwright {version}",
        claim.run, site.identity
    ));
    let payload = match Payload::read(&claim.payload) {
        Ok(payload) => payload,
        Err(Malformed(problems)) => {
            problems.iter().for_each(|problem| log.say(problem));
            return Some(Outcome::Exception(Reason::MalformedPayload));
        }
    };
    log.say(&format!("command: {}", shown(&payload.command)));
    let folder = match site.folders.make_for(&claim.run) {
        Ok(folder) => folder,
        Err(problem) => {
            tracing::error!("{} cannot have a folder: {problem:?}", claim.run);
            log.say("the worker cannot make a folder for the task");
            return Some(Outcome::Exception(Reason::InternalError));
        }
    };
    let start = Instant::now();
    let end = match execute(site, claim, &payload, &folder, tenure, log).await {
        Ok(end) => end,
        Err(problem) => return Some(not_started(&problem, claim, log)),
    };
    let took = format!("after {:.1} s", start.elapsed().as_secs_f64());
    let outcome = judge(&end, &took, payload.max_run_time, log)?;
    if matches!(end, End::Stopped) || keep_artifacts(claim, &payload, &folder, tenure, log).await {
        return Some(outcome);
    }
    Some(Outcome::Failed)
}

/// Runs the command to its end; nothing of it is left after.
async fn execute(
    site: &Site,
    claim: &Claim,
    payload: &Payload,
    folder: &Path,
    tenure: &Tenure,
    log: &RunLog,
) -> std::io::Result<End> {
    let env = environment(site, claim, payload, folder);
    let (mut process, mut output) = Process::start(&Order {
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
        log.say("a process that left its group holds the output open; it is read no further");
    }
    Ok(end)
}

/// Waits for the command to end, or ends it when it is time.
async fn until_ended(
    process: &mut Process,
    payload: &Payload,
    site: &Site,
    tenure: &Tenure,
) -> End {
    let (end, grace) = tokio::select! {
        status = process.wait() => return End::Exited(status),
        () = tenure.lost() => (End::Lost, STOP_GRACE),
        () = site.stops.reaches(Stop::Drain) => (End::Stopped, STOP_GRACE),
        () = pause(payload.max_run_time) => (End::TooLong, TERM_GRACE),
    };
    tokio::select! {
        () = process.terminate(grace) => {}
        () = site.stops.reaches(Stop::Now) => {}
    }
    process.kill().await;
    end
}

/// What the end of the command means for the task, with the last line of its log.
fn judge(end: &End, took: &str, max_run_time: Duration, log: &RunLog) -> Option<Outcome> {
    match end {
        End::Exited(Ok(status)) => {
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
        End::Exited(Err(problem)) => {
            log.say(&format!("the worker lost the command {took}: {problem}"));
            Some(Outcome::Exception(Reason::InternalError))
        }
        End::TooLong => {
            let most = max_run_time.as_secs();
            log.say(&format!(
                "ended {took}: it ran longer than maxRunTime ({most} s)"
            ));
            Some(Outcome::Failed)
        }
        End::Stopped => {
            log.say(&format!("ended {took}: the worker has to go"));
            Some(Outcome::Exception(Reason::WorkerShutdown))
        }
        End::Lost => None,
    }
}

/// A command line that the system does not take is the task's fault, anything else is ours.
fn not_started(problem: &std::io::Error, claim: &Claim, log: &RunLog) -> Outcome {
    log.say(&format!("the command cannot be started: {problem}"));
    if problem.kind() == std::io::ErrorKind::ArgumentListTooLong {
        return Outcome::Exception(Reason::MalformedPayload);
    }
    tracing::error!("{} cannot be started: {problem}", claim.run);
    Outcome::Exception(Reason::InternalError)
}

/// Sends what the task should leave; false if something of it is missing.
async fn keep_artifacts(
    claim: &Claim,
    payload: &Payload,
    folder: &Path,
    tenure: &Tenure,
    log: &RunLog,
) -> bool {
    let keeping = artifacts::keep(&payload.artifacts, folder, claim.expires, tenure);
    let not_kept = tokio::select! {
        not_kept = keeping => not_kept,
        () = tenure.lost() => return false,
    };
    for (name, problem) in &not_kept {
        log.say(&format!("artifact {name}: {}", chain(problem)));
    }
    not_kept.is_empty()
}

/// What the command finds in its environment: its own variables, those of the launch config and
/// ours, and nothing of the worker's.
fn environment(
    site: &Site,
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

/// Moves what comes through the pipe to the log, until all writers are gone.
async fn copy(output: &mut pipe::Receiver, log: &RunLog) {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        match output.read(&mut buffer).await {
            Ok(0) => return,
            Ok(n_bytes) => log.write(&buffer[..n_bytes]),
            Err(problem) => {
                return log.say(&format!("the output cannot be read further: {problem}"));
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
