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
    -- When to tell of them; NULL if there is nothing to tell.
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

-- Errors among the events.
CREATE INDEX outbox_errors ON outbox (position)
    WHERE topic = 'exchange/taskcluster-worker-manager/v1/worker-pool-error' AND position IS NOT NULL;
