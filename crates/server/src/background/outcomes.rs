//! Records the outcomes of runs, read from our own stream of events.
//!
//! The transaction that resolves a run writes only its event. Outcomes are taken from the stream
//! afterwards. The transaction that writes them also moves the reader's position, so a crash
//! neither loses an outcome nor counts it twice.

mod outside;
mod retention;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use domain::recording::RecordedRun;
use domain::run_outcome::{BadMessage, EndedRun, RunClaim, RunNews, RunOutcome};
use domain::time::Timestamp;
use metrics::counter;
use serde_json::Value;
use store::event_readers::EventReader;
use store::{StoreError, Tx};

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;
use crate::telemetry::taskcluster;
use crate::telemetry::{BAD_OUTCOMES, OUTCOMES};

pub use outside::OutsideOutcomes;
pub(super) use retention::{forget, forget_run_counts};

/// The reader of the stream that records outcomes.
pub(super) const READER: &str = "outcomes";
/// After a crash, another process waits this long.
const LEASE_MS: i64 = 10_000;
const BATCH: u32 = 500;
const SPAN: i64 = 5_000;
const MAX_BATCHES: usize = 50;

/// Limits on how much of the stream one activation reads.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeLimits {
    /// Of messages that may contain an outcome.
    pub messages: Batches,
    /// Maximum number of events that one transaction examines.
    pub span: i64,
}

/// For the built-in queue.
pub struct Outcomes(pub Arc<App>);

/// The result of one transaction.
#[derive(Default)]
struct Collected {
    noted: Noted,
    /// The end of the stream has been reached.
    is_done: bool,
}

/// The result of reading messages.
#[derive(Default)]
struct Noted {
    new: Vec<RunOutcome>,
    /// The claims that the messages show.
    claims: Vec<RunClaim>,
    /// Invalid messages: their number, and the error of the first.
    n_bad: u64,
    problem: Option<BadMessage>,
}

#[async_trait]
impl BackgroundTask for Outcomes {
    fn name(&self) -> String {
        "outcomes".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let messages = Batches::new(BATCH, MAX_BATCHES);
        let limits = OutcomeLimits {
            messages,
            span: SPAN,
        };
        self.with_limits(limits).await
    }
}

impl Outcomes {
    pub async fn with_limits(&self, limits: OutcomeLimits) -> ActivationResult {
        let app = &self.0;
        let (process, now) = (app.events.process.clone(), app.engine.clock.now());
        let look = app.engine.store.read("outcomes_look", move |tx| {
            let reader = store::event_readers::get(tx, READER)?;
            Ok::<_, StoreError>((reader, store::events::head(tx)?))
        });
        match look.await? {
            // A migration creates this row, so somebody has deleted it.
            (None, _) => {
                let open = |tx: &mut Tx<'_>| store::event_readers::open(tx, READER);
                app.engine.store.write("outcomes_open", open).await?;
                return Ok(Value::Null);
            }
            (Some(reader), head) if !has_work(&reader, head, &process, now) => {
                return Ok(Value::Null);
            }
            (Some(_), _) => {}
        }
        let mut n_new = 0;
        for _ in 0..limits.messages.most {
            let process = process.clone();
            let collected = app.engine.store.write("outcomes_collect", move |tx| {
                collect(tx, &process, now, limits)
            });
            let Collected { noted, is_done } = collected.await?;
            n_new += noted.new.len() as u64;
            noted.report(app.config.metrics.taskcluster_names);
            if is_done {
                break;
            }
        }
        Ok(summary(&[("outcomes", n_new)]))
    }
}

fn has_work(reader: &EventReader, head: i64, process: &str, now: Timestamp) -> bool {
    reader.position < head && !reader.is_held_by_another(process, now, LEASE_MS)
}

/// Takes the next outcomes from the stream.
fn collect(
    tx: &mut Tx<'_>,
    process: &str,
    now: Timestamp,
    limits: OutcomeLimits,
) -> Result<Collected, StoreError> {
    let Some(reader) = store::event_readers::take(tx, READER, process, now, LEASE_MS)? else {
        let is_done = true;
        let noted = Noted::default();
        return Ok(Collected { noted, is_done });
    };
    let head = store::events::head(tx)?;
    let until = head.min(reader.position.saturating_add(limits.span));
    let messages = store::run_messages::list(tx, reader.position, until, limits.messages.size)?;
    let place = match messages.items.last() {
        Some((last, _)) if messages.may_have_more(limits.messages.size) => *last,
        Some(_) | None => until,
    };
    let bodies = messages.items.iter().map(|(_, payload)| payload.as_bytes());
    let noted = note(tx, bodies)?;
    if place > reader.position && !store::event_readers::advance(tx, READER, reader.fence, place)? {
        return Err(tx.lost_race());
    }
    let is_done = place >= head;
    Ok(Collected { noted, is_done })
}

/// Reads messages and writes their outcomes.
fn note<'a>(tx: &mut Tx<'_>, bodies: impl Iterator<Item = &'a [u8]>) -> Result<Noted, StoreError> {
    let mut noted = Noted::default();
    let mut ended = Vec::new();
    for body in bodies {
        match RunNews::of_message(body) {
            Ok(Some(news)) => {
                noted.claims.push(news.claim());
                if let RunNews::Ended(run) = news {
                    ended.push(run);
                }
            }
            Ok(None) => {}
            Err(problem) => {
                noted.n_bad += 1;
                noted.problem.get_or_insert(problem);
            }
        }
    }
    let outcomes: Vec<RunOutcome> = ended.iter().map(|run| run.outcome.clone()).collect();
    noted.new = store::run_outcomes::note(tx, &outcomes)?;
    record(tx, &ended, &noted.new)?;
    Ok(noted)
}

/// Records the new ones of these runs for simulations.
fn record(tx: &mut Tx<'_>, ended: &[EndedRun], new: &[RunOutcome]) -> Result<(), StoreError> {
    let mut missing: BTreeSet<(&TaskId, u32)> =
        new.iter().map(|run| (&run.task_id, run.run_id)).collect();
    let mut recorded = Vec::new();
    for run in ended {
        if missing.remove(&(&run.outcome.task_id, run.outcome.run_id)) {
            recorded.extend(RecordedRun::of(run));
        }
    }
    store::recorded_runs::insert(tx, &recorded)
}

impl Noted {
    /// Updates metrics and the log; call it after the commit.
    fn report(&self, by_queue: bool) {
        for outcome in &self.new {
            if by_queue {
                taskcluster::count_outcome(outcome);
            }
            let state = outcome.reason.state().as_str();
            counter!(OUTCOMES, "outcome" => state).increment(1);
        }
        if let Some(problem) = &self.problem {
            counter!(BAD_OUTCOMES).increment(self.n_bad);
            tracing::warn!(error = %problem, messages.n_dropped = self.n_bad,
                "{} invalid messages about runs were dropped; the first: {problem}",
                self.n_bad);
        }
    }
}
