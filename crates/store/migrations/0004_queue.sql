-- Tasks: what waits, what runs, who claimed it, and what is left of it.
--
-- A task's definition never changes and can be large; where the task stands changes often and is small: two tables.

CREATE TABLE tasks (
    task_id {key} NOT NULL PRIMARY KEY,
    task_queue_id {key} NOT NULL,
    task_group_id {key} NOT NULL,
    -- 0 is the highest.
    priority BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    retries_left BIGINT NOT NULL,
    -- That of the last run; 'unscheduled' without runs.
    state {key} NOT NULL,
    runs TEXT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX tasks_of_group ON tasks (task_group_id, task_id);
-- The conditions are written out: for `state IN (…)`, SQLite builds a table of the three states for each index and
-- each side of every change of a task, which was a quarter of the time that a claim took.
CREATE INDEX tasks_active_of_group ON tasks (task_group_id, task_id)
    WHERE (state = 'unscheduled' OR state = 'pending' OR state = 'running');
CREATE INDEX tasks_overdue ON tasks (deadline)
    WHERE (state = 'unscheduled' OR state = 'pending' OR state = 'running');
CREATE INDEX tasks_expiring ON tasks (expires);

CREATE TABLE task_definitions (
    task_id {key} NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL
);

-- Who waits for whom. An edge is released when what is required of the required task has happened.
CREATE TABLE task_dependencies (
    required_task_id {key} NOT NULL,
    task_id {key} NOT NULL,
    -- 1: any end of the required task will do.
    any_end BIGINT NOT NULL,
    released BIGINT NOT NULL,
    PRIMARY KEY (required_task_id, task_id)
);

CREATE INDEX task_dependencies_open ON task_dependencies (task_id) WHERE released = 0;
CREATE INDEX task_dependencies_to_release ON task_dependencies (required_task_id, task_id) WHERE released = 0;
CREATE INDEX task_dependencies_of_task ON task_dependencies (task_id);

-- Resolved tasks with more dependents than one transaction releases.
CREATE TABLE task_releases (
    task_id {key} NOT NULL PRIMARY KEY,
    inserted BIGINT NOT NULL
);

CREATE INDEX task_releases_oldest ON task_releases (inserted, task_id);

CREATE TABLE task_groups (
    task_group_id {key} NOT NULL PRIMARY KEY,
    scheduler_id {key} NOT NULL,
    expires BIGINT NOT NULL,
    sealed BIGINT,
    version BIGINT NOT NULL
);

CREATE INDEX task_groups_expiring ON task_groups (expires);

-- Runs that wait for a worker. Within a priority, first come, first served.
CREATE TABLE pending_tasks (
    sequence {serial},
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    task_queue_id {key} NOT NULL,
    priority BIGINT NOT NULL,
    inserted BIGINT NOT NULL,
    deadline BIGINT NOT NULL
);

CREATE UNIQUE INDEX pending_tasks_of_task ON pending_tasks (task_id);
CREATE INDEX pending_tasks_next ON pending_tasks (task_queue_id, priority, sequence, deadline);

-- Runs that a worker is busy with.
CREATE TABLE claimed_tasks (
    task_id {key} NOT NULL PRIMARY KEY,
    run_id BIGINT NOT NULL,
    task_queue_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    claimed BIGINT NOT NULL,
    taken_until BIGINT NOT NULL
);

CREATE INDEX claimed_tasks_expiring ON claimed_tasks (taken_until);
CREATE INDEX claimed_tasks_of_queue ON claimed_tasks (task_queue_id, claimed, task_id, taken_until);
CREATE INDEX claimed_tasks_of_worker ON claimed_tasks (task_queue_id, worker_group, worker_id, task_id, taken_until);

CREATE TABLE task_queues (
    task_queue_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    stability {key} NOT NULL,
    expires BIGINT NOT NULL,
    last_date_active BIGINT NOT NULL
);

CREATE INDEX task_queues_expiring ON task_queues (expires);

CREATE TABLE artifacts (
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    name {key} NOT NULL,
    storage_type {key} NOT NULL,
    content_type TEXT NOT NULL,
    expires BIGINT NOT NULL,
    -- Whether there is anything to fetch yet.
    state {key} NOT NULL,
    details TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (task_id, run_id, name)
);

CREATE INDEX artifacts_expiring ON artifacts (expires);

-- When the worker last finished, or lost, a run.
ALTER TABLE queue_workers ADD COLUMN last_task_ended BIGINT;

CREATE INDEX queue_workers_quarantined ON queue_workers (quarantine_until) WHERE quarantine_until IS NOT NULL;

-- Further routing keys under which the event is told.
ALTER TABLE outbox ADD COLUMN routes TEXT;
