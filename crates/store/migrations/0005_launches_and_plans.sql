-- What we decided to start, why, and what became of it.

CREATE TABLE launches (
    token {key} NOT NULL PRIMARY KEY,
    worker_pool_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    launch_config_id {key} NOT NULL,
    machines BIGINT NOT NULL,
    capacity_each BIGINT NOT NULL,
    -- Millionths of a dollar.
    max_price BIGINT,
    state {key} NOT NULL,
    cause {key},
    problem TEXT,
    made BIGINT NOT NULL,
    -- The number of the plan, within the pool.
    plan BIGINT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    -- What became of them, for the health of the launch config; all in machines.
    failed BIGINT NOT NULL,
    registered BIGINT NOT NULL,
    never_registered BIGINT NOT NULL,
    last_failure BIGINT,
    version BIGINT NOT NULL
);

CREATE INDEX launches_pending ON launches (worker_pool_id, launch_config_id, provider_id, machines, capacity_each)
    WHERE state IN ('open', 'unknown');
CREATE INDEX launches_unsettled ON launches (provider_id, last_modified) WHERE state IN ('open', 'unknown');
CREATE INDEX launches_of_pool ON launches (worker_pool_id, created);
CREATE INDEX launches_recent ON launches (created);

CREATE TABLE plans (
    worker_pool_id {key} NOT NULL,
    number BIGINT NOT NULL,
    created BIGINT NOT NULL,
    plan TEXT NOT NULL,
    PRIMARY KEY (worker_pool_id, number)
);

CREATE INDEX plans_oldest ON plans (created);

-- Whoever decides for a pool, or takes from what a provider has left, counts up its row: of two that decide at once, one
-- decides again, on what the other left.
CREATE TABLE turns (
    name {key} NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);

-- Told to go when it is next idle, so it is no supply.
ALTER TABLE workers ADD COLUMN draining BIGINT NOT NULL DEFAULT 0;

CREATE INDEX workers_supply ON workers (worker_pool_id, state, launch_config_id, draining, capacity)
    WHERE state <> 'stopped';
CREATE INDEX workers_stopping ON workers (provider_id, worker_pool_id, worker_group, worker_id)
    WHERE state = 'stopping';
