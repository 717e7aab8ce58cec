//! A change, simulated with the recorded load.
//!
//! The recording is read as `readRecording` reads it, and `simulate` answers the question, as for
//! the command `fleetwright simulate recorded`. That takes a thread of low priority.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::id::PoolId;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use engine::access::digest_of;
use serde::Deserialize;
use serde_json::json;
use simulate::recording::{Change, Question, RecordedStudyError, Recording, WhatIf};
use tokio::sync::oneshot;

use super::recording;
use crate::api::error::Code;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::app::App;
use crate::what_if::{Answer, Refusal, Simulations, Standing, Work};

/// The simulated time that is asked about if the request does not say.
const USUAL_MS: i64 = DAY_MS;
/// The longest simulated time.
const LONGEST_MS: i64 = 31 * DAY_MS;
/// A recording with more entries is too large for the memory of a server.
const MAX_ENTRIES: usize = 200_000;
/// More pools are too many for one reply.
const MAX_POOLS: usize = 1_000;
const MAX_SEEDS: u64 = 10;
const USUAL_SEEDS: u64 = 5;
/// How long a reply may take, by default and at most.
const USUAL_WAIT: Duration = Duration::from_secs(30);
const MAX_WAIT_SECONDS: u64 = 60;
/// The processor time of one question.
const MAX_PROCESSOR_SECONDS: i64 = 120;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    #[serde(default)]
    worker_pools: BTreeSet<PoolId>,
    since: Option<String>,
    until: Option<String>,
    seeds: Option<u64>,
    wait_seconds: Option<u64>,
    #[serde(default)]
    change: Change,
}

pub(super) async fn ask(call: Call) -> Result<Reply, ApiError> {
    let body: Body = call.body()?;
    let wait = body.wait_seconds.map(|it| it.min(MAX_WAIT_SECONDS));
    let wait = wait.map_or(USUAL_WAIT, Duration::from_secs);
    let time = period(&call, &body).await?;
    let (since, until) = time;
    let n_seeds = body.seeds.unwrap_or(USUAL_SEEDS).clamp(1, MAX_SEEDS);
    let question = Question {
        pools: body.worker_pools,
        change: body.change,
        seeds: (1..=n_seeds).collect(),
    };
    let key = json!([
        since.to_string(),
        until.to_string(),
        question.pools,
        question.change,
        n_seeds
    ]);
    let key = digest_of(&key.to_string());
    let app = Arc::clone(&call.app);
    let now = call.now;
    let asking = call.app.what_ifs.ask(&key, wait, move |work| {
        answer(app, now, time, question, work)
    });
    let standing = tokio::select! {
        standing = asking => standing,
        // No client reads the reply. Without other callers the run is stopped.
        () = call.cancelled.cancelled() => Standing::Waiting,
    };
    let (state, simulations, result) = match standing {
        Standing::Waiting => ("waiting", Simulations::default(), None),
        Standing::Running(simulations) => ("running", simulations, None),
        Standing::Ended(answer) => ("done", Simulations::default(), Some(answer?)),
    };
    let mut reply = json!({
        "state": state,
        "since": since.to_string(),
        "until": until.to_string(),
    });
    if state == "running" {
        reply["simulationsDone"] = json!(simulations.n_done);
        reply["simulations"] = json!(simulations.n_all);
    }
    if let Some(result) = result {
        reply["result"] = result.as_ref().clone();
    }
    Reply::json(&reply)
}

/// The time that is asked about, as far as it may be recorded.
async fn period(call: &Call, body: &Body) -> Result<(Timestamp, Timestamp), ApiError> {
    let until = moment("until", body.until.as_deref())?;
    let until = until.unwrap_or(call.now).min(call.now);
    let since = moment("since", body.since.as_deref())?;
    let since = since.unwrap_or_else(|| until.plus_millis(-USUAL_MS));
    if since >= until {
        return Err(ApiError::input(format!(
            "`since` ({since}) must be before `until` ({until})"
        )));
    }
    if until.millis_since(since) > LONGEST_MS {
        return Err(ApiError::input(format!(
            "the time from {since} to {until} is longer than 31 days: ask for a shorter one"
        )));
    }
    let oldest = call
        .scan("recording_start", store::recorded_runs::oldest)
        .await?;
    // Before, the pools would only wait for the first task. Minutes, so that a caller who asks
    // again asks the same.
    let begin = oldest.map(|oldest| oldest.plus_millis(-HOUR_MS).start_of(MINUTE_MS));
    let begin = begin.filter(|begin| *begin < until);
    Ok((begin.map_or(since, |begin| since.max(begin)), until))
}

fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    let parsed = text.map(str::parse::<Timestamp>).transpose();
    parsed.map_err(|bad| ApiError::input(format!("`{name}`: {bad}")))
}

async fn answer(
    app: Arc<App>,
    now: Timestamp,
    time: (Timestamp, Timestamp),
    question: Question,
    work: Work,
) -> Answer {
    let goes_on = || work.is_wanted();
    let loaded = recording::load(&app, now, time, MAX_ENTRIES, &goes_on).await;
    let Some(recording) = loaded.map_err(refusal)? else {
        return Err(unwanted());
    };
    check_pools(recording.pools.len(), &question)?;
    let (done, answer) = oneshot::channel();
    let simulating = move || {
        let _ = done.send(simulate(&recording, question, &work, MAX_PROCESSOR_SECONDS));
    };
    let thread = std::thread::Builder::new().name("what-if".to_owned());
    let thread = thread.spawn(simulating);
    thread.map_err(|error| Refusal::Failed(format!("cannot start a thread: {error}")))?;
    let broken = |_| Err(Refusal::Failed("a simulation broke off".to_owned()));
    answer.await.unwrap_or_else(broken)
}

fn check_pools(n_pools: usize, question: &Question) -> Result<(), Refusal> {
    match n_pools > MAX_POOLS && question.pools.is_empty() {
        true => Err(Refusal::Input(format!(
            "there are more than {MAX_POOLS} pools: name those to simulate in `workerPools`"
        ))),
        false => Ok(()),
    }
}

/// Answers on this thread, which is for nothing else.
fn simulate(recording: &Recording, question: Question, work: &Work, seconds: i64) -> Answer {
    // Requests and plans come first. Without the right to lower it the priority stays.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
    let what_if = WhatIf::new(recording, question);
    let what_if = what_if.map_err(|bad| Refusal::Input(bad.to_string()))?;
    let n_all = what_if.n_simulations();
    let note = |n_done| work.note(Simulations { n_done, n_all });
    note(0);
    let has_time = || processor_seconds() < seconds;
    let report = what_if.run(1, &note, &|| work.is_wanted() && has_time());
    match report {
        Ok(report) => Ok(Arc::new(report.document())),
        Err(RecordedStudyError::Pool(bad)) => Err(Refusal::Input(bad.to_string())),
        Err(RecordedStudyError::Stopped) if !work.is_wanted() => Err(unwanted()),
        Err(RecordedStudyError::Stopped) => Err(Refusal::Input(format!(
            "the simulations take more than {seconds} seconds of processor time: ask about a \
             shorter time, fewer pools or fewer seeds, or use `fleetwright simulate recorded`"
        ))),
    }
}

/// The processor time of this thread.
fn processor_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec
}

fn unwanted() -> Refusal {
    Refusal::Input(
        "the simulation was stopped, because no caller waited for it: ask again".to_owned(),
    )
}

fn refusal(error: ApiError) -> Refusal {
    match error.code {
        Code::InputError => Refusal::Input(error.message),
        Code::DatabaseUnavailable => Refusal::Unavailable(error.message),
        Code::MalformedPayload
        | Code::InvalidRequestArguments
        | Code::InputValidationError
        | Code::AuthenticationFailed
        | Code::InsufficientScopes
        | Code::ResourceNotFound
        | Code::RequestConflict
        | Code::ResourceExpired
        | Code::InputTooLarge
        | Code::RequestTimeout
        | Code::InsufficientStorage
        | Code::InternalServerError
        | Code::ProviderSetupFailed
        | Code::QueueUnavailable
        | Code::TreeUnavailable
        | Code::LaunchPending
        | Code::TooManyRequests
        | Code::ServerBusy
        | Code::ClockUnknown => {
            let cause = error.cause.map(|cause| cause.to_string());
            Refusal::Failed(cause.unwrap_or(error.message))
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Input(text) => Self::input(text),
            Refusal::Unavailable(text) => Self::new(Code::DatabaseUnavailable, text),
            Refusal::Failed(text) => Self::caused_by(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use simulate::recording::RecordingReader;
    use testing::sizes_around;

    use super::*;

    fn recording() -> Recording {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000).to_string();
        let config = json!({"launchConfigId": "east", "providerId": "fake", "price": 0.5,
            "configuration": {}});
        let entries = [
            json!({"recording": {"version": 1, "since": at(0), "until": at(36_000),
                "recordingDays": 8, "roundSeconds": 10, "scanSeconds": 20}}),
            json!({"pool": {"workerPoolId": "a/b", "lastModified": at(0),
                "config": {"maxCapacity": 3}, "launchConfigs": [config]}}),
            json!({"run": {"workerPoolId": "a/b", "waitingSince": at(10), "started": at(20),
                "resolved": at(30_000), "reason": "completed"}}),
        ];
        let mut reader = RecordingReader::default();
        for (number, entry) in entries.iter().enumerate() {
            reader.add_line(number + 1, &entry.to_string()).unwrap();
        }
        reader.finish().unwrap()
    }

    fn question() -> Question {
        Question {
            seeds: vec![1, 2],
            ..Question::default()
        }
    }

    #[test]
    fn processor_time_is_limited() {
        let answer = |seconds| simulate(&recording(), question(), &Work::alone(), seconds);
        assert!(answer(1_000).is_ok());
        let Err(Refusal::Input(text)) = answer(0) else {
            panic!("no time was left");
        };
        let start = "the simulations take more than 0 seconds of processor time: ";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn nobody_waits_for_a_stopped_simulation() {
        let work = Work::alone();
        work.stop();
        assert_eq!(
            simulate(&recording(), question(), &work, 1_000),
            Err(unwanted())
        );
    }

    #[test]
    fn many_pools_have_to_be_named() {
        for size in sizes_around("server::api::fleetwright::what_if::MAX_POOLS", MAX_POOLS) {
            let checked = check_pools(size, &question());
            assert_eq!(checked.is_ok(), size <= MAX_POOLS);
            let named = Question {
                pools: ["a/b".parse().unwrap()].into(),
                ..question()
            };
            assert_eq!(check_pools(size, &named), Ok(()));
        }
    }

    #[test]
    fn a_body_of_another_shape_is_refused() {
        for body in [
            json!({"change": 1}),
            json!({"x": 1}),
            json!({"workerPools": "a/b"}),
        ] {
            assert!(serde_json::from_value::<Body>(body).is_err());
        }
        let empty: Result<Body, _> = serde_json::from_value(Value::Object(Default::default()));
        assert!(empty.is_ok());
    }
}
