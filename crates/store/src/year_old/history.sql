-- What was written down in a year: events of a day, audit lines, versions, errors, accounts.

INSERT INTO outbox (event_id, topic, routing_key, worker_pool_id, payload, created, routes, position)
SELECT #task(i + 60000000), 'exchange/taskcluster-queue/v1/task-' ||
    CASE i % 4 WHEN 0 THEN 'defined' WHEN 1 THEN 'pending' WHEN 2 THEN 'running' ELSE 'completed' END,
    'primary.' || #task(i / 4) || '.0._._.year.pool._._._', #pool(i / 4),
    '{"status":{"taskId":"' || #task(i / 4) || '","taskQueueId":"' || #pool(i / 4) || '"},"runId":0,' ||
    '"filler":"' || #filler(500) || '","version":1}', #now() - 86400000 + i * 50, NULL, i + 1
FROM numbers WHERE i < #n(1600000) ORDER BY i;

UPDATE event_stream SET position = #n(1600000);
UPDATE event_readers SET position = #n(1600000);

INSERT INTO audit (entity_type, entity_id, client_id, action, created, source_ip, request_id, detail)
SELECT 'worker-pool', #pool(i), 'people/' || (i % 50), 'updated', #now() - (#n(300000) - i) * 100000,
    '192.0.2.7', NULL, '{"reason":"a change of the maximum"}'
FROM numbers WHERE i < #n(300000) ORDER BY i;

INSERT INTO worker_errors (worker_pool_id, error_id, reported, kind, title, description, extra,
    launch_config_id, code, cause)
SELECT #pool(i), #task(i + 70000000), #now() - #random(i, 604800000), 'creation-error',
    'Instance Creation Error', 'no capacity in this zone', '{"region":"region-1"}', 'lc-' || (i % 6),
    'capacity', 'cause-' || (i % 40)
FROM numbers WHERE i < #n(200000);

INSERT INTO worker_configurations (worker_configuration_id, document, market, created,
    last_modified, version, summary)
SELECT 'rules-' || i, '{"rules":[]}', '{}', #now() - 31536000000, #now() - 86400000, 200, '{}'
FROM numbers WHERE i < #n(40);

INSERT INTO worker_configuration_versions (worker_configuration_id, version, action, document,
    market, client_id, reason, created)
SELECT 'rules-' || c.i, v.i + 1, CASE v.i WHEN 0 THEN 'created' ELSE 'updated' END,
    '{"rules":[],"description":"' || #filler(5000) || '"}', '{}', 'people/ops', '',
    #now() - (200 - v.i) * 150000000
FROM numbers AS c CROSS JOIN numbers AS v WHERE c.i < #n(40) AND v.i < 200;

INSERT INTO worker_types (worker_pool_id, worker_configuration_id, payload_schema, check_payload)
SELECT 'rules/type-' || i, 'rules-' || (i % #n(40)), NULL, 0 FROM numbers WHERE i < #n(400);

INSERT INTO documentation (kind, subject, title, digest, packed_bytes, unpacked_bytes, n_files,
    tarball, created, last_modified)
SELECT 'worker', 'worker-' || i, 'A worker', 'digest', 100, 1000, 1, 'AAAA', #now() - 31536000000,
    #now() - 86400000
FROM numbers WHERE i < #n(100);

INSERT INTO images (image_id, document, created, last_modified, version)
SELECT 'image-' || i, '{"imageId":"image-' || i || '","description":"","formats":["tar"],' ||
    '"uploads":[],"build":{"command":["true"]}}', #now() - 31536000000, #now() - 86400000, 50
FROM numbers WHERE i < #n(100);

INSERT INTO image_versions (image_id, version, action, document, client_id, reason, created)
SELECT 'image-' || p.i, v.i + 1, CASE v.i WHEN 0 THEN 'created' ELSE 'updated' END,
    '{"imageId":"image-' || p.i || '","description":"' || #filler(500) || '","formats":["tar"],' ||
    '"uploads":[],"build":{"command":["true"]}}', 'people/ops', '', #now() - (50 - v.i) * 600000000
FROM numbers AS p CROSS JOIN numbers AS v WHERE p.i < #n(100) AND v.i < 50;

INSERT INTO image_rollouts (image_id, standing, canary, selection, selected, uploads, last_modified, version)
SELECT 'image-' || i, '{"promoted":40,"candidate":null,"rejected":[]}', NULL,
    '{"targets":{},"share":0.0}', 40, '[]', #now() - 86400000, 90
FROM numbers WHERE i < #n(100);

INSERT INTO image_users (image_id, worker_pool_id, applied)
SELECT 'image-' || (i % #n(100)), 'year/pool-' || i, 40 FROM numbers WHERE i < #n(400);

INSERT INTO canary_trials (image_id, worker_pool_id, worker_group, worker_id, created, trial)
SELECT 'image-1', #pool(i), 'zone-' || (i % 4), #worker(i), #now() - #random(i, 3600000), '{}'
FROM numbers WHERE i < #n(2000);

INSERT INTO tree_nodes (path, data, is_base64, version, created, changed, created_by, changed_by,
    children_changed_by, next_sequence)
SELECT '/fleetwright/image/image-' || (i % #n(100)) || '/builds/' || i, '{"state":"ready"}', 0, 1,
    #now() - 86400000, #now() - 86400000, i + 1, i + 1, i + 1, 0
FROM numbers WHERE i < #n(20000);

INSERT INTO notices (notice_id, channel, recipient, content, created, due, refusals, sent, version)
SELECT #task(i + 80000000), 'email', 'owner-' || (i % 20) || '@example.com', '{}',
    #now() - #random(i, 2592000000), #now() - #random(i, 2592000000), 0, #now() - #random(i, 2592000000), 2
FROM numbers WHERE i < #n(20000);

INSERT INTO notice_causes (channel, worker_pool_id, cause, error_id, first_reported, last_reported,
    untold, first_untold, told, last_told, due, version)
SELECT 'email', #pool(i), 'cause-' || i, #task(i + 70000000), #now() - #random(i, 604800000),
    #now() - 3600000, 0, NULL, 7, #now() - #random(i, 604800000), NULL, 7
FROM numbers WHERE i < #n(20000);

INSERT INTO run_counts (worker_pool_id, hour, reason, runs)
SELECT 'year/pool-' || p.i, #now() / 3600000 * 3600000 - h.i * 3600000, 'completed', 17
FROM numbers AS p CROSS JOIN numbers AS h WHERE p.i < #n(400) AND h.i < 336;

INSERT INTO recorded_gaps (since, until)
SELECT #now() - (i + 1) * 3600000, #now() - (i + 1) * 3600000 + 5000
FROM numbers WHERE i < #n(2000) ORDER BY i DESC;

INSERT INTO clients (client_id, description, scopes, access_token, expires, created, last_modified,
    last_date_used, last_rotated, delete_on_expiration, disabled, version)
SELECT 'people/' || i, '', '[]', 's1.k1.uKzpSCrCUvNd2ohUDFyNM2j66LQxMCZMLZN3u9cSJu4Z9c-pp0X4QJFU',
    #now() + 31536000000, #now(), #now(), #now(), #now(), 1, 0, 1
FROM numbers WHERE i < #n(2000);

INSERT INTO roles (role_id, description, scopes, created, last_modified, version, revision_name,
    revision)
SELECT 'project:' || i, '', '[]', #now(), #now(), 1, 'access/' || substr(CAST(100 + i % 16 AS TEXT), 2),
    i + 1
FROM numbers WHERE i < #n(2000);

INSERT INTO wait_accounts (worker_pool_id, owner, cause)
SELECT 'year/pool-' || p.i, 'owner-' || (p.i % 20) || '@example.com', CASE c.i WHEN 0 THEN 'booting'
    WHEN 1 THEN 'maximum' WHEN 2 THEN 'asked' ELSE 'claim' END
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(400) AND c.i < 4;

INSERT INTO waits (span, since, account, runs, millis)
SELECT 86400000, #now() / 86400000 * 86400000 - d.i * 86400000, a.account, 200, 60000
FROM numbers AS d CROSS JOIN wait_accounts AS a WHERE d.i < 365;

INSERT INTO waits (span, since, account, runs, millis)
SELECT 3600000, #now() / 3600000 * 3600000 - h.i * 3600000, a.account, 200, 60000
FROM numbers AS h CROSS JOIN wait_accounts AS a WHERE h.i < 192;

INSERT INTO cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, currency)
SELECT 'year/pool-' || p.i, 'lc-' || c.i, 'cloud', 'owner-' || (p.i % 20) || '@example.com', 'USD'
FROM numbers AS p CROSS JOIN numbers AS c WHERE p.i < #n(400) AND c.i < 6;

INSERT INTO costs (began, hours, account, useful_ms, booting_ms, idle_ms, failed_ms, leaving_ms,
    lost_ms, useful, booting, idle, failed, leaving, lost)
SELECT CASE WHEN d.i < 24 THEN #now() / 3600000 * 3600000 - d.i * 3600000
    ELSE #now() / 86400000 * 86400000 - (d.i - 22) * 86400000 END, CASE WHEN d.i < 24 THEN 1 ELSE 24 END,
    a.account, 1000, 100, 100, 10, 10, 0, 5000, 500, 500, 50, 50, 0
FROM numbers AS d CROSS JOIN cost_accounts AS a WHERE d.i < 389;

INSERT INTO meters (worker_pool_id, worker_group, worker_id, account, price, started, charged,
    leaving, ended, first_claim, due, kind)
SELECT w.worker_pool_id, w.worker_group, w.worker_id, a.account, w.price, w.created, #now() - 1800000,
    NULL, NULL, NULL, #now() + #random(a.account, 3600000), 'useful'
FROM workers AS w CROSS JOIN cost_accounts AS a WHERE a.worker_pool_id = w.worker_pool_id
    AND a.launch_config_id = w.launch_config_id AND w.state <> 'stopped';

INSERT INTO metered_runs (worker_pool_id, worker_group, worker_id, task_id, run_id, started, resolved,
    reason)
SELECT worker_pool_id, worker_group, worker_id, task_id, run_id, started, resolved, reason
FROM run_outcomes WHERE resolved > #now() - 1800000;

INSERT INTO pool_memories (worker_pool_id, memory, learned, sampled, level, wanted, held, unexplained,
    quotas, version)
SELECT 'year/pool-' || i, #pool_memory(), '{}', #now() - 1000, 100, 100, 100, 0, NULL, 100000
FROM numbers WHERE i < #n(400);

INSERT INTO pool_news (worker_pool_id, n_ended, durations)
SELECT 'year/pool-' || (i % #n(400)), 1, '[600000]' FROM numbers WHERE i < #n(4000);

INSERT INTO offering_memories (offering, provider_id, memory, awaits_survival, survivors_until,
    last_modified, version)
SELECT 'cloud region-' || (i % 4) || ' kind-' || i, 'cloud', #offering_memory(), 0, #now() - 60000,
    #now() - #random(i, 2592000000), 1000
FROM numbers WHERE i < #n(20000);

INSERT INTO offering_news (offering, provider_id, observed, news)
SELECT 'cloud region-' || (i % 4) || ' kind-' || i, 'cloud', #now() - 1000, '{}'
FROM numbers WHERE i < #n(4000);

INSERT INTO series (worker_pool_id, launch_config_id, maximum)
SELECT 'year/pool-' || i, '', 10 FROM numbers WHERE i < #n(4000);

INSERT INTO series_times (span, since, minutes)
SELECT 60000, (#now() / 60000 - i) * 60000, 1 FROM numbers WHERE i < 1500
UNION ALL
SELECT 3600000, (#now() / 3600000 - i) * 3600000, 60 FROM numbers WHERE i < 2160
UNION ALL
SELECT 86400000, (#now() / 86400000 - i) * 86400000, 1440 FROM numbers WHERE i < 365;

INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, leaving, launched,
    refused, failed, cost, waited)
SELECT 60000, (#now() / 60000 - i % 1500) * 60000, i / 1500 + 1, 1, 0, 1, 2, 7, 0, 1, 0, 0, 5000, 60000
FROM numbers WHERE i < #n(1500000);

INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, leaving,
    most_waiting, most_requested, most_booting, most_idle, most_busy, most_leaving, most_capacity,
    launched, refused, failed, cost, waited)
SELECT 3600000, (#now() / 3600000 - i % 2160) * 3600000, i / 2160 + 1, 60, 0, 60, 120, 420, 0,
    1, 0, 1, 2, 7, 0, 10, 60, 0, 0, 300000, 3600000
FROM numbers WHERE i < #n(1600000)
UNION ALL
SELECT 86400000, (#now() / 86400000 - i % 365) * 86400000, i / 365 + 1, 60, 0, 60, 120, 420, 0,
    1, 0, 1, 2, 7, 0, 10, 60, 0, 0, 300000, 3600000
FROM numbers WHERE i < #n(365000);

INSERT INTO series_maxima (series, since, maximum)
SELECT i / 20 + 1, #now() - i % 20 * 86400000, 10 + i % 20 FROM numbers WHERE i < #n(20000);

DROP TABLE numbers;
