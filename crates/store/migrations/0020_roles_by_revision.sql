-- Of which counter of changes, and at which of its values, a role was last written: so that caches read only the
-- roles that they do not know yet.

ALTER TABLE roles ADD COLUMN revision_name {key} NOT NULL DEFAULT '';
ALTER TABLE roles ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

CREATE INDEX roles_by_revision ON roles (revision_name, revision);
