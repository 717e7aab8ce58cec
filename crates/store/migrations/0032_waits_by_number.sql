-- The names of an account of waiting time are kept once, and not in each hour and day.

ALTER TABLE wait_accounts RENAME TO named_waits;

-- Whose time it is, and why it waited.
CREATE TABLE wait_accounts (
    account {serial},
    worker_pool_id {key} NOT NULL,
    -- The owner of the pool; empty: the queue has no pool.
    owner {key} NOT NULL,
    cause {key} NOT NULL
);

CREATE UNIQUE INDEX wait_accounts_by_name ON wait_accounts (worker_pool_id, owner, cause);

CREATE TABLE waits (
    -- The length of the period: an hour or a day, in milliseconds.
    span BIGINT NOT NULL,
    since BIGINT NOT NULL,
    account BIGINT NOT NULL,
    runs BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    PRIMARY KEY (span, since, account)
) {by_key};

INSERT INTO wait_accounts (worker_pool_id, owner, cause)
SELECT DISTINCT worker_pool_id, owner, cause FROM named_waits;

INSERT INTO waits (span, since, account, runs, millis)
SELECT n.span, n.since, a.account, n.runs, n.millis
FROM named_waits AS n CROSS JOIN wait_accounts AS a
WHERE a.worker_pool_id = n.worker_pool_id AND a.owner = n.owner AND a.cause = n.cause;

DROP TABLE named_waits;
