-- Definitions of images, and every version of them. Builds and uploads are in the tree.

CREATE TABLE images (
    image_id {key} NOT NULL PRIMARY KEY,
    document TEXT NOT NULL,
    created BIGINT NOT NULL,
    last_modified BIGINT NOT NULL,
    version BIGINT NOT NULL
);

-- Rows are only ever added; they outlive the definition.
CREATE TABLE image_versions (
    image_id {key} NOT NULL,
    version BIGINT NOT NULL,
    action {key} NOT NULL,
    document TEXT NOT NULL,
    client_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (image_id, version)
);
