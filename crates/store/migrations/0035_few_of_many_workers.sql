-- Few workers are quarantined, and few are requested. Plans looked for them among all workers of
-- their pools.

DROP INDEX queue_workers_quarantined;
CREATE INDEX queue_workers_quarantined
    ON queue_workers (task_queue_id, quarantine_until, worker_group, worker_id)
    WHERE quarantine_until IS NOT NULL;

CREATE INDEX workers_requested ON workers (worker_pool_id, created, launch_config_id, draining,
    capacity, provider_id, state)
    WHERE state = 'requested';
