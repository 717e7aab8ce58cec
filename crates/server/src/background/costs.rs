//! Charges machines to the accounts of costs, and adds old hours to their days.

use std::sync::Arc;

use async_trait::async_trait;
use engine::{Engine, costs};

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

/// Machines in one transaction, so that other transactions do not wait long.
const BATCH: u32 = 100;
/// Maximum number of transactions per activation; the next one continues.
const MAX_BATCHES: usize = 200;

pub struct Costs(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Costs {
    fn name(&self) -> String {
        "costs".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.in_batches(Batches::new(BATCH, MAX_BATCHES)).await
    }
}

impl Costs {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        let charge = || costs::charge_machines(&self.0, batches.size);
        let charged = batches.repeat(charge).await?;
        let mut n_folded = 0;
        for _ in 0..batches.most {
            if !costs::fold_hour(&self.0).await? {
                break;
            }
            n_folded += 1;
        }
        Ok(summary(&[
            ("machines_charged", charged),
            ("hours_folded", n_folded),
        ]))
    }
}
