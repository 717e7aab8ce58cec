-- What planning reads of running workers, beside their other terms: from an index alone.

ALTER TABLE workers ADD COLUMN registered BIGINT;
ALTER TABLE workers ADD COLUMN idle_hold BIGINT;
-- The last advice: when, and why; `draining` says which.
ALTER TABLE workers ADD COLUMN advised BIGINT;
ALTER TABLE workers ADD COLUMN advice_reason TEXT;

CREATE INDEX workers_running ON workers (worker_pool_id, worker_group, worker_id, provider_id,
    launch_config_id, capacity, created, registered, idle_hold, draining, advised, advice_reason, state)
    WHERE state = 'running';
