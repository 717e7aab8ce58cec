//! Takes note of what becomes of runs in the queue of another deployment, as its broker tells.

use std::sync::Arc;

use async_trait::async_trait;
use backplane::{Binding, Broker, BrokerError, Inbox};
use domain::run_outcome::OUTCOME_EXCHANGES;
use domain::task::MAX_RUNS;
use engine::Engine;
use rand::RngExt;
use serde_json::Value;
use store::StoreError;

use super::super::backoff::Backoff;
use super::super::batches::Batches;
use super::super::driver::{Task, summary};
use super::{MAX_BATCHES, note};

const BATCH: u32 = 500;

/// Reads an inbox that all processes share: each message comes to one of them, and waits while none is there.
/// The broker hears that it is done with only after the commit, so none is lost, and repeats change nothing.
pub struct OutsideOutcomes {
    engine: Arc<Engine>,
    broker: Broker,
    /// Of messages.
    batches: Batches,
    inbox: Option<Inbox>,
    backoff: Backoff,
}

/// Why reading came to a stop for now.
enum Stop {
    Store(StoreError),
    Broker(BrokerError),
}

impl OutsideOutcomes {
    pub fn new(engine: Arc<Engine>, broker: Broker) -> Self {
        let usual = Batches {
            size: BATCH,
            most: MAX_BATCHES,
        };
        Self::in_batches(engine, broker, usual)
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
            let noting = self.engine.store.write("outcomes_note", move |tx| {
                note(tx, bodies.iter().map(Vec::as_slice))
            });
            let noted = noting.await?;
            taken.acknowledge().await?;
            n_new += noted.new.len() as u64;
            noted.tell();
        }
        // Only an inbox that does what it should is used again: what another one had taken comes again.
        self.inbox = Some(inbox);
        Ok(n_new)
    }

    async fn open(&self) -> Result<Inbox, BrokerError> {
        let user = self.broker.user()?;
        let queue = format!(
            "queue/{user}/fleetwright-outcomes-{}",
            own_name(&self.engine)
        );
        Inbox::open(&self.broker, &queue, &bindings()).await
    }
}

#[async_trait]
impl Task for OutsideOutcomes {
    const NAME: &'static str = "outside_outcomes";

    async fn activate(&mut self) -> Result<Value, String> {
        let now = self.engine.clock.now();
        if self.backoff.must_wait(now) {
            return Ok(Value::Null);
        }
        match self.read().await {
            Ok(n_new) => {
                if let Some(since) = self.backoff.succeeded() {
                    tracing::info!(
                        "outcomes of runs come again; the queue's broker was away since {since}"
                    );
                }
                Ok(summary(&[("outcomes", n_new)]))
            }
            Err(Stop::Store(problem)) => Err(problem.to_string()),
            Err(Stop::Broker(problem)) => {
                let chance = self.engine.random.with(|random| random.random());
                if self.backoff.failed(now, chance) {
                    tracing::warn!(error = %problem,
                        "outcomes of runs wait, because the queue's broker cannot be read: {problem}");
                }
                Ok(Value::Null)
            }
        }
    }
}

/// Two deployments may use one broker as one user, but not one inbox.
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

/// Of runs that wait, only those that are not the first of their task say what became of another.
fn bindings() -> Vec<Binding> {
    let [resolved @ .., pending] = OUTCOME_EXCHANGES;
    let resolved = resolved.iter().map(|exchange| Binding {
        exchange: (*exchange).to_owned(),
        pattern: "primary.#".to_owned(),
    });
    let further = (1..MAX_RUNS).map(|run_id| Binding {
        exchange: pending.to_owned(),
        pattern: format!("primary.*.{run_id}.#"),
    });
    resolved.chain(further).collect()
}

impl From<StoreError> for Stop {
    fn from(problem: StoreError) -> Self {
        Self::Store(problem)
    }
}

impl From<BrokerError> for Stop {
    fn from(problem: BrokerError) -> Self {
        Self::Broker(problem)
    }
}
