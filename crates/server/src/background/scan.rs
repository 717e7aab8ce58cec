//! Scans the machines of providers, and ends machines of stopping workers.
//!
//! Each provider has tasks of its own, so an unresponsive one delays no other.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::ProviderId;
use engine::Engine;
use engine::fleet::{Scanner, Terminator};
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask, summary};

/// Scans the machines of one provider.
pub struct Scan {
    provider_id: ProviderId,
    scanner: Scanner,
}

/// Ends machines of one provider.
pub struct MachineTermination {
    provider_id: ProviderId,
    ender: Terminator,
}

impl Scan {
    /// One for each provider.
    pub fn each(engine: &Arc<Engine>) -> Vec<Self> {
        let of = |provider_id: ProviderId| Self {
            scanner: Scanner::new(Arc::clone(engine), provider_id.clone()),
            provider_id,
        };
        provider_ids(engine).map(of).collect()
    }
}

impl MachineTermination {
    /// One for each provider.
    pub fn each(engine: &Arc<Engine>) -> Vec<Self> {
        let of = |provider_id: ProviderId| Self {
            ender: Terminator::new(Arc::clone(engine), provider_id.clone()),
            provider_id,
        };
        provider_ids(engine).map(of).collect()
    }

    pub fn provider_id(&self) -> &ProviderId {
        &self.provider_id
    }
}

fn provider_ids(engine: &Engine) -> impl Iterator<Item = ProviderId> {
    engine.providers.listed().map(|(id, _)| id.clone())
}

#[async_trait]
impl BackgroundTask for Scan {
    fn name(&self) -> String {
        format!("scan {}", self.provider_id)
    }

    async fn activate(&mut self) -> ActivationResult {
        let scanned = self.scanner.scan().await?;
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
impl BackgroundTask for MachineTermination {
    fn name(&self) -> String {
        format!("ending {}", self.provider_id)
    }

    async fn activate(&mut self) -> ActivationResult {
        let n_told = self.ender.end_stopping().await?;
        Ok(summary(&[("told", n_told)]))
    }
}
