-- 500,000 tasks that wait, 90,000 that run, and a million that have ended. Claims last a day: no
-- worker extends them, and a benchmark takes longer than the usual 20 minutes.

INSERT INTO task_queues (task_queue_id, description, stability, expires, last_date_active)
SELECT 'year/pool-' || i, '', 'experimental', #now() + 432000000, #now() - 60000
FROM numbers WHERE i < #n(400);

INSERT INTO tasks (task_id, task_queue_id, task_group_id, priority, deadline, expires, retries_left,
    state, runs, version, inserted)
SELECT #task(i), #queue(i), #task(i - i % 20), i % 3 + 1,
    CASE WHEN i < #n(600000) THEN #now() + 432000000 ELSE #now() - #random(i, 3000000000) END,
    #now() + 86400000 + #random(i, 31536000000), 5,
    CASE WHEN i < #n(500000) THEN 'pending' WHEN i < #n(600000) AND i % 20 > 1 THEN 'running'
        ELSE 'completed' END,
    CASE WHEN i < #n(500000) THEN '[{"reasonCreated":"scheduled","scheduled":"#iso(-3600000)"}]'
        ELSE '[{"reasonCreated":"scheduled",' || CASE WHEN i < #n(600000) AND i % 20 > 1 THEN ''
            ELSE '"reasonResolved":"completed","resolved":"#iso(-600000)",' END ||
            '"workerGroup":"zone-' || (i % 4) || '","workerId":"' || #worker(i - #n(500000)) ||
            '","takenUntil":"#iso(86400000)","scheduled":"#iso(-3600000)","started":"#iso(-1200000)"}]'
        END,
    2, #now() - 3600000
FROM numbers WHERE i < #n(1600000);

INSERT INTO task_definitions (task_id, definition)
SELECT #task(i), '{"provisionerId":"year","workerType":"' || substr(#queue(i), 6) ||
    '","taskQueueId":"' || #queue(i) || '","schedulerId":"year","projectId":"none","taskGroupId":"' ||
    #task(i - i % 20) || '","dependencies":[],"requires":"all-completed","routes":[],"priority":"' ||
    CASE i % 3 WHEN 0 THEN 'very-low' WHEN 1 THEN 'low' ELSE 'medium' END ||
    '","retries":5,"created":"#iso(-3600000)","deadline":"#iso(432000000)","expires":' ||
    '"#iso(31536000000)","scopes":[],"payload":{"command":["sh","-c","make test"],' ||
    '"maxRunTime":3600},"metadata":{"name":"test","description":"' || #filler(300) ||
    '","owner":"owner@example.com","source":"https://example.com"},"tags":{},"extra":{}}'
FROM numbers WHERE i < #n(1600000);

INSERT INTO task_groups (task_group_id, scheduler_id, expires, sealed, version)
SELECT #task(i), 'year', #now() + 86400000 + #random(i, 31536000000), NULL, 2
FROM numbers WHERE i < #n(1600000) AND i % 20 = 0;

INSERT INTO pending_tasks (task_id, run_id, task_queue_id, priority, inserted, deadline)
SELECT #task(i), 0, #queue(i), i % 3 + 1, #now() - 3600000, #now() + 432000000
FROM numbers WHERE i < #n(500000) ORDER BY i;

INSERT INTO claimed_tasks (task_id, run_id, task_queue_id, worker_group, worker_id, claimed,
    taken_until)
SELECT #task(i), 0, #queue(i), 'zone-' || (i % 4), #worker(i - #n(500000)), #now() - 1200000,
    #now() + 86400000
FROM numbers WHERE i >= #n(500000) AND i < #n(600000) AND i % 20 > 1;

-- Every tenth ended task had a task that depended on it; a few thousand wait for another one.
INSERT INTO task_dependencies (required_task_id, task_id, any_end, released)
SELECT #task(i), #task(i + 1), 0, CASE WHEN i >= #n(600000) THEN 1 ELSE 0 END
FROM numbers WHERE i % 10 = 0 AND (i >= #n(600000) OR i < #n(40000)) AND i < #n(1600000);

INSERT INTO artifacts (task_id, run_id, name, storage_type, content_type, expires, state, details,
    bytes, created)
SELECT #task(i), 0, 'public/logs/live.log', 's3', 'text/plain; charset=utf-8',
    #now() + 86400000 + #random(i, 31536000000), 'present', '"log"', 0, #now() - #random(i, 31536000000)
FROM numbers WHERE i >= #n(600000) AND i < #n(1600000) AND i % 2 = 0;

INSERT INTO run_outcomes (task_id, run_id, worker_pool_id, worker_group, worker_id, reason, resolved,
    started)
SELECT #task(i), 0, #queue(i), 'zone-' || (i % 4), #worker(i % #n(250000)), 'completed',
    #now() - #random(i, 1209600000), #now() - #random(i, 1209600000) - 600000
FROM numbers WHERE i >= #n(600000) AND i < #n(1600000);

INSERT INTO recorded_runs (worker_pool_id, waiting_since, started, resolved, reason, priority)
SELECT #queue(i), #now() - #random(i, 1209600000) - 700000, #now() - #random(i, 1209600000) - 600000,
    #now() - #random(i, 1209600000), 'completed', 6
FROM numbers WHERE i >= #n(600000) AND i < #n(1600000) ORDER BY i;

INSERT INTO cache_purges (worker_pool_id, cache_name, purge_before, expires)
SELECT #pool(i), 'cache-' || i, #now() - 3600000, #now() + #random(i, 86400000)
FROM numbers WHERE i < #n(20000);
