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
