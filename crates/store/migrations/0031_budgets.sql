-- Budgets: what may be spent on machines in an hour, a day or a month. Money is in millionths.

CREATE TABLE budgets (
    budget_id {key} NOT NULL PRIMARY KEY,
    -- Whose money it limits: one of pools (a/b, a/* or *), the owner of pools, or a provider.
    worker_pools {key},
    owner {key},
    provider_id {key},
    period {key} NOT NULL,
    amount BIGINT NOT NULL,
    currency {key} NOT NULL,
    -- Percentages.
    warn_at BIGINT NOT NULL,
    lower_at BIGINT NOT NULL,
    lower_to BIGINT NOT NULL,
    description TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    -- The money spent in the period of that moment, and the price per hour and the number of the
    -- machines that run or are to come. Plans add the machines that they launch.
    measured BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    hourly BIGINT NOT NULL,
    machines BIGINT NOT NULL,
    version BIGINT NOT NULL
);

-- The steps that were announced, each once for each period.
CREATE TABLE budget_steps (
    budget_id {key} NOT NULL,
    period {key} NOT NULL,
    began BIGINT NOT NULL,
    step {key} NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (budget_id, period, began, step)
);

CREATE INDEX budget_steps_oldest ON budget_steps (created);
