//! Charges machines to the accounts of costs, and adds old hours to their days.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::costs::{self, ChargeLimits};
use store::StoreError;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

/// Machines in one transaction, so that other transactions do not wait long.
const BATCH: u32 = 100;
/// Runs that one transaction reads, about twenty for each machine. A machine with more runs is
/// charged in parts.
const MAX_RUNS: u32 = 2_000;
/// Maximum number of transactions per activation; the next one continues.
const MAX_BATCHES: usize = 200;

pub struct Costs(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Costs {
    fn name(&self) -> String {
        "costs".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.in_batches(Batches::new(BATCH, MAX_BATCHES), MAX_RUNS)
            .await
    }
}

impl Costs {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches, max_runs: u32) -> ActivationResult {
        // Neither hinders the other.
        let charged = self.charge(batches, max_runs).await;
        let folded = self.fold(batches.most).await;
        Ok(summary(&[
            ("machines_charged", charged?),
            ("hours_folded", folded?),
        ]))
    }

    async fn charge(&self, batches: Batches, max_runs: u32) -> Result<u64, StoreError> {
        let limits = ChargeLimits {
            machines: batches.size,
            runs: max_runs,
        };
        let mut n_charged = 0;
        for _ in 0..batches.most {
            let charged = costs::charge_machines(&self.0, limits).await?;
            n_charged += charged.machines;
            if !charged.has_more {
                break;
            }
        }
        Ok(n_charged)
    }

    async fn fold(&self, most: usize) -> Result<u64, StoreError> {
        let mut n_folded = 0;
        for _ in 0..most {
            if !costs::fold_hour(&self.0).await? {
                break;
            }
            n_folded += 1;
        }
        Ok(n_folded)
    }
}
