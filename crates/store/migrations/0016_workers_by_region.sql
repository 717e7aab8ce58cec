-- The scan looks at each region by itself.
DROP INDEX workers_of_provider;
CREATE INDEX workers_of_provider ON workers (provider_id, worker_group, worker_pool_id, worker_id)
    WHERE state <> 'stopped';
