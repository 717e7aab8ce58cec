-- Documentation of worker configurations and worker types, as tarballs.

CREATE TABLE documentation (
    -- 'worker-configuration' or 'worker-type'.
    kind {key} NOT NULL,
    -- The id of the configuration, or of the worker type's pool.
    subject {key} NOT NULL,
    title TEXT NOT NULL,
    -- Of the tarball, which is packed the same for the same files.
    digest {key} NOT NULL,
    packed_bytes BIGINT NOT NULL,
    unpacked_bytes BIGINT NOT NULL,
    n_files BIGINT NOT NULL,
    -- In base64.
    tarball TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    PRIMARY KEY (kind, subject)
);
