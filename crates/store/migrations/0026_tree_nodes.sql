-- The persistent nodes of the embedded tree, and the process that owns the tree.

CREATE TABLE tree_nodes (
    path {key} NOT NULL PRIMARY KEY,
    data TEXT NOT NULL,
    -- 1: the data is base64, since it is no text.
    is_base64 BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    -- Numbers of changes of the tree.
    created_by BIGINT NOT NULL,
    changed_by BIGINT NOT NULL,
    children_changed_by BIGINT NOT NULL,
    -- How many children were ever created.
    next_sequence BIGINT NOT NULL
);

CREATE TABLE tree_owners (
    -- There is one tree: 'tree'.
    name {key} NOT NULL PRIMARY KEY,
    -- JSON: which process this is, for other processes and for people.
    process TEXT NOT NULL,
    -- Increases with each owner. Only the last one can write nodes.
    epoch BIGINT NOT NULL,
    -- When the owner last wrote that it runs; 0: it has ended.
    renewed BIGINT NOT NULL
);
