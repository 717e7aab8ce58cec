//! Seals access tokens again after the keys changed.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::access::seal_again;

use super::driver::{ActivationResult, BackgroundTask, summary};

pub struct Sealing(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Sealing {
    fn name(&self) -> String {
        "sealing".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let Engine {
            store,
            keyring,
            random,
            ..
        } = self.0.as_ref();
        let sealed = seal_again(store, keyring, random).await?;
        Ok(summary(&[
            ("sealed_again", sealed.n_again as u64),
            ("not_opened", sealed.n_shut as u64),
        ]))
    }
}
