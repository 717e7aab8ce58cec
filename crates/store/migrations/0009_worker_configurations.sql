-- Rule sets, every version of them, and which configuration a worker type belongs to.

CREATE TABLE worker_configurations (
    worker_configuration_id {key} NOT NULL PRIMARY KEY,
    document TEXT NOT NULL,
    -- What the providers presented when it was compiled last.
    market TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

-- Rows are only ever added; they outlive the configuration.
CREATE TABLE worker_configuration_versions (
    worker_configuration_id {key} NOT NULL,
    version BIGINT NOT NULL,
    action {key} NOT NULL,
    document TEXT NOT NULL,
    market TEXT NOT NULL,
    client_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (worker_configuration_id, version)
);

-- The primary key is what keeps a worker type in one configuration.
CREATE TABLE worker_types (
    worker_pool_id {key} NOT NULL PRIMARY KEY,
    worker_configuration_id {key} NOT NULL,
    payload_schema TEXT,
    check_payload BIGINT NOT NULL
);

CREATE INDEX worker_types_of_configuration ON worker_types (worker_configuration_id, worker_pool_id);
