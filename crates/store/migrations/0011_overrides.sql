-- Overrides: what is paused or limited otherwise for a time.

CREATE TABLE overrides (
    override_id {key} NOT NULL PRIMARY KEY,
    -- What it is about: a pool, a launch config in a pool, a provider, or a region.
    worker_pool_id {key},
    launch_config_id {key},
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
