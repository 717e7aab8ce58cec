//! Looks at every machine, provider by provider side by side; and ends those that were told to go.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::time::HOUR_MS;
use futures_util::future::join_all;
use serde_json::Value;

use super::driver::{Task, summary};
use crate::app::App;
use crate::fleet::{self, Told};

pub struct Scan(pub Arc<App>);

pub struct Ending {
    pub app: Arc<App>,
    told: BTreeMap<ProviderId, Told>,
}

impl Ending {
    pub fn new(app: Arc<App>) -> Self {
        let told = BTreeMap::new();
        Self { app, told }
    }
}

#[async_trait]
impl Task for Scan {
    const NAME: &'static str = "scan";

    async fn activate(&mut self) -> Result<Value, String> {
        let app = &self.0;
        let ids: Vec<ProviderId> = app.providers.listed().map(|(id, _)| id.clone()).collect();
        let mut scans = Vec::new();
        for id in ids {
            let app = Arc::clone(app);
            scans.push(async move {
                let scanned = fleet::scan_provider(&app, &id).await;
                (id, scanned)
            });
        }
        let mut totals = [
            ("stopped", 0),
            ("ended", 0),
            ("adopted", 0),
            ("settled", 0),
            ("problems", 0),
        ];
        let mut failed = None;
        for (id, scanned) in join_all(scans).await {
            match scanned {
                Ok(Some(done)) => {
                    let counts = [
                        done.stopped,
                        done.ended,
                        done.adopted,
                        done.settled,
                        done.problems,
                    ];
                    for ((_, total), count) in totals.iter_mut().zip(counts) {
                        *total += count;
                    }
                }
                Ok(None) => {}
                Err(problem) => failed = Some(format!("the scan of {id} stopped: {problem}")),
            }
        }
        failed.map_or_else(|| Ok(summary(&totals)), Err)
    }
}

#[async_trait]
impl Task for Ending {
    const NAME: &'static str = "ending";

    async fn activate(&mut self) -> Result<Value, String> {
        let now = self.app.clock.now();
        let ids: Vec<ProviderId> = self
            .app
            .providers
            .listed()
            .map(|(id, _)| id.clone())
            .collect();
        let mut work = Vec::new();
        for id in ids {
            let mut told = self.told.remove(&id).unwrap_or_default();
            // Whoever is still there is told again long before this.
            told.retain(|_, at| now.as_millis() - at.as_millis() < HOUR_MS);
            let app = Arc::clone(&self.app);
            work.push(async move {
                let done = fleet::end_stopping(&app, &id, &mut told).await;
                (id, told, done)
            });
        }
        let (mut n_told, mut failed) = (0, None);
        for (id, told, done) in join_all(work).await {
            self.told.insert(id, told);
            match done {
                Ok(count) => n_told += count,
                Err(problem) => failed = Some(problem.to_string()),
            }
        }
        failed.map_or_else(|| Ok(summary(&[("told", n_told)])), Err)
    }
}
