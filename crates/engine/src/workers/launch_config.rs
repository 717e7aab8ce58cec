//! The answer to workers that ask whether their launch config is still active.

use domain::id::WorkerKey;
use domain::launch_config::host_successor;
use domain::launch_config_state::{LaunchConfigAnswer, WorkerLaunchConfig};
use domain::time::Timestamp;

use super::WorkerError;
use super::host_launch_config::read_own_and_active;
use crate::Engine;

pub async fn ask_launch_config(
    engine: &Engine,
    key: WorkerKey,
    now: Timestamp,
) -> Result<LaunchConfigAnswer, WorkerError> {
    let read = engine.store.read("worker_launch_config", move |tx| {
        let not_found = || WorkerError::NotFound("Worker not found".to_owned());
        let worker = store::workers::get(tx, &key)?.ok_or_else(not_found)?;
        let pool = store::pools::get(tx, &key.pool_id)?;
        let own = worker.launch_config_id.as_ref();
        let (config, active) = match own {
            Some(id) if !worker.is_declared() => {
                let own = store::launch_configs::get(tx, &key.pool_id, id)?;
                (own, Vec::new())
            }
            Some(_) => read_own_and_active(tx, &key.pool_id, own)?,
            None => (None, Vec::new()),
        };
        let successor = pool
            .as_ref()
            .and_then(|pool| host_successor(pool, &worker.provider_id, &active, config.as_ref()));
        let overrides = match &config {
            Some(config) if !config.archived => store::overrides::list_in_force(tx, now)?,
            Some(_) | None => Vec::new(),
        };
        let known = WorkerLaunchConfig {
            provider_id: &worker.provider_id,
            group: &worker.key.group,
            launch_config_id: worker.launch_config_id.as_ref(),
            held_config_id: worker.terms.config_id.as_ref(),
            successor_id: successor.map(|config| &config.id),
            pool: pool.as_ref(),
            config: config.as_ref(),
        };
        Ok(known.answer(&overrides, now))
    });
    read.await
}
