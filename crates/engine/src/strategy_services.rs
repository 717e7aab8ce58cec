//! The strategy services of the configuration: asked for decisions, each behind a breaker.
//!
//! A service that is down is asked rarely, so that its pools do not wait for it at each decision.
//! An answer that is wrong does not pause the service: it works, and others of its answers may be
//! right.

mod breaker;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cloud::{AskError, StrategyClient};
use domain::id::StrategyServiceId;
use domain::plan::{BadSettings, Proposal, ServiceAnswer, Settings, Snapshot, StrategyName};
use domain::time::Clock;
use metrics::counter;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use self::breaker::{ServiceBreaker, Turn};
use crate::measures::STRATEGY_REQUESTS;

/// Maximum number of unanswered requests to a service; further decisions use the fallback.
const MAX_UNANSWERED: usize = 16;

/// All configured strategy services.
#[derive(Default)]
pub struct StrategyServices {
    entries: BTreeMap<StrategyServiceId, Entry>,
}

/// Why a pool cannot use the strategy `external`.
#[derive(Debug, thiserror::Error)]
pub enum BadService {
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// The text follows the key `externalStrategy`.
    #[error("externalStrategy: {0}")]
    Unknown(String),
}

struct Entry {
    client: StrategyClient,
    breaker: Mutex<ServiceBreaker>,
    /// The last error of an answer, which is logged once.
    last_invalid: Mutex<Option<String>>,
    unanswered: Semaphore,
}

impl StrategyServices {
    pub fn new(clients: Vec<StrategyClient>) -> Self {
        let entry = |client: StrategyClient| {
            let entry = Entry {
                breaker: Mutex::default(),
                last_invalid: Mutex::default(),
                unanswered: Semaphore::new(MAX_UNANSWERED),
                client,
            };
            (entry.client.id().clone(), entry)
        };
        Self {
            entries: clients.into_iter().map(entry).collect(),
        }
    }

    /// Checks the settings of a pool with the strategy `external`, and that its service is
    /// configured. The configs of other pools are left to others.
    pub fn check(&self, config: &Map<String, Value>) -> Result<(), BadService> {
        if config.get("strategy").and_then(Value::as_str) != Some(StrategyName::External.as_str()) {
            return Ok(());
        }
        let Some(external) = Settings::parse(config)?.external else {
            return Ok(());
        };
        if self.entries.contains_key(&external.service) {
            return Ok(());
        }
        let name = external.service;
        let known: Vec<&str> = self.entries.keys().map(StrategyServiceId::as_str).collect();
        Err(BadService::Unknown(match known.is_empty() {
            true => format!(
                "there is no strategy service {name}: the configuration of the server has no \
                 section [strategies.{name}]"
            ),
            false => format!(
                "there is no strategy service {name}; the configured ones are: {}",
                known.join(", ")
            ),
        }))
    }

    /// Asks the service of the pool once, or not at all if it is paused. `None`: the pool has no
    /// service.
    pub async fn ask(
        &self,
        snapshot: &Snapshot,
        seed: u64,
        clock: &dyn Clock,
    ) -> Option<ServiceAnswer> {
        let service = snapshot.settings.external.as_ref()?.service.clone();
        let outcome = match self.entries.get(&service) {
            Some(entry) => entry.ask(snapshot, seed, clock).await,
            None => Err("it is not configured".to_owned()),
        };
        Some(ServiceAnswer {
            service,
            asked: snapshot.now,
            units: snapshot.capacity.all(),
            outcome,
        })
    }
}

impl Entry {
    async fn ask(
        &self,
        snapshot: &Snapshot,
        seed: u64,
        clock: &dyn Clock,
    ) -> Result<Proposal, String> {
        let Ok(_permit) = self.unanswered.try_acquire() else {
            self.count("busy");
            return Err(format!("{MAX_UNANSWERED} requests to it are unanswered"));
        };
        if let Turn::Paused(why) = self.breaker().turn(clock.now()) {
            self.count("paused");
            return Err(why);
        }
        let asked = self.client.ask(snapshot.service_request(seed)).await;
        self.note(&asked, clock);
        asked.map_err(|error| error.to_string())
    }

    fn note(&self, asked: &Result<Proposal, AskError>, clock: &dyn Clock) {
        let id = self.client.id();
        if let Err(AskError::Failed(why)) = asked {
            self.count("failed");
            if self.breaker().fail(clock.now(), why) {
                tracing::warn!(strategy.id = %id, error = %why,
                    "the strategy service {id} does not work: {why}. The fallbacks of its pools \
                     decide until it answers");
            }
            return;
        }
        if self.breaker().succeed() {
            tracing::info!(strategy.id = %id, "the strategy service {id} answers again");
        }
        let mut last = self
            .last_invalid
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let invalid = match asked {
            Err(AskError::Invalid(why)) => Some(why.clone()),
            Ok(_) | Err(AskError::Failed(_)) => None,
        };
        self.count(if invalid.is_some() {
            "invalid"
        } else {
            "answered"
        });
        if let Some(why) = invalid.as_ref().filter(|why| last.as_ref() != Some(*why)) {
            tracing::warn!(strategy.id = %id, error = %why,
                "the strategy service {id} gave a wrong answer: {why}");
        }
        *last = invalid;
    }

    fn count(&self, outcome: &'static str) {
        let labels = [
            ("strategy", self.client.id().to_string()),
            ("outcome", outcome.to_owned()),
        ];
        counter!(STRATEGY_REQUESTS, &labels).increment(1);
    }

    fn breaker(&self) -> MutexGuard<'_, ServiceBreaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Poll;

    use access::Secret;
    use access::seal::{Key, Keyring};
    use cloud::{StrategyContext, StrategySettings};
    use contract::Schemas;
    use domain::demand::Demand;
    use domain::facts::{Facts, Rooms};
    use domain::plan::StrategyDefaults;
    use domain::pool::{Pool, PoolDefinition};
    use domain::supply::Horizon;
    use futures_util::poll;
    use serde_json::json;
    use testing::sizes_around;
    use tokio::net::TcpListener;

    use super::*;
    use crate::clock::SystemClock;

    /// One service, `slow`, at this port.
    fn services(port: u16) -> StrategyServices {
        let settings = StrategySettings {
            url: format!("http://127.0.0.1:{port}"),
            secret: Some(Secret::new("a-secret-of-more-than-22-characters")),
            secret_file: None,
            time_limit_seconds: 30,
            max_answer_bytes: 1_000,
        };
        let secret = Secret::new("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        let id = "test".to_owned();
        let keyring = Keyring::new(vec![Key { id, secret }]).unwrap();
        let context = StrategyContext {
            schemas: Schemas::new(),
            keyring: Arc::new(keyring),
            root_url: "http://localhost".to_owned(),
            clock: Arc::new(SystemClock),
        };
        let client = StrategyClient::new("slow".parse().unwrap(), settings, &context);
        StrategyServices::new(vec![client.unwrap()])
    }

    fn snapshot() -> Snapshot {
        let config = json!({"maxCapacity": 5, "strategy": "external", "externalStrategy": "slow"});
        let now = SystemClock.now();
        let definition = PoolDefinition {
            provider_id: "one".parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: config.as_object().unwrap().clone(),
            owner: String::new(),
            email_on_error: false,
        };
        let pool = Pool::new("p/a".parse().unwrap(), definition, now);
        let horizon = Horizon::new(now, Some(now));
        let facts = Facts::new(
            pool,
            Demand::default(),
            horizon,
            StrategyDefaults::default(),
        );
        facts.snapshot(&[], &Rooms::new(), Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn a_service_gets_no_further_requests_while_many_are_unanswered() {
        // Connections to it are made, and nothing answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (services, snapshot) = (services(port), snapshot());
        let ask = || Box::pin(services.ask(&snapshot, 1, &SystemClock));
        for count in sizes_around("engine::strategy_services::MAX_UNANSWERED", MAX_UNANSWERED) {
            let mut open = Vec::new();
            let mut refused = 0;
            for _ in 0..count {
                let mut asked = ask();
                match poll!(asked.as_mut()) {
                    Poll::Pending => open.push(asked),
                    Poll::Ready(answer) => {
                        let why = answer.unwrap().outcome.unwrap_err();
                        assert_eq!(why, "16 requests to it are unanswered");
                        refused += 1;
                    }
                }
            }
            assert_eq!(open.len(), count.min(MAX_UNANSWERED));
            assert_eq!(refused, count.saturating_sub(MAX_UNANSWERED));
            drop(open);
            assert!(
                poll!(ask()).is_pending(),
                "requests that were given up count no more"
            );
        }
    }
}
