//! Records outcomes of runs and first claims of workers, from the broker of an outside queue.

use std::sync::Arc;

use async_trait::async_trait;
use backplane::{Binding, Broker, BrokerError, Inbox};
use domain::run_outcome::{CLAIM_EXCHANGE, OUTCOME_EXCHANGES};
use domain::task::MAX_RUNS;
use engine::Engine;
use engine::fleet::note_first_claims;
use serde_json::Value;
use store::StoreError;

use super::super::backoff::Backoff;
use super::super::batches::Batches;
use super::super::driver::{ActivationResult, BackgroundTask, summary};
use super::{MAX_BATCHES, note};

const BATCH: u32 = 500;

/// Reads a broker queue that all processes share: each message goes to one of them, and waits while
/// none is connected. Messages are acknowledged only after the commit, so none is lost. Repeated
/// messages change nothing.
pub struct OutsideOutcomes {
    engine: Arc<Engine>,
    broker: Broker,
    /// Limits of reading messages.
    batches: Batches,
    inbox: Option<Inbox>,
    backoff: Backoff,
}

/// Why reading stopped.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Stop {
    Store(#[from] StoreError),
    Broker(#[from] BrokerError),
}

impl OutsideOutcomes {
    pub fn new(engine: Arc<Engine>, broker: Broker) -> Self {
        Self::in_batches(engine, broker, Batches::new(BATCH, MAX_BATCHES))
    }

    /// With other limits for one activation.
    pub fn in_batches(engine: Arc<Engine>, broker: Broker, batches: Batches) -> Self {
        Self {
            engine,
            broker,
            batches,
            inbox: None,
            backoff: Backoff::default(),
        }
    }

    async fn read(&mut self) -> Result<u64, Stop> {
        let mut n_new = 0;
        let mut inbox = match self.inbox.take() {
            Some(inbox) => inbox,
            None => self.open().await?,
        };
        for _ in 0..self.batches.most {
            let mut taken = inbox.take(self.batches.size as usize)?;
            if taken.bodies.is_empty() {
                break;
            }
            let bodies = Arc::new(std::mem::take(&mut taken.bodies));
            let now = self.engine.clock.now();
            let noting = self.engine.change("outcomes_note", now, move |change| {
                let mut noted = note(change.tx, bodies.iter().map(Vec::as_slice))?;
                note_first_claims(change, std::mem::take(&mut noted.claims))?;
                Ok::<_, StoreError>(noted)
            });
            let noted = noting.await?;
            taken.acknowledge().await?;
            n_new += noted.new.len() as u64;
            // That deployment's queue has metrics of its own.
            noted.report(false);
        }
        // Only a working connection is used again. The broker delivers unacknowledged messages of a
        // failed one again.
        self.inbox = Some(inbox);
        Ok(n_new)
    }

    async fn open(&self) -> Result<Inbox, BrokerError> {
        let (user, name) = (self.broker.user()?, own_name(&self.engine));
        let queue = format!("queue/{user}/fleetwright-outcomes-{name}");
        Inbox::open(&self.broker, &queue, &bindings()).await
    }
}

#[async_trait]
impl BackgroundTask for OutsideOutcomes {
    fn name(&self) -> String {
        "outside_outcomes".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let now = self.engine.clock.now();
        if self.backoff.must_wait(now) {
            return Ok(Value::Null);
        }
        match self.read().await {
            Ok(n_new) => {
                if let Some(since) = self.backoff.succeeded() {
                    tracing::info!(
                        "outcomes of runs arrive again; the queue's broker was unavailable since \
                         {since}"
                    );
                }
                Ok(summary(&[("outcomes", n_new)]))
            }
            Err(Stop::Store(problem)) => Err(problem.into()),
            Err(Stop::Broker(problem)) => {
                if self.backoff.failed(now, &self.engine.random) {
                    tracing::warn!(error = %problem,
                        "cannot read outcomes of runs from the queue's broker, they wait: \
                         {problem}");
                }
                Ok(Value::Null)
            }
        }
    }
}

/// Two deployments may share a broker user, but not a broker queue.
fn own_name(engine: &Engine) -> String {
    let (_, host) = engine
        .root_url
        .split_once("://")
        .unwrap_or(("", &engine.root_url));
    let plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '.';
    host.chars()
        .map(|sign| if plain(sign) { sign } else { '-' })
        .collect()
}

/// Of pending runs, only those after the first of a task imply the outcome of another run.
fn bindings() -> Vec<Binding> {
    let [resolved @ .., pending] = OUTCOME_EXCHANGES;
    let all = resolved.iter().copied().chain([CLAIM_EXCHANGE]);
    let all = all.map(|exchange| Binding {
        exchange: exchange.to_owned(),
        pattern: "primary.#".to_owned(),
    });
    let further = (1..MAX_RUNS).map(|run_id| Binding {
        exchange: pending.to_owned(),
        pattern: format!("primary.*.{run_id}.#"),
    });
    all.chain(further).collect()
}
