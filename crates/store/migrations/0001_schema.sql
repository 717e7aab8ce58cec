-- All tables. Rows outlive what they are about, so no table refers to another. Times are in
-- milliseconds, and money is in millionths of a dollar, unless the table says otherwise.

-- Who may do what.

CREATE TABLE clients (
    client_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    scopes TEXT NOT NULL,
    access_token TEXT NOT NULL,
    expires BIGINT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    last_date_used BIGINT NOT NULL,
    last_rotated BIGINT NOT NULL,
    delete_on_expiration BIGINT NOT NULL,
    disabled BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX clients_expiring ON clients (expires) WHERE delete_on_expiration = 1;

CREATE TABLE roles (
    role_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL,
    -- Of which counter of changes, and at which of its values, it was last written: so that caches
    -- read only the roles that they do not know yet.
    revision_name {key} NOT NULL DEFAULT '',
    revision BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX roles_by_revision ON roles (revision_name, revision);

-- Numbers that grow with each change of clients or roles.
CREATE TABLE revisions (
    name {key} NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO revisions (name, value) VALUES ('access', 1);

-- Browsers that are signed in, and links that sign a browser in once.
CREATE TABLE sessions (
    session_id {key} NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    client_id {key} NOT NULL,
    sealed_credentials TEXT NOT NULL,
    browser TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_used BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    ends BIGINT NOT NULL
);

CREATE INDEX sessions_of_client ON sessions (client_id, kind, last_used, session_id);
CREATE INDEX sessions_ending ON sessions (expires);

-- Values that workers and people fetch by name. They are sealed with their name.
CREATE TABLE secrets (
    name {key} NOT NULL PRIMARY KEY,
    sealed_value TEXT NOT NULL,
    expires BIGINT NOT NULL,
    last_modified BIGINT NOT NULL
);

CREATE INDEX secrets_expiring ON secrets (expires);

-- Pools, the ways to start their workers, the workers, and what went wrong.

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
    version BIGINT NOT NULL,
    -- Without the first, which stands in provider_id.
    further_provider_ids TEXT NOT NULL DEFAULT '[]',
    worker_configuration_id {key}
);

CREATE INDEX worker_pools_by_provider ON worker_pools (provider_id, worker_pool_id);
CREATE INDEX worker_pools_by_configuration ON worker_pools (worker_configuration_id, worker_pool_id)
    WHERE worker_configuration_id IS NOT NULL;

-- What a provider made for a pool, such as a network; the row is older than what it stands for.
CREATE TABLE pool_resources (
    worker_pool_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    state {key} NOT NULL,
    -- The provider's own data.
    data TEXT NOT NULL,
    -- The last failure, how many there were in a row, and when the provider is asked again.
    problem TEXT NOT NULL,
    failures BIGINT NOT NULL,
    next_try BIGINT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, provider_id)
);

CREATE TABLE launch_configs (
    worker_pool_id {key} NOT NULL,
    launch_config_id {key} NOT NULL,
    archived BIGINT NOT NULL,
    position BIGINT NOT NULL,
    configuration TEXT NOT NULL,
    -- The image for whose canary it starts machines; null: for none.
    canary_of {key},
    -- 1: declared hosts get its content, and nothing is launched from it.
    hosts BIGINT NOT NULL DEFAULT 0,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, launch_config_id)
);

CREATE INDEX launch_configs_of_canaries
    ON launch_configs (canary_of, worker_pool_id, launch_config_id) WHERE canary_of IS NOT NULL;

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
    -- 1: it was told to go when it is next idle, so it is no supply.
    draining BIGINT NOT NULL DEFAULT 0,
    -- When it first asked the queue for work.
    first_claim BIGINT,
    registered BIGINT,
    idle_hold BIGINT,
    -- The last advice: when, and why; `draining` says which.
    advised BIGINT,
    advice_reason TEXT,
    -- As agreed at the launch, per hour; null: not known.
    price BIGINT,
    -- That of its launch; null: the strategy of the pool did not learn.
    offering {key},
    -- 1: people declared it.
    declared BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id)
);

-- Lists, newest first.
CREATE INDEX workers_newest ON workers (worker_pool_id, created, worker_group, worker_id);
CREATE INDEX workers_newest_in_group ON workers (worker_pool_id, worker_group, created, worker_id);
-- The same over all pools. Most rows are of stopped workers.
CREATE INDEX workers_newest_live ON workers (created, worker_pool_id, worker_group, worker_id)
    WHERE state <> 'stopped';
CREATE INDEX workers_newest_stopped ON workers (created, worker_pool_id, worker_group, worker_id)
    WHERE state = 'stopped';
-- Counts by state and by launch config, without touching the rows.
CREATE INDEX workers_counted ON workers (worker_pool_id, state, launch_config_id, capacity);
CREATE INDEX workers_expiring ON workers (expires);
-- Workers that people declared live until they are removed.
CREATE INDEX workers_declared ON workers (expires)
    WHERE state = 'running' AND declared = 1;
CREATE INDEX workers_declared_of_pool ON workers (worker_pool_id) WHERE declared = 1;
-- Those that were asked to stop, and may wait for tasks.
CREATE INDEX workers_draining ON workers (worker_pool_id, advised)
    WHERE draining = 1 AND state = 'running';
CREATE INDEX workers_stopping ON workers (provider_id, worker_pool_id, worker_group, worker_id)
    WHERE state = 'stopping';
-- Supply is counted without touching the rows.
CREATE INDEX workers_supply ON workers (worker_pool_id, state, launch_config_id, draining, capacity,
    provider_id)
    WHERE state <> 'stopped';
-- The scan looks at each region of a provider by itself.
CREATE INDEX workers_of_provider ON workers (provider_id, worker_group, worker_pool_id, worker_id)
    WHERE state <> 'stopped';
-- Planning reads running workers from the index alone.
CREATE INDEX workers_running ON workers (worker_pool_id, worker_group, worker_id, provider_id,
    launch_config_id, capacity, created, registered, idle_hold, draining, advised, advice_reason,
    price, state)
    WHERE state = 'running';
-- Few of the workers of a pool are requested.
CREATE INDEX workers_requested ON workers (worker_pool_id, created, launch_config_id, draining,
    capacity, provider_id, state)
    WHERE state = 'requested';

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
    -- The worker that reported it: its group, a slash, and its id.
    reporter {key},
    -- A digest of what errors with the same cause have in common, in all pools.
    cause {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, error_id)
);

CREATE INDEX worker_errors_newest ON worker_errors (worker_pool_id, reported, error_id);
-- Causes are counted without touching the rows.
CREATE INDEX worker_errors_oldest ON worker_errors (reported, cause, worker_pool_id);
CREATE INDEX worker_errors_of_cause
    ON worker_errors (cause, reported, worker_pool_id, launch_config_id, error_id);
CREATE INDEX worker_errors_of_reporter ON worker_errors (worker_pool_id, reporter, reported)
    WHERE reporter IS NOT NULL;

-- Overrides: what is paused or limited otherwise for a time.
CREATE TABLE overrides (
    override_id {key} NOT NULL PRIMARY KEY,
    -- What it is about: a pool, a launch config in a pool, a worker configuration, a provider, or a
    -- region.
    worker_pool_id {key},
    launch_config_id {key},
    worker_configuration_id {key},
    provider_id {key},
    region {key},
    pause BIGINT NOT NULL,
    min_capacity BIGINT,
    max_capacity BIGINT,
    reason TEXT NOT NULL,
    owner {key} NOT NULL,
    created BIGINT NOT NULL,
    until BIGINT NOT NULL,
    -- When it was seen to have ended.
    ended BIGINT,
    version BIGINT NOT NULL
);

CREATE INDEX overrides_to_come ON overrides (until) WHERE ended IS NULL;
CREATE INDEX overrides_ended ON overrides (ended) WHERE ended IS NOT NULL;

-- Requests to delete caches, as workers ask for them before they run a task.
CREATE TABLE cache_purges (
    worker_pool_id {key} NOT NULL,
    cache_name {key} NOT NULL,
    -- Caches that were made before this moment are to be deleted.
    purge_before BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (worker_pool_id, cache_name)
);

CREATE INDEX cache_purges_expiring ON cache_purges (expires);

-- Rule sets, every version of them, which worker configuration a worker type belongs to, and their
-- documentation.

CREATE TABLE worker_configurations (
    worker_configuration_id {key} NOT NULL PRIMARY KEY,
    document TEXT NOT NULL,
    -- What the providers presented when it was compiled last.
    market TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL,
    -- What lists show: without the rules, which are most of a document.
    summary TEXT
);

-- Rows are only ever added, and deleted when they are old; they outlive the configuration.
CREATE TABLE worker_configuration_versions (
    worker_configuration_id {key} NOT NULL,
    version BIGINT NOT NULL,
    action {key} NOT NULL,
    document TEXT NOT NULL,
    market TEXT NOT NULL,
    client_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (worker_configuration_id, version)
);

CREATE INDEX worker_configuration_versions_oldest ON worker_configuration_versions (created);

-- The primary key is what keeps a worker type in one configuration.
CREATE TABLE worker_types (
    worker_pool_id {key} NOT NULL PRIMARY KEY,
    worker_configuration_id {key} NOT NULL,
    payload_schema TEXT,
    check_payload BIGINT NOT NULL
);

CREATE INDEX worker_types_of_configuration
    ON worker_types (worker_configuration_id, worker_pool_id);

-- Documentation of worker configurations and worker types, as tarballs.
CREATE TABLE documentation (
    -- 'worker-configuration' or 'worker-type'.
    kind {key} NOT NULL,
    -- The id of the configuration, or of the worker type's pool.
    subject {key} NOT NULL,
    title TEXT NOT NULL,
    -- Of the tarball, which is packed the same for the same files.
    digest {key} NOT NULL,
    packed_bytes BIGINT NOT NULL,
    unpacked_bytes BIGINT NOT NULL,
    n_files BIGINT NOT NULL,
    -- In base64.
    tarball TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    PRIMARY KEY (kind, subject)
);

-- Tasks: what waits, what runs, who claimed it, and what is left of it.
--
-- A task's definition never changes and can be large; where the task stands changes often and is
-- small: two tables.

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
    version BIGINT NOT NULL,
    -- When the task was created.
    inserted BIGINT
);

CREATE INDEX tasks_of_group ON tasks (task_group_id, task_id);
-- The conditions are written out: for `state IN (…)`, SQLite builds a table of the three states for
-- each index and each side of every change of a task, which was a quarter of the time that a claim
-- took.
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
CREATE INDEX task_dependencies_to_release ON task_dependencies (required_task_id, task_id)
    WHERE released = 0;
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
CREATE INDEX claimed_tasks_of_worker ON claimed_tasks (task_queue_id, worker_group, worker_id,
    task_id, taken_until);

CREATE TABLE task_queues (
    task_queue_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    stability {key} NOT NULL,
    expires BIGINT NOT NULL,
    last_date_active BIGINT NOT NULL
);

CREATE INDEX task_queues_expiring ON task_queues (expires);

-- What the queue knows of workers.
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
    -- When the worker last finished, or lost, a run.
    last_task_ended BIGINT,
    -- The start of the hour in which the row expires, so that the index changes once an hour.
    expiry_hour BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (task_queue_id, worker_group, worker_id)
);

CREATE INDEX queue_workers_expiring ON queue_workers (expiry_hour);
-- Few of the workers of a pool are quarantined.
CREATE INDEX queue_workers_quarantined
    ON queue_workers (task_queue_id, quarantine_until, worker_group, worker_id)
    WHERE quarantine_until IS NOT NULL;

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
    -- Of an uploaded file; otherwise 0.
    bytes BIGINT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (task_id, run_id, name)
);

CREATE INDEX artifacts_expiring ON artifacts (expires);

-- What we decided to start, why, and what became of it.

CREATE TABLE launches (
    token {key} NOT NULL PRIMARY KEY,
    worker_pool_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    launch_config_id {key} NOT NULL,
    machines BIGINT NOT NULL,
    capacity_each BIGINT NOT NULL,
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
    version BIGINT NOT NULL,
    -- How many of the machines asked the queue for work.
    claimed BIGINT NOT NULL DEFAULT 0,
    -- When a process began to ask the cloud for the machines; null: nobody has asked.
    asked BIGINT,
    last_registered BIGINT,
    -- When something was last heard of the launch, for the health of the launch config.
    last_event BIGINT NOT NULL DEFAULT 0,
    -- Written with the launch, so that cost is what was agreed, not what is listed later. Per hour
    -- and machine; null: not known.
    price BIGINT,
    -- The offering of the bid that won; null: the strategy of the pool does not learn.
    offering {key},
    -- The machines that are in the series: made, refused, and never registered.
    counted_made BIGINT NOT NULL DEFAULT 0,
    counted_refused BIGINT NOT NULL DEFAULT 0,
    counted_never_registered BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX launches_pending
    ON launches (worker_pool_id, launch_config_id, provider_id, machines, capacity_each)
    WHERE state IN ('open', 'unknown');
CREATE INDEX launches_unsettled ON launches (provider_id, last_modified)
    WHERE state IN ('open', 'unknown');
CREATE INDEX launches_of_pool ON launches (worker_pool_id, created);
CREATE INDEX launches_recent ON launches (created);
CREATE INDEX launches_events ON launches (last_event);
CREATE INDEX launches_events_of_pool ON launches (worker_pool_id, last_event);
-- Accepted, and not all of its machines have registered or are known to be lost.
CREATE INDEX launches_awaited ON launches (worker_pool_id)
    WHERE state = 'accepted' AND made > registered + never_registered;
CREATE INDEX launches_of_offering ON launches (offering, created) WHERE offering IS NOT NULL;

CREATE TABLE plans (
    worker_pool_id {key} NOT NULL,
    number BIGINT NOT NULL,
    created BIGINT NOT NULL,
    plan TEXT NOT NULL,
    -- What it was made from, packed, so that it can be made again.
    input TEXT,
    PRIMARY KEY (worker_pool_id, number)
);

CREATE INDEX plans_oldest ON plans (created);

-- What the shadows of pools would have done, beside what was done.
CREATE TABLE shadow_plans (
    worker_pool_id {key} NOT NULL,
    -- Counts up within the pool.
    number BIGINT NOT NULL,
    created BIGINT NOT NULL,
    -- The plan that was stored at the same time; null: the pool's strategy did nothing.
    plan_number BIGINT,
    comparison TEXT NOT NULL,
    -- The plan that did nothing, with that of the shadow, and their input; null: they are stored in
    -- `plans`.
    plan TEXT,
    input TEXT,
    PRIMARY KEY (worker_pool_id, number)
);

CREATE INDEX shadow_plans_oldest ON shadow_plans (created);

-- Whoever decides for a pool, or takes from what a provider has left, counts up its row: of two
-- that decide at once, one decides again, on what the other left.
CREATE TABLE turns (
    name {key} NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);

-- The memory of strategies that learn: what happened to machines of each offering, and what was
-- learned from that, about offerings and about the tasks of pools.

-- News of offerings that their memory does not contain yet. Rows are only added and deleted, so
-- that what happens at the same time does not wait for each other.
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
    -- The level, up to the maximum of the pool: what it takes part with where quotas are used up.
    wanted BIGINT NOT NULL,
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

-- Events: what has to be told to the world. A committed event gets its place in the stream, and
-- readers remember how far they have come.

CREATE TABLE outbox (
    sequence {serial},
    event_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    worker_pool_id {key},
    payload TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- Further routing keys under which the event is told.
    routes TEXT,
    -- Its place in the stream; null: it waits for one.
    position BIGINT
);

CREATE INDEX outbox_waiting ON outbox (sequence) WHERE position IS NULL;
CREATE UNIQUE INDEX outbox_position ON outbox (position) WHERE position IS NOT NULL;
CREATE INDEX outbox_errors ON outbox (position)
    WHERE topic = 'exchange/taskcluster-worker-manager/v1/worker-pool-error'
    AND position IS NOT NULL;

-- One row: the last place that was given away.
CREATE TABLE event_stream (
    name {key} NOT NULL PRIMARY KEY,
    position BIGINT NOT NULL
);

INSERT INTO event_stream (name, position) VALUES ('events', 0);

CREATE TABLE event_readers (
    name {key} NOT NULL PRIMARY KEY,
    -- The last event that it has passed on.
    position BIGINT NOT NULL,
    -- The process that reads at the moment, until when, and how often that has changed.
    holder TEXT NOT NULL,
    held_until BIGINT NOT NULL,
    fence BIGINT NOT NULL
);

-- Outcomes of runs and accounts of waits are taken out of the stream from its start.
INSERT INTO event_readers (name, position, holder, held_until, fence)
    VALUES ('outcomes', 0, '', 0, 0), ('waits', 0, '', 0, 0);

-- What has been done by whom.
CREATE TABLE audit (
    sequence {serial},
    entity_type {key} NOT NULL,
    entity_id {key} NOT NULL,
    client_id {key} NOT NULL,
    action TEXT NOT NULL,
    created BIGINT NOT NULL,
    source_ip TEXT,
    request_id TEXT,
    detail TEXT NOT NULL
);

CREATE INDEX audit_of_entity ON audit (entity_type, entity_id, sequence);
CREATE INDEX audit_of_client ON audit (client_id, sequence);
CREATE INDEX audit_of_type ON audit (entity_type, sequence);
CREATE INDEX audit_by_time ON audit (created, sequence);

-- Telling people of errors in worker pools: what has not been told yet, and what is on its way.

-- Errors that have one cause, as one channel knows them.
CREATE TABLE notice_causes (
    channel {key} NOT NULL,
    worker_pool_id {key} NOT NULL,
    -- A digest of what the errors have in common.
    cause {key} NOT NULL,
    -- The latest of them.
    error_id {key} NOT NULL,
    first_reported BIGINT NOT NULL,
    last_reported BIGINT NOT NULL,
    untold BIGINT NOT NULL,
    first_untold BIGINT,
    told BIGINT NOT NULL,
    last_told BIGINT,
    -- When to tell of them; null: there is nothing to tell.
    due BIGINT,
    version BIGINT NOT NULL,
    PRIMARY KEY (channel, worker_pool_id, cause)
);

CREATE INDEX notice_causes_due ON notice_causes (channel, due) WHERE due IS NOT NULL;
CREATE INDEX notice_causes_settled ON notice_causes (last_told) WHERE due IS NULL;
CREATE INDEX notice_causes_old ON notice_causes (last_reported);

CREATE TABLE notices (
    notice_id {key} NOT NULL PRIMARY KEY,
    channel {key} NOT NULL,
    recipient {key} NOT NULL,
    content TEXT NOT NULL,
    created BIGINT NOT NULL,
    -- When to send it; while somebody is sending it, when another may try.
    due BIGINT NOT NULL,
    refusals BIGINT NOT NULL,
    sent BIGINT,
    version BIGINT NOT NULL
);

-- One at a time to each recipient: what happens meanwhile goes into the next.
CREATE UNIQUE INDEX notices_waiting ON notices (channel, recipient) WHERE sent IS NULL;
CREATE INDEX notices_due ON notices (channel, due) WHERE sent IS NULL;
CREATE INDEX notices_recent ON notices (channel, recipient, created);
CREATE INDEX notices_old ON notices (created);

-- The state of workers: what became of the last runs that they had claimed, and how many ended how.

CREATE TABLE run_outcomes (
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    reason {key} NOT NULL,
    resolved BIGINT NOT NULL,
    -- When the worker claimed the run; null: not known.
    started BIGINT,
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

-- The recorded history, which simulations replay: what ran, what was paid for, and when nobody
-- recorded. Rows are compact.

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
    -- Per hour; null: not known.
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

-- Series: levels and counts over time, of all pools, of each pool, and of each launch config.

CREATE TABLE series (
    series {serial},
    -- Empty: all pools together.
    worker_pool_id {key} NOT NULL,
    -- Empty: the pool.
    launch_config_id {key} NOT NULL,
    -- The last maximum in `series_maxima`.
    maximum BIGINT NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX series_by_name ON series (worker_pool_id, launch_config_id);

-- The minutes, hours and days that were recorded. A time without a row was not.
CREATE TABLE series_times (
    -- The length in milliseconds, and the beginning.
    span BIGINT NOT NULL,
    since BIGINT NOT NULL,
    -- How many minutes of it were recorded.
    minutes BIGINT NOT NULL,
    PRIMARY KEY (span, since)
) {by_key};

-- A series without a point at a time that was recorded was at zero.
CREATE TABLE points (
    span BIGINT NOT NULL,
    since BIGINT NOT NULL,
    series BIGINT NOT NULL,
    -- Sums over the minutes.
    waiting BIGINT NOT NULL,
    requested BIGINT NOT NULL,
    booting BIGINT NOT NULL,
    idle BIGINT NOT NULL,
    busy BIGINT NOT NULL,
    leaving BIGINT NOT NULL,
    -- The highest of the minutes; null: the point is a minute.
    most_waiting BIGINT,
    most_requested BIGINT,
    most_booting BIGINT,
    most_idle BIGINT,
    most_busy BIGINT,
    most_leaving BIGINT,
    most_capacity BIGINT,
    launched BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    waited BIGINT NOT NULL,
    PRIMARY KEY (span, since, series)
) {by_key};

-- A series with points of days.
CREATE INDEX points_of_series ON points (series) WHERE span = 86400000;

-- The maximum of a pool, or the sum of those of all pools, from a moment on.
CREATE TABLE series_maxima (
    series BIGINT NOT NULL,
    since BIGINT NOT NULL,
    maximum BIGINT NOT NULL,
    PRIMARY KEY (series, since)
) {by_key};

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

-- Whose time it is, and why it waited. The names are kept once, and not in each hour and day.
CREATE TABLE wait_accounts (
    account {serial},
    worker_pool_id {key} NOT NULL,
    -- The owner of the pool; empty: the queue has no pool.
    owner {key} NOT NULL,
    cause {key} NOT NULL,
    -- All milliseconds that were ever charged, and those of them that are in the series.
    charged BIGINT NOT NULL DEFAULT 0,
    counted BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX wait_accounts_uncounted ON wait_accounts (account) WHERE charged <> counted;
CREATE UNIQUE INDEX wait_accounts_by_name ON wait_accounts (worker_pool_id, owner, cause);

CREATE TABLE waits (
    -- The length of the period: an hour or a day, in milliseconds.
    span BIGINT NOT NULL,
    since BIGINT NOT NULL,
    account BIGINT NOT NULL,
    runs BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    PRIMARY KEY (span, since, account)
) {by_key};

-- Money as an account: for each hour, and later for each day, the time of machines and its cost, by
-- use.

-- Whose money it is. The owner is the owner of the pool when the machine was launched.
CREATE TABLE cost_accounts (
    account {serial},
    worker_pool_id {key} NOT NULL,
    -- Empty: declared by hand.
    launch_config_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    owner {key} NOT NULL,
    -- Empty: the price is not known, so only time is counted.
    currency {key} NOT NULL,
    -- All money that was ever charged, and that of it and of running machines that is in the
    -- series.
    charged BIGINT NOT NULL DEFAULT 0,
    counted BIGINT NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX cost_accounts_by_name
    ON cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, currency);
CREATE INDEX cost_accounts_of_provider ON cost_accounts (provider_id);
CREATE INDEX cost_accounts_of_owner ON cost_accounts (owner);

-- Times in milliseconds, money in millionths of the currency.
CREATE TABLE costs (
    began BIGINT NOT NULL,
    -- 1: an hour; 24: a day.
    hours BIGINT NOT NULL,
    account BIGINT NOT NULL,
    useful_ms BIGINT NOT NULL,
    booting_ms BIGINT NOT NULL,
    idle_ms BIGINT NOT NULL,
    failed_ms BIGINT NOT NULL,
    leaving_ms BIGINT NOT NULL,
    lost_ms BIGINT NOT NULL,
    useful BIGINT NOT NULL,
    booting BIGINT NOT NULL,
    idle BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    leaving BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    PRIMARY KEY (began, hours, account)
) {by_key};

CREATE INDEX costs_of_account ON costs (account, began);
-- Hours that become days.
CREATE INDEX costs_by_hour ON costs (began, account) WHERE hours = 1;

-- One row for each machine whose cost is not settled. The transaction that settles it deletes it.
CREATE TABLE meters (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    account BIGINT NOT NULL,
    -- As agreed at the launch, in millionths of the currency per hour; null: not known.
    price BIGINT,
    started BIGINT NOT NULL,
    -- Up to here its cost is in the accounts.
    charged BIGINT NOT NULL,
    -- When it began to stop, and when it ended.
    leaving BIGINT,
    ended BIGINT,
    -- When its worker first asked for work, if the row of the worker has expired.
    first_claim BIGINT,
    -- When it is charged next.
    due BIGINT NOT NULL,
    -- The use since the last charge, as far as is known.
    kind {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id)
);

CREATE INDEX meters_due ON meters (due);
-- All that reports need of machines that run.
CREATE INDEX meters_of_account ON meters (account, kind, price, started, charged, ended);

-- Runs on machines with a meter that have ended, until their time is charged.
CREATE TABLE metered_runs (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    started BIGINT NOT NULL,
    resolved BIGINT NOT NULL,
    reason {key} NOT NULL,
    -- In the order in which they are charged.
    PRIMARY KEY (worker_pool_id, worker_group, worker_id, started, task_id, run_id)
);

-- Budgets: what may be spent on machines in an hour, a day or a month, in millionths of the
-- currency.

CREATE TABLE budgets (
    budget_id {key} NOT NULL PRIMARY KEY,
    -- Whose money it limits: one of pools (a/b, a/* or *), the owner of pools, or a provider.
    worker_pools {key},
    owner {key},
    provider_id {key},
    period {key} NOT NULL,
    amount BIGINT NOT NULL,
    currency {key} NOT NULL,
    -- Percentages.
    warn_at BIGINT NOT NULL,
    lower_at BIGINT NOT NULL,
    lower_to BIGINT NOT NULL,
    description TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    -- The money spent in the period of that moment, and the price per hour and the number of the
    -- machines that run or are to come. Plans add the machines that they launch.
    measured BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    hourly BIGINT NOT NULL,
    machines BIGINT NOT NULL,
    -- Those of them that were launched for a price.
    launched BIGINT NOT NULL,
    version BIGINT NOT NULL
);

-- The steps that were announced, each once for each period.
CREATE TABLE budget_steps (
    budget_id {key} NOT NULL,
    period {key} NOT NULL,
    began BIGINT NOT NULL,
    step {key} NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (budget_id, period, began, step)
);

CREATE INDEX budget_steps_oldest ON budget_steps (created);

-- The processes of the deployment, with their last announcements.
CREATE TABLE processes (
    process_id {key} NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    roles TEXT NOT NULL,
    version TEXT NOT NULL,
    started BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    -- How far the clock of its machine is ahead of the database's; null: not known yet.
    clock_ahead_ms BIGINT
);

CREATE INDEX processes_silent ON processes (last_seen);

-- Relays of datacentres, with their last announcements.
CREATE TABLE relays (
    relay_id {key} NOT NULL PRIMARY KEY,
    first_seen BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    interval_seconds BIGINT NOT NULL,
    announcement TEXT NOT NULL
);

CREATE INDEX relays_silent ON relays (last_seen);

-- Images. Builds and uploads are in the tree.

CREATE TABLE images (
    image_id {key} NOT NULL PRIMARY KEY,
    document TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

-- Rows are only ever added, and deleted when they are old; they outlive the definition.
CREATE TABLE image_versions (
    image_id {key} NOT NULL,
    version BIGINT NOT NULL,
    action {key} NOT NULL,
    document TEXT NOT NULL,
    client_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (image_id, version)
);

CREATE INDEX image_versions_oldest ON image_versions (created);

-- Which builds of images machines start from.
CREATE TABLE image_rollouts (
    image_id {key} NOT NULL PRIMARY KEY,
    -- Which builds were promoted and rolled back.
    standing TEXT NOT NULL,
    -- The canary that runs; null: none.
    canary TEXT,
    -- The uploads from which machines of each target start.
    selection TEXT NOT NULL,
    -- Counts changes of the selection.
    selected BIGINT NOT NULL,
    -- The ids at providers of all uploads, also of those from which no machine starts.
    uploads TEXT NOT NULL,
    -- When a process last took it on itself to judge the canary.
    judged BIGINT NOT NULL DEFAULT 0,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX image_rollouts_with_canary ON image_rollouts (image_id) WHERE canary IS NOT NULL;

-- The pools whose launch configs refer to an image.
CREATE TABLE image_users (
    image_id {key} NOT NULL,
    worker_pool_id {key} NOT NULL,
    -- The selection with which the launch configs were made.
    applied BIGINT NOT NULL,
    PRIMARY KEY (image_id, worker_pool_id)
);

CREATE INDEX image_users_of_pool ON image_users (worker_pool_id, image_id);

-- The machines of canaries that run, and of the launch configs beside them.
CREATE TABLE canary_trials (
    image_id {key} NOT NULL,
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    created BIGINT NOT NULL,
    trial TEXT NOT NULL,
    PRIMARY KEY (image_id, worker_pool_id, worker_group, worker_id)
);

CREATE INDEX canary_trials_in_order ON canary_trials (image_id, created);

-- The persistent nodes of the embedded tree, and the process that owns the tree.

CREATE TABLE tree_nodes (
    path {key} NOT NULL PRIMARY KEY,
    data TEXT NOT NULL,
    -- 1: the data is base64, since it is no text.
    is_base64 BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    -- Numbers of changes of the tree.
    created_by BIGINT NOT NULL,
    changed_by BIGINT NOT NULL,
    children_changed_by BIGINT NOT NULL,
    -- How many children were ever created.
    next_sequence BIGINT NOT NULL
);

-- One row, 'this': a random id, by which a tree knows its database.
CREATE TABLE database_identity (
    name {key} NOT NULL PRIMARY KEY,
    id TEXT NOT NULL
);

CREATE TABLE tree_owners (
    -- There is one tree: 'tree'.
    name {key} NOT NULL PRIMARY KEY,
    -- JSON: which process this is, for other processes and for people.
    process TEXT NOT NULL,
    -- Increases with each owner. Only the last one can write nodes.
    epoch BIGINT NOT NULL,
    -- When the owner last wrote that it runs; 0: it has ended.
    renewed BIGINT NOT NULL
);

-- What is updated all the time stays in its place: no index has what changes with each sign of
-- life, and PostgreSQL finds room in the page and cleans up early.

{postgres}ALTER TABLE queue_workers SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE workers SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE tasks SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE claimed_tasks SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE pending_tasks SET (autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE meters SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE turns SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE waits SET (fillfactor = 90);
{postgres}ALTER TABLE costs SET (fillfactor = 90);
{postgres}ALTER TABLE points SET (fillfactor = 80);
{postgres}ALTER TABLE run_counts SET (fillfactor = 70);
{postgres}ALTER TABLE offering_memories SET (fillfactor = 70);
{postgres}ALTER TABLE pool_memories SET (fillfactor = 70);

-- PostgreSQL expects the average number of rows for each value. Beside very many small pools, a
-- pool has a single worker, and an index or a join that begins with the pool looks as good as the
-- complete key: in a large pool, each look at one worker then reads all. The same holds for a task
-- with thousands of dependencies, and for an hour in which thousands of pools had runs.
--
-- A negative number is the number of values for each row. It holds when PostgreSQL next counts the
-- table.

{postgres}ALTER TABLE workers ALTER COLUMN worker_pool_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE workers ALTER COLUMN worker_group SET (n_distinct = 4);
{postgres}ALTER TABLE queue_workers ALTER COLUMN task_queue_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE queue_workers ALTER COLUMN worker_group SET (n_distinct = 4);
{postgres}ALTER TABLE worker_errors ALTER COLUMN worker_pool_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE wait_boundaries ALTER COLUMN since SET (n_distinct = -0.001);
{postgres}ALTER TABLE run_counts ALTER COLUMN hour SET (n_distinct = -0.001);
{postgres}ALTER TABLE task_dependencies ALTER COLUMN task_id SET (n_distinct = -0.01);
