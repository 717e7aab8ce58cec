//! The answer to workers that ask whether their launch config is still active.

use domain::id::WorkerKey;
use domain::launch_config_state::{LaunchConfigAnswer, WorkerLaunchConfig};
use domain::time::Timestamp;

use super::WorkerError;
use crate::Engine;
use crate::fleet::OverridesInForce;

pub async fn ask_launch_config(
    engine: &Engine,
    key: WorkerKey,
    now: Timestamp,
) -> Result<LaunchConfigAnswer, WorkerError> {
    let read = engine.store.read("worker_launch_config", move |tx| {
        let not_found = || WorkerError::NotFound("Worker not found".to_owned());
        let worker = store::workers::get(tx, &key)?.ok_or_else(not_found)?;
        let pool = store::pools::get(tx, &key.pool_id)?;
        let config = match &worker.launch_config_id {
            Some(id) => store::launch_configs::get(tx, &key.pool_id, id)?,
            None => None,
        };
        let overrides = match (&config, &pool) {
            (Some(config), Some(pool)) if !config.archived => {
                OverridesInForce::read(tx, now, &pool.id, &pool.id)?.of_pool(pool)
            }
            (Some(_) | None, Some(_) | None) => Vec::new(),
        };
        let known = WorkerLaunchConfig {
            provider_id: &worker.provider_id,
            group: &worker.key.group,
            launch_config_id: worker.launch_config_id.as_ref(),
            declared_config_id: worker.terms.config_id.as_ref(),
            pool: pool.as_ref(),
            config: config.as_ref(),
        };
        Ok(known.answer(&overrides, now))
    });
    read.await
}
