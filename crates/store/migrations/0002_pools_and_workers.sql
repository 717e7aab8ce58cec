-- Pools, the ways to start their workers, the workers, what went wrong, and what the queue knows.
-- Rows of workers and errors outlive their pool, so no table refers to another.

CREATE TABLE worker_pools (
    worker_pool_id {key} NOT NULL PRIMARY KEY,
    provider_id {key} NOT NULL,
    previous_provider_ids TEXT NOT NULL,
    description TEXT NOT NULL,
    config TEXT NOT NULL,
    owner TEXT NOT NULL,
    email_on_error BIGINT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX worker_pools_by_provider ON worker_pools (provider_id, worker_pool_id);

CREATE TABLE launch_configs (
    worker_pool_id {key} NOT NULL,
    launch_config_id {key} NOT NULL,
    archived BIGINT NOT NULL,
    position BIGINT NOT NULL,
    configuration TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, launch_config_id)
);

CREATE INDEX launch_configs_active ON launch_configs (worker_pool_id, position, launch_config_id)
    WHERE archived = 0;
CREATE INDEX launch_configs_archived ON launch_configs (worker_pool_id, launch_config_id)
    WHERE archived = 1;

CREATE TABLE workers (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    launch_config_id {key},
    state {key} NOT NULL,
    capacity BIGINT NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    last_checked BIGINT NOT NULL,
    terms TEXT NOT NULL,
    provider_data TEXT NOT NULL,
    secret TEXT,
    previous_secret TEXT,
    previous_secret_until BIGINT,
    version BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id)
);

-- Lists, newest first.
CREATE INDEX workers_newest ON workers (worker_pool_id, created, worker_group, worker_id);
CREATE INDEX workers_newest_in_group ON workers (worker_pool_id, worker_group, created, worker_id);
-- Counts by state and by launch config, without touching the rows.
CREATE INDEX workers_counted ON workers (worker_pool_id, state, launch_config_id, capacity);
CREATE INDEX workers_expiring ON workers (expires);
-- The scan of one provider.
CREATE INDEX workers_of_provider ON workers (provider_id, worker_pool_id, worker_group, worker_id)
    WHERE state <> 'stopped';

CREATE TABLE worker_errors (
    worker_pool_id {key} NOT NULL,
    error_id {key} NOT NULL,
    reported BIGINT NOT NULL,
    kind TEXT NOT NULL,
    title {key} NOT NULL,
    description TEXT NOT NULL,
    extra TEXT NOT NULL,
    launch_config_id {key},
    code {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, error_id)
);

CREATE INDEX worker_errors_newest ON worker_errors (worker_pool_id, reported, error_id);
CREATE INDEX worker_errors_oldest ON worker_errors (reported);

CREATE TABLE queue_workers (
    task_queue_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    recent_tasks TEXT NOT NULL,
    quarantine_until BIGINT,
    quarantine_details TEXT NOT NULL,
    expires BIGINT NOT NULL,
    first_claim BIGINT NOT NULL,
    last_date_active BIGINT,
    PRIMARY KEY (task_queue_id, worker_group, worker_id)
);

CREATE INDEX queue_workers_expiring ON queue_workers (expires);
