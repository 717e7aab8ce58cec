-- What has to be told to the world, and what has been done by whom.

CREATE TABLE outbox (
    sequence {serial},
    event_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    worker_pool_id {key},
    payload TEXT NOT NULL,
    created BIGINT NOT NULL,
    published BIGINT
);

CREATE INDEX outbox_waiting ON outbox (sequence) WHERE published IS NULL;
CREATE INDEX outbox_published ON outbox (published) WHERE published IS NOT NULL;

CREATE TABLE audit (
    sequence {serial},
    entity_type {key} NOT NULL,
    entity_id {key} NOT NULL,
    client_id {key} NOT NULL,
    action TEXT NOT NULL,
    created BIGINT NOT NULL,
    source_ip TEXT,
    request_id TEXT,
    detail TEXT NOT NULL
);

CREATE INDEX audit_of_entity ON audit (entity_type, entity_id, sequence);
CREATE INDEX audit_of_client ON audit (client_id, sequence);
