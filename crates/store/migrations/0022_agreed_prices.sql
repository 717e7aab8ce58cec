-- Prices are written with the launch, so that cost is what was agreed, not what is listed later.

-- Millionths of a dollar per hour and machine; null: not known.
ALTER TABLE launches ADD COLUMN price BIGINT;
ALTER TABLE workers ADD COLUMN price BIGINT;

-- Planning reads the price of running workers as well, from the index alone.
DROP INDEX workers_running;
CREATE INDEX workers_running ON workers (worker_pool_id, worker_group, worker_id, provider_id,
    launch_config_id, capacity, created, registered, idle_hold, draining, advised, advice_reason,
    price, state)
    WHERE state = 'running';
