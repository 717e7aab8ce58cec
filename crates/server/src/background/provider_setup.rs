//! Sets up providers that are not ready yet, until they are, and reports those that stay so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::time::{HOUR_MS, Timestamp};
use engine::Engine;
use engine::fleet::{self, OutageLimits};
use serde_json::{Map, Value, json};

use super::driver::{ActivationResult, BackgroundTask};

/// Longer than a provider's default time limits.
const SET_UP: Duration = Duration::from_secs(90);
/// Pools that began to need the provider since the last look hear of it after this time.
const LOOK_AGAIN_MS: i64 = HOUR_MS;

pub struct ProviderSetup {
    engine: Arc<Engine>,
    /// Providers whose last set-up failed, and when pools were looked at for a report of that. The
    /// first failure may pass, and is not reported.
    out_of_service: BTreeMap<ProviderId, Option<Timestamp>>,
}

impl ProviderSetup {
    pub const PERIOD: Duration = Duration::from_secs(60);

    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            out_of_service: BTreeMap::new(),
        }
    }

    /// Reports outages that go on.
    async fn report(&mut self, failed: Vec<(ProviderId, String)>) -> store::Result<u64> {
        let now = self.engine.clock.now();
        let before = std::mem::take(&mut self.out_of_service);
        let mut n_reported = 0;
        for (id, why) in failed {
            let looked = match before.get(&id) {
                None => None,
                Some(Some(at)) if (0..LOOK_AGAIN_MS).contains(&now.millis_since(*at)) => Some(*at),
                Some(_) => {
                    let limits = OutageLimits::default();
                    n_reported += fleet::report_outage(&self.engine, &id, &why, limits).await?;
                    Some(now)
                }
            };
            self.out_of_service.insert(id, looked);
        }
        Ok(n_reported)
    }
}

#[async_trait]
impl BackgroundTask for ProviderSetup {
    fn name(&self) -> String {
        "provider_setup".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let engine = Arc::clone(&self.engine);
        let (ready, failed) = engine.providers.set_up_missing(SET_UP).await;
        let period_ms = i64::try_from(Self::PERIOD.as_millis()).unwrap_or(i64::MAX);
        let next = engine.clock.now().plus_millis(period_ms);
        engine.providers.note_next_set_up(next);
        let mut problems = Vec::new();
        for (id, problem) in failed {
            tracing::warn!(provider.id = %id, "provider {id} failed to start: {problem}");
            problems.push((id.clone(), problem.to_string()));
        }
        let n_reported = self.report(problems).await?;
        let mut done = Map::new();
        if !ready.is_empty() {
            let ready: Vec<&str> = ready.into_iter().map(|id| id.as_str()).collect();
            done.insert("in_service".to_owned(), json!(ready));
        }
        if n_reported > 0 {
            done.insert("reported".to_owned(), json!(n_reported));
        }
        Ok(if done.is_empty() {
            Value::Null
        } else {
            Value::Object(done)
        })
    }
}
