-- The same indexes with their condition written out: for `state IN (…)`, SQLite built a table of the three states
-- for each index and each side of every change of a task, which was a quarter of the time that a claim took.

DROP INDEX tasks_active_of_group;
DROP INDEX tasks_overdue;

CREATE INDEX tasks_active_of_group ON tasks (task_group_id, task_id)
    WHERE (state = 'unscheduled' OR state = 'pending' OR state = 'running');
CREATE INDEX tasks_overdue ON tasks (deadline)
    WHERE (state = 'unscheduled' OR state = 'pending' OR state = 'running');
