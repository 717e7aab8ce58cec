-- Waiting time: why the tasks of each pool wait, and the accounts of the time that they waited.

-- The present cause of each pool.
CREATE TABLE pool_waits (
    worker_pool_id {key} NOT NULL PRIMARY KEY,
    since BIGINT NOT NULL,
    cause {key} NOT NULL
);

-- The timeline of causes: each holds until the next one of the pool.
CREATE TABLE wait_boundaries (
    worker_pool_id {key} NOT NULL,
    since BIGINT NOT NULL,
    cause {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, since)
);

CREATE INDEX wait_boundaries_oldest ON wait_boundaries (since);

CREATE TABLE wait_accounts (
    -- The length of the period: an hour or a day, in milliseconds.
    span BIGINT NOT NULL,
    since BIGINT NOT NULL,
    worker_pool_id {key} NOT NULL,
    -- The owner of the pool; empty: the queue has no pool.
    owner {key} NOT NULL,
    cause {key} NOT NULL,
    runs BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    PRIMARY KEY (span, since, worker_pool_id, owner, cause)
) {by_key};

-- When the task was created; null: before this column existed.
ALTER TABLE tasks ADD COLUMN inserted BIGINT;

-- Waits are taken out of the stream of events from now on.
INSERT INTO event_readers (name, position, holder, held_until, fence)
    SELECT 'waits', position, '', 0, 0 FROM event_stream WHERE name = 'events';
