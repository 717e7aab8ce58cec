-- What is updated all the time stays in its place: no index has what changes with each sign of life,
-- and PostgreSQL finds room in the page and cleans up early. Rows that exist move when they are next
-- written.

-- The start of the hour in which the row expires, so that the index changes once an hour.
ALTER TABLE queue_workers ADD COLUMN expiry_hour BIGINT NOT NULL DEFAULT 0;
UPDATE queue_workers SET expiry_hour = expires / 3600000 * 3600000;
DROP INDEX queue_workers_expiring;
CREATE INDEX queue_workers_expiring ON queue_workers (expiry_hour);

{postgres}ALTER TABLE queue_workers SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE workers SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE tasks SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE claimed_tasks SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE pending_tasks SET (autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE meters SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE turns SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
{postgres}ALTER TABLE waits SET (fillfactor = 90);
{postgres}ALTER TABLE costs SET (fillfactor = 90);
{postgres}ALTER TABLE run_counts SET (fillfactor = 70);
{postgres}ALTER TABLE offering_memories SET (fillfactor = 70);
{postgres}ALTER TABLE pool_memories SET (fillfactor = 70);
