-- Which builds of images machines start from: decisions, canaries, and the pools that use images.

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
