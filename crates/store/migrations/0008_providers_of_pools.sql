-- A pool may have several providers, and may be made of a worker configuration.

-- Without the first, which stands in provider_id.
ALTER TABLE worker_pools ADD COLUMN further_provider_ids TEXT NOT NULL DEFAULT '[]';
ALTER TABLE worker_pools ADD COLUMN worker_configuration_id {key};

CREATE INDEX worker_pools_by_configuration ON worker_pools (worker_configuration_id, worker_pool_id)
    WHERE worker_configuration_id IS NOT NULL;

-- Supply is counted by provider as well, without touching the rows.
DROP INDEX workers_supply;
CREATE INDEX workers_supply ON workers (worker_pool_id, state, launch_config_id, draining, capacity, provider_id)
    WHERE state <> 'stopped';
