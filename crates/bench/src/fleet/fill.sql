-- Pools of busy workers, and one waiting task for each pool. The rows are as the program writes
-- them. Each `#` names a value.

CREATE TEMP TABLE fleet AS
WITH RECURSIVE counted(i) AS (
    SELECT CAST(#first AS BIGINT) UNION ALL SELECT i + 1 FROM counted WHERE i + 1 < #end
)
-- Consecutive ids are written next to each other. Those of a year-old database have another letter
-- in the place of `B` and `V`.
SELECT i % #each AS place, 'bench/pool-' || substr(CAST(1000000 + i / #each AS TEXT), 2) AS pool,
    'w' || substr(CAST(10000000 + i % #each AS TEXT), 2) AS worker,
    substr(CAST(100000000 + i AS TEXT), 2) || 'QACBAAAAAAAAAA' AS running,
    substr(CAST(100000000 + i AS TEXT), 2) || 'QACVAAAAAAAAAA' AS waiting
FROM counted;

INSERT INTO worker_pools (worker_pool_id, provider_id, previous_provider_ids, description, config,
    owner, email_on_error, created, last_modified, version, further_provider_ids)
SELECT pool, '#provider', '[]', '',
    '{"minCapacity":0,"maxCapacity":' || (#each + 100) || ',"scalingRatio":1.0}',
    'bench@example.com', 0, #now, #now, 1, '[]'
FROM fleet WHERE place = 0;

INSERT INTO launch_configs (worker_pool_id, launch_config_id, archived, position, configuration,
    created, last_modified, version)
SELECT f.pool, 'lc-' || c.place, 0, c.place, '{"region":"region-' || c.place || '","workerConfig":' ||
    '{"genericWorker":{"config":{"idleTimeoutSecs":600}}},"workerManager":{"capacityPerInstance":1,' ||
    '"initialWeight":1.0}}', #now, #now, 1
FROM fleet AS f CROSS JOIN (
    SELECT 0 AS place UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3
) AS c WHERE f.place = 0;

INSERT INTO workers (worker_pool_id, worker_group, worker_id, provider_id, launch_config_id, state,
    capacity, created, expires, last_modified, last_checked, terms, provider_data, version,
    registered, price)
SELECT pool, 'bench', worker, '#provider', 'lc-3', 'running', 1, #now, #now + 864000000, #now, #now,
    '{"terminateAfter":' || (#now + 345600000) || ',"registeredAt":' || #now || '}',
    '{"region":"region-3","zone":"a"}', 1, #now, 96000
FROM fleet;

INSERT INTO cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, currency)
SELECT pool, 'lc-3', '#provider', 'bench@example.com', 'USD' FROM fleet WHERE place = 0;

INSERT INTO meters (worker_pool_id, worker_group, worker_id, account, price, started, charged, due,
    kind)
SELECT f.pool, 'bench', f.worker, a.account, 96000, #now, #now, #now, 'booting'
FROM fleet AS f JOIN cost_accounts AS a ON a.worker_pool_id = f.pool;

INSERT INTO queue_workers (task_queue_id, worker_group, worker_id, recent_tasks, quarantine_details,
    expires, expiry_hour, first_claim, last_date_active)
SELECT pool, 'bench', worker, '[]', '[]', #now + 86400000, (#now + 86400000) / 3600000 * 3600000,
    #now, #now
FROM fleet;

INSERT INTO tasks (task_id, task_queue_id, task_group_id, priority, deadline, expires, retries_left,
    state, runs, version, inserted)
SELECT running, pool, running, 6, #now + 86400000, #now + 864000000, 5, 'running',
    '[{"reasonCreated":"scheduled","workerGroup":"bench","workerId":"' || worker ||
    '","takenUntil":"#until","scheduled":"#iso","started":"#iso"}]', 2, #now
FROM fleet
UNION ALL
SELECT waiting, pool, waiting, 6, #now + 86400000, #now + 864000000, 5, 'pending',
    '[{"reasonCreated":"scheduled","scheduled":"#iso"}]', 1, #now
FROM fleet WHERE place = 0;

INSERT INTO task_definitions (task_id, definition)
SELECT t.id, '{"provisionerId":"bench","workerType":"' || substr(t.pool, 7) || '","taskQueueId":"' ||
    t.pool || '","schedulerId":"-","projectId":"none","taskGroupId":"' || t.id ||
    '","dependencies":[],"requires":"all-completed","routes":[],"priority":"lowest","retries":5,' ||
    '"created":"#iso","deadline":"#deadline","expires":"#expires","scopes":[],"payload":{"command":' ||
    '["true"],"maxRunTime":60},"metadata":{"name":"bench","description":"","owner":' ||
    '"bench@example.com","source":"https://example.com"},"tags":{},"extra":{}}'
FROM (
    SELECT running AS id, pool FROM fleet UNION ALL SELECT waiting, pool FROM fleet WHERE place = 0
) AS t;

INSERT INTO pending_tasks (task_id, run_id, task_queue_id, priority, inserted, deadline)
SELECT waiting, 0, pool, 6, #now, #now + 86400000 FROM fleet WHERE place = 0;

INSERT INTO claimed_tasks (task_id, run_id, task_queue_id, worker_group, worker_id, claimed,
    taken_until)
SELECT running, 0, pool, 'bench', worker, #now, #now + 3600000 FROM fleet;

DROP TABLE fleet;
