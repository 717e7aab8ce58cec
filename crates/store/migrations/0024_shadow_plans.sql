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
