-- Money as an account: for each hour, and later for each day, the time of machines and its cost, by
-- use.

-- Whose money it is. The owner is the owner of the pool when the machine was launched.
CREATE TABLE cost_accounts (
    account {serial},
    worker_pool_id {key} NOT NULL,
    -- Empty: declared by hand.
    launch_config_id {key} NOT NULL,
    provider_id {key} NOT NULL,
    owner {key} NOT NULL,
    -- Empty: the price is not known, so only time is counted.
    currency {key} NOT NULL
);

CREATE UNIQUE INDEX cost_accounts_by_name
    ON cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, currency);
CREATE INDEX cost_accounts_of_provider ON cost_accounts (provider_id);
CREATE INDEX cost_accounts_of_owner ON cost_accounts (owner);

-- Times in milliseconds, money in millionths of the currency.
CREATE TABLE costs (
    began BIGINT NOT NULL,
    -- 1: an hour; 24: a day.
    hours BIGINT NOT NULL,
    account BIGINT NOT NULL,
    useful_ms BIGINT NOT NULL,
    booting_ms BIGINT NOT NULL,
    idle_ms BIGINT NOT NULL,
    failed_ms BIGINT NOT NULL,
    leaving_ms BIGINT NOT NULL,
    lost_ms BIGINT NOT NULL,
    useful BIGINT NOT NULL,
    booting BIGINT NOT NULL,
    idle BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    leaving BIGINT NOT NULL,
    lost BIGINT NOT NULL,
    PRIMARY KEY (began, hours, account)
) {by_key};

CREATE INDEX costs_of_account ON costs (account, began);
-- Hours that become days.
CREATE INDEX costs_by_hour ON costs (began, account) WHERE hours = 1;

-- One row for each machine whose cost is not settled. The transaction that settles it deletes it.
CREATE TABLE meters (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    account BIGINT NOT NULL,
    -- As agreed at the launch, in millionths of the currency per hour; null: not known.
    price BIGINT,
    started BIGINT NOT NULL,
    -- Up to here its cost is in the accounts.
    charged BIGINT NOT NULL,
    -- When it began to stop, and when it ended.
    leaving BIGINT,
    ended BIGINT,
    -- When its worker first asked for work, if the row of the worker has expired.
    first_claim BIGINT,
    -- When it is charged next.
    due BIGINT NOT NULL,
    -- The use since the last charge, as far as is known.
    kind {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id)
);

CREATE INDEX meters_due ON meters (due);
-- All that reports need of machines that run.
CREATE INDEX meters_of_account ON meters (account, kind, price, started, charged, ended);

-- Runs on machines with a meter that have ended, until their time is charged.
CREATE TABLE metered_runs (
    worker_pool_id {key} NOT NULL,
    worker_group {key} NOT NULL,
    worker_id {key} NOT NULL,
    task_id {key} NOT NULL,
    run_id BIGINT NOT NULL,
    started BIGINT NOT NULL,
    resolved BIGINT NOT NULL,
    reason {key} NOT NULL,
    PRIMARY KEY (worker_pool_id, worker_group, worker_id, task_id, run_id)
);

-- Machines that run already are charged from the last look at them.
INSERT INTO cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, currency)
SELECT DISTINCT w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.provider_id,
    COALESCE(p.owner, ''), CASE WHEN w.price IS NULL THEN '' ELSE 'USD' END
FROM workers AS w LEFT JOIN worker_pools AS p ON p.worker_pool_id = w.worker_pool_id
WHERE w.state <> 'stopped';

INSERT INTO meters (worker_pool_id, worker_group, worker_id, account, price, started, charged,
    leaving, ended, due, kind)
SELECT w.worker_pool_id, w.worker_group, w.worker_id, a.account, w.price, w.last_checked,
    w.last_checked, CASE WHEN w.state = 'stopping' THEN w.last_modified END, NULL, 0, 'booting'
FROM workers AS w LEFT JOIN worker_pools AS p ON p.worker_pool_id = w.worker_pool_id
JOIN cost_accounts AS a ON a.worker_pool_id = w.worker_pool_id
    AND a.launch_config_id = COALESCE(w.launch_config_id, '') AND a.provider_id = w.provider_id
    AND a.owner = COALESCE(p.owner, '')
    AND a.currency = CASE WHEN w.price IS NULL THEN '' ELSE 'USD' END
WHERE w.state <> 'stopped';
