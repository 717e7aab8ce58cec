-- The state of workers: what became of the last runs that they had claimed, and how many ended how.

CREATE TABLE run_outcomes (
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    reason {key} NOT NULL,
    resolved BIGINT NOT NULL,
    -- What is told again is not counted again.
    PRIMARY KEY (task_id, run_id)
);

CREATE INDEX run_outcomes_of_pool ON run_outcomes (worker_pool_id, resolved, task_id, run_id);
CREATE INDEX run_outcomes_of_worker
    ON run_outcomes (worker_pool_id, worker_group, worker_id, resolved, task_id, run_id);

CREATE TABLE run_counts (
    worker_pool_id {key} NOT NULL,
    -- When the hour began.
    hour BIGINT NOT NULL,
    reason {key} NOT NULL,
    runs BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, hour, reason)
);

CREATE INDEX run_counts_old ON run_counts (hour);

-- Outcomes are taken out of the stream of events from now on.
INSERT INTO event_readers (name, position, holder, held_until, fence)
    SELECT 'outcomes', position, '', 0, 0 FROM event_stream WHERE name = 'events';
