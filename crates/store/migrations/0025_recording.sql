-- The recorded history, which simulations replay: what ran, what was paid for, and when nobody
-- recorded. Rows are compact, and outlive the tasks, workers and pools that they are about.

CREATE TABLE recorded_runs (
    sequence {serial},
    worker_pool_id {key} NOT NULL,
    waiting_since BIGINT NOT NULL,
    started BIGINT NOT NULL,
    resolved BIGINT NOT NULL,
    reason {key} NOT NULL,
    -- 0 is the highest; null: not known.
    priority BIGINT
);

CREATE INDEX recorded_runs_by_time ON recorded_runs (resolved, sequence);

CREATE TABLE recorded_workers (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    launch_config_id {key},
    capacity BIGINT NOT NULL,
    -- Millionths of a dollar per hour; null: not known.
    price BIGINT,
    created BIGINT NOT NULL,
    registered BIGINT,
    stopping BIGINT,
    -- Null: it is still stopping.
    stopped BIGINT,
    interrupted BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id)
);

CREATE INDEX recorded_workers_by_time
    ON recorded_workers (created, worker_pool_id, worker_group, worker_id);

CREATE TABLE recorded_gaps (
    sequence {serial},
    since BIGINT NOT NULL,
    until BIGINT NOT NULL
);

CREATE INDEX recorded_gaps_by_time ON recorded_gaps (until, sequence);

-- The workers that are known already.
INSERT INTO recorded_workers (worker_pool_id, worker_group, worker_id, provider_id,
    launch_config_id, capacity, price, created, registered, stopping, stopped, interrupted)
SELECT worker_pool_id, worker_group, worker_id, provider_id, launch_config_id, capacity, price,
    created, registered, last_modified,
    CASE WHEN state = 'stopped' THEN last_modified ELSE NULL END, 0
FROM workers WHERE state IN ('stopping', 'stopped') AND launch_config_id IS NOT NULL;
