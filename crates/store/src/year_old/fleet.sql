-- Pools, launch configs, workers and launches. Every third row belongs to the first pool.

CREATE TEMP TABLE numbers AS
WITH RECURSIVE counted(i) AS (
    SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM counted WHERE i < #n(1600000)
)
SELECT i FROM counted;

CREATE INDEX numbers_by_i ON numbers (i);

INSERT INTO worker_pools (worker_pool_id, provider_id, previous_provider_ids, description, config,
    owner, email_on_error, created, last_modified, version, further_provider_ids)
SELECT 'year/pool-' || i, 'cloud', '[]', 'a pool of a year ago',
    '{"minCapacity":0,"maxCapacity":5000,"scalingRatio":1.0}', 'owner-' || (i % 20) || '@example.com',
    0, #now() - 31536000000, #now() - 86400000, 9, '[]'
FROM numbers WHERE i < #n(400);

INSERT INTO pool_resources (worker_pool_id, provider_id, state, data, problem, failures, next_try,
    version)
SELECT 'year/pool-' || i, 'cloud', 'ready', '{"group":"year"}', '', 0, 0, 1
FROM numbers WHERE i < #n(400);

INSERT INTO sessions (session_id, kind, client_id, sealed_credentials, browser, created, last_used,
    expires, ends)
SELECT 'session-' || i, 'browser', 'year/client-' || i, 'sealed', 'browser',
    #now() - 86400000, #now() - 1000, #now() + 86400000, #now() + 864000000
FROM numbers WHERE i < #n(400);

INSERT INTO secrets (name, sealed_value, expires, last_modified)
SELECT 'worker-pool:year/pool-' || i, 'sealed', #now() + 864000000, #now() - 86400000
FROM numbers WHERE i < #n(400);

INSERT INTO relays (relay_id, first_seen, last_seen, interval_seconds, announcement)
SELECT 'relay-' || i, #now() - 31536000000, #now() - 1000, 30, '{"hosts":[]}'
FROM numbers WHERE i < 20;

-- Six are in use, and a year of edits archived twenty more.
INSERT INTO launch_configs (worker_pool_id, launch_config_id, archived, position, configuration,
    created, last_modified, version)
SELECT 'year/pool-' || p.i, 'lc-' || c.i, CASE WHEN c.i < 6 THEN 0 ELSE 1 END, c.i,
    '{"region":"region-' || (c.i % 4) || '","workerConfig":{"genericWorker":{"config":' ||
    '{"idleTimeoutSecs":600}}},"workerManager":{"capacityPerInstance":1,"initialWeight":1.0}}',
    #now() - 31536000000, #now() - 86400000, 1
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(400) AND c.i < 26;

-- 100,000 live workers, one in twenty requested and one stopping, and 150,000 that have stopped.
INSERT INTO workers (worker_pool_id, worker_group, worker_id, provider_id, launch_config_id, state,
    capacity, created, expires, last_modified, last_checked, terms, provider_data, secret, version,
    draining, first_claim, registered, price)
SELECT #pool(i), 'zone-' || (i % 4), #worker(i), 'cloud', 'lc-' || (i % 6),
    CASE WHEN i >= #n(100000) THEN 'stopped' WHEN i % 20 = 0 THEN 'requested'
        WHEN i % 20 = 1 THEN 'stopping' ELSE 'running' END,
    1, #now() - #random(i, 604800000), #now() + 604800000, #now() - 3600000, #now() - #random(i, 300000),
    '{"terminateAfter":' || (#now() + 345600000) || ',"queueInactivityTimeout":7200000,' ||
    '"firstClaimTimeout":1800000,"launchToken":"' || #task(i + 40000000) || '","workerConfig":' ||
    '{"genericWorker":{"config":{"idleTimeoutSecs":600}}},"registeredAt":' || (#now() - 7000000) || '}',
    '{"region":"region-' || (i % 4) || '","zone":"a"}',
    CASE WHEN i % 20 > 0 THEN 'd1.k1.BH2uTAACPOjkamBKpoa3orQOmpQ885qXw_nOVu5nKRc' END, 5, 0,
    CASE WHEN i % 20 > 0 THEN #now() - 6000000 END, CASE WHEN i % 20 > 0 THEN #now() - 7000000 END,
    96000
FROM numbers WHERE i < #n(250000);

INSERT INTO recorded_workers (worker_pool_id, worker_group, worker_id, provider_id,
    launch_config_id, capacity, price, created, registered, stopping, stopped, interrupted)
SELECT #pool(i), 'zone-' || (i % 4), #worker(i), 'cloud', 'lc-' || (i % 6), 1, 96000,
    #now() - #random(i, 604800000), #now() - #random(i, 604800000) + 60000, NULL,
    CASE WHEN i >= #n(100000) THEN #now() - #random(i, 604800000) + 7200000 END, 0
FROM numbers WHERE i < #n(250000);

-- Workers of the last day that asked for work.
INSERT INTO queue_workers (task_queue_id, worker_group, worker_id, recent_tasks, quarantine_until,
    quarantine_details, expires, expiry_hour, first_claim, last_date_active, last_task_ended)
SELECT #pool(i), 'zone-' || (i % 4), #worker(i),
    '[{"taskId":"' || #task(i + #n(500000)) || '","runId":0}]',
    CASE WHEN i % 5000 = 7 THEN #now() + 86400000 END, '[]',
    #now() + 86400000 - #random(i, 3600000),
    (#now() + 86400000 - #random(i, 3600000)) / 3600000 * 3600000, #now() - 6000000, #now() - #random(i, 600000), #now() - 900000
FROM numbers WHERE i < #n(120000) AND i % 20 > 0;

INSERT INTO launches (token, worker_pool_id, provider_id, launch_config_id, machines, capacity_each,
    max_price, state, cause, problem, made, plan, created, last_modified, failed, registered,
    never_registered, last_failure, version, claimed, asked, last_registered, last_event, price,
    offering)
SELECT #task(i + 40000000), #pool(i), 'cloud', 'lc-' || (i % 6), 1, 1, NULL,
    CASE WHEN i % 50 = 0 THEN 'refused' ELSE 'accepted' END,
    CASE WHEN i % 50 = 0 THEN 'capacity' END, CASE WHEN i % 50 = 0 THEN 'no capacity left' END,
    CASE WHEN i % 50 = 0 THEN 0 ELSE 1 END, 1, #now() - #random(i, 2592000000),
    #now() - #random(i, 2592000000) + 5000, CASE WHEN i % 50 = 0 THEN 1 ELSE 0 END,
    CASE WHEN i % 50 = 0 THEN 0 ELSE 1 END, 0,
    CASE WHEN i % 50 = 0 THEN #now() - #random(i, 2592000000) END, 3, 1,
    #now() - #random(i, 2592000000) + 10, #now() - #random(i, 2592000000) + 60000,
    #now() - #random(i, 2592000000) + 60000, 96000, '["cloud","region-' || (i % 4) || '","m","spot"]'
FROM numbers WHERE i < #n(150000);

INSERT INTO plans (worker_pool_id, number, created, plan, input)
SELECT 'year/pool-' || p.i, c.i + 1, #now() - (100 - c.i) * 60000,
    '{"plan":{"advice":[],"againAt":null,"alarm":null,"awards":[],"change":0.0,"reasons":' ||
    '["needed 0: 0 pending, maximum 24, ratio 1"],"target":0.0},"version":2}',
    #filler(1000)
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(400) AND c.i < 100;

INSERT INTO shadow_plans (worker_pool_id, number, created, plan_number, comparison, plan, input)
SELECT 'year/pool-' || p.i, c.i + 1, #now() - (100 - c.i) * 60000, c.i + 1, '{}',
    '{"plan":{"advice":[],"awards":[],"change":0.0,"reasons":[],"target":0.0},"version":2}',
    #filler(1000)
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(40) AND c.i < 100;

INSERT INTO turns (name, number)
SELECT 'pool:year/pool-' || i, 100000 + i FROM numbers WHERE i < #n(4000);

INSERT INTO overrides (override_id, worker_pool_id, launch_config_id, provider_id, region, pause,
    min_capacity, max_capacity, reason, owner, created, until, ended, version)
SELECT 'freeze-' || i, #pool(i), NULL, NULL, NULL, 1, NULL, NULL, 'moving racks', 'people/ops',
    #now() - #random(i, 31536000000), #now() - #random(i, 31536000000) + 3600000,
    #now() - #random(i, 31536000000) + 3600000, 2
FROM numbers WHERE i < #n(2000);

INSERT INTO budgets (budget_id, worker_pools, owner, provider_id, period, amount, currency, warn_at,
    lower_at, lower_to, description, created, last_modified, measured, spent, hourly, machines,
    launched, version)
SELECT 'budget-' || i, 'year/pool-' || i, NULL, NULL, 'day', 900000000000, 'USD', 80, 100, 0,
    '', #now() - 31536000000, #now() - 86400000, #now(), 0, 0, 0, 0, 1
FROM numbers WHERE i < #n(200);

INSERT INTO budget_steps (budget_id, period, began, step, created)
SELECT 'budget-' || p.i, 'day', d.i * 86400000, 'warn', #now() - d.i * 86400000
FROM numbers AS p CROSS JOIN numbers AS d WHERE p.i < #n(200) AND d.i < 60;

INSERT INTO pool_waits (worker_pool_id, since, cause)
SELECT 'year/pool-' || i, #now() - 60000, 'maximum' FROM numbers WHERE i < #n(400);

INSERT INTO wait_boundaries (worker_pool_id, since, cause)
SELECT 'year/pool-' || p.i, #now() - c.i * 600000, CASE c.i % 2 WHEN 0 THEN 'maximum' ELSE 'asked' END
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(400) AND c.i < 100;
