-- Who may do what: clients, roles, and a number that grows with each change of either.

CREATE TABLE clients (
    client_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    scopes TEXT NOT NULL,
    access_token TEXT NOT NULL,
    expires BIGINT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    last_date_used BIGINT NOT NULL,
    last_rotated BIGINT NOT NULL,
    delete_on_expiration BIGINT NOT NULL,
    disabled BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX clients_expiring ON clients (expires) WHERE delete_on_expiration = 1;

CREATE TABLE roles (
    role_id {key} NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

CREATE TABLE revisions (
    name {key} NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO revisions (name, value) VALUES ('access', 1);
