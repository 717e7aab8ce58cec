//! Looks at every machine, and ends those that were told to go.
//!
//! Each provider has tasks of its own: one that does not answer holds up no other.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::time::HOUR_MS;
use serde_json::Value;

use super::driver::{Task, summary};
use crate::app::App;
use crate::fleet::{self, Told};

/// Looks at the machines of one provider.
pub struct Scan {
    app: Arc<App>,
    provider_id: ProviderId,
}

/// Ends machines of one provider.
pub struct Ending {
    app: Arc<App>,
    provider_id: ProviderId,
    told: Told,
}

impl Scan {
    /// One for each provider.
    pub fn each(app: &Arc<App>) -> Vec<Self> {
        let of = |provider_id| Self {
            app: Arc::clone(app),
            provider_id,
        };
        provider_ids(app).map(of).collect()
    }
}

impl Ending {
    /// One for each provider.
    pub fn each(app: &Arc<App>) -> Vec<Self> {
        let of = |provider_id| Self {
            app: Arc::clone(app),
            provider_id,
            told: Told::new(),
        };
        provider_ids(app).map(of).collect()
    }

    pub fn provider_id(&self) -> &ProviderId {
        &self.provider_id
    }
}

fn provider_ids(app: &App) -> impl Iterator<Item = ProviderId> {
    app.providers.listed().map(|(id, _)| id.clone())
}

#[async_trait]
impl Task for Scan {
    const NAME: &'static str = "scan";

    fn name(&self) -> String {
        format!("{} {}", Self::NAME, self.provider_id)
    }

    async fn activate(&mut self) -> Result<Value, String> {
        let scanned = fleet::scan_provider(&self.app, &self.provider_id).await;
        let scanned = scanned.map_err(|problem| problem.to_string())?;
        Ok(scanned.map_or(Value::Null, |done| {
            summary(&[
                ("stopped", done.stopped),
                ("ended", done.ended),
                ("adopted", done.adopted),
                ("settled", done.settled),
                ("problems", done.problems),
            ])
        }))
    }
}

#[async_trait]
impl Task for Ending {
    const NAME: &'static str = "ending";

    fn name(&self) -> String {
        format!("{} {}", Self::NAME, self.provider_id)
    }

    async fn activate(&mut self) -> Result<Value, String> {
        let now = self.app.clock.now();
        // Whoever is still there is told again long before this.
        self.told.retain(|_, at| now.millis_since(*at) < HOUR_MS);
        let done = fleet::end_stopping(&self.app, &self.provider_id, &mut self.told).await;
        let n_told = done.map_err(|problem| problem.to_string())?;
        Ok(summary(&[("told", n_told)]))
    }
}
