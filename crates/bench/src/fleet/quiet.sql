-- A fleet without workers and tasks.

DELETE FROM workers;
DELETE FROM meters;
DELETE FROM pending_tasks;
DELETE FROM claimed_tasks;
