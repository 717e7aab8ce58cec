-- The memory of strategies that learn: what happened to machines of each offering, and what was
-- learned from that, about offerings and about the tasks of pools.

-- The offering of the bid that won; null: the strategy of the pool does not learn.
ALTER TABLE launches ADD COLUMN offering {key};

CREATE INDEX launches_of_offering ON launches (offering, created) WHERE offering IS NOT NULL;

-- When the worker claimed the run; null: not known.
ALTER TABLE run_outcomes ADD COLUMN started BIGINT;

-- News of offerings that their memory does not contain yet. Rows are only added and deleted, so that
-- what happens at the same time does not wait for each other.
CREATE TABLE offering_news (
    sequence {serial},
    offering {key} NOT NULL,
    provider_id {key} NOT NULL,
    observed BIGINT NOT NULL,
    news TEXT NOT NULL
);

CREATE INDEX offering_news_of_offering ON offering_news (offering, sequence);

CREATE TABLE offering_memories (
    offering {key} NOT NULL PRIMARY KEY,
    provider_id {key} NOT NULL,
    memory TEXT NOT NULL,
    -- Whether machines that survive their first minutes are news.
    awaits_survival BIGINT NOT NULL,
    -- Survivors of launches up to this moment are in the memory.
    survivors_until BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX offering_memories_of_survival ON offering_memories (offering)
    WHERE awaits_survival = 1;
CREATE INDEX offering_memories_oldest ON offering_memories (last_modified);

-- Runs that ended, of pools with a memory, that the memory does not contain yet.
CREATE TABLE pool_news (
    sequence {serial},
    worker_pool_id {key} NOT NULL,
    n_ended BIGINT NOT NULL,
    -- Durations in milliseconds.
    durations TEXT NOT NULL
);

CREATE INDEX pool_news_of_pool ON pool_news (worker_pool_id, sequence);

CREATE TABLE pool_memories (
    worker_pool_id {key} NOT NULL PRIMARY KEY,
    memory TEXT NOT NULL,
    -- The part of the memory that plans read.
    learned TEXT NOT NULL,
    sampled BIGINT NOT NULL,
    level BIGINT NOT NULL,
    held BIGINT NOT NULL,
    unexplained BIGINT NOT NULL,
    -- The pool's offerings whose quota is used up; null: none.
    quotas TEXT,
    version BIGINT NOT NULL
);

CREATE INDEX pool_memories_contending ON pool_memories (worker_pool_id) WHERE quotas IS NOT NULL;

-- One row: the time that was observed.
CREATE TABLE observed_time (
    name {key} NOT NULL PRIMARY KEY,
    clock BIGINT NOT NULL,
    observed BIGINT NOT NULL,
    version BIGINT NOT NULL
);
