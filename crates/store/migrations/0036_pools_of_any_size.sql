-- PostgreSQL expects the average number of rows for each value. Beside very many small pools, a
-- pool has a single worker, and an index or a join that begins with the pool looks as good as the
-- complete key: in a large pool, each look at one worker then reads all. The same holds for a task
-- with thousands of dependencies, and for an hour in which thousands of pools had runs.
--
-- A negative number is the number of values for each row. It holds when PostgreSQL next counts the
-- table.

{postgres}ALTER TABLE workers ALTER COLUMN worker_pool_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE workers ALTER COLUMN worker_group SET (n_distinct = 4);
{postgres}ALTER TABLE queue_workers ALTER COLUMN task_queue_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE queue_workers ALTER COLUMN worker_group SET (n_distinct = 4);
{postgres}ALTER TABLE worker_errors ALTER COLUMN worker_pool_id SET (n_distinct = -0.001);
{postgres}ALTER TABLE wait_boundaries ALTER COLUMN since SET (n_distinct = -0.001);
{postgres}ALTER TABLE run_counts ALTER COLUMN hour SET (n_distinct = -0.001);
{postgres}ALTER TABLE task_dependencies ALTER COLUMN task_id SET (n_distinct = -0.01);
