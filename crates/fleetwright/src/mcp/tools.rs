//! The tools that ask the server.

use super::tool::{Argument, Read, Tool};
use crate::client::{FLEETWRIGHT, QUEUE, WORKER_MANAGER};

const POOL: &str = "workerPoolId";

const fn required(name: &'static str, description: &'static str) -> Argument {
    Argument {
        name,
        description,
        is_required: true,
        values: &[],
    }
}

const fn optional(name: &'static str, description: &'static str) -> Argument {
    Argument {
        is_required: false,
        ..required(name, description)
    }
}

const fn choice(
    name: &'static str,
    description: &'static str,
    values: &'static [&'static str],
) -> Argument {
    Argument {
        values,
        ..optional(name, description)
    }
}

const SINCE: Argument = optional("since", "A time, or a duration before now such as 24h");
const OF_POOL: Argument = required(POOL, "The pool, such as proj/ci");
const ONLY_POOL: Argument = optional(POOL, "Only this pool");

pub(super) const ALL: &[Tool] = &[
    Tool {
        name: "status",
        description: "Whether all is well: problems with their causes and what to do, waiting \
                      tasks, capacity, cost. Ask this first.",
        arguments: &[],
        request: |_| Ok(Read::one(FLEETWRIGHT, &["status"], "show the status")),
    },
    Tool {
        name: "explain_task",
        description: "Why a task waits, or how it ended",
        arguments: &[required("taskId", "The task")],
        request: |given| {
            let path = ["explain", "task", given.required("taskId")];
            Ok(Read::one(FLEETWRIGHT, &path, "explain the task"))
        },
    },
    Tool {
        name: "explain_pool",
        description: "How many machines a pool needs and why, its launch configs, and its last \
                      decisions",
        arguments: &[OF_POOL, optional("at", "A time in the past instead of now")],
        request: |given| {
            let path = ["explain", "pool", given.required(POOL)];
            let at = given.past_moment("at")?;
            Ok(Read::one(FLEETWRIGHT, &path, "explain the pool").query("at", at))
        },
    },
    Tool {
        name: "explain_worker",
        description: "The story of a worker: launch, registration, tasks, end",
        arguments: &[
            OF_POOL,
            required("workerGroup", "Its group, as lists of workers have it"),
            required("workerId", "Its id"),
        ],
        request: |given| {
            let [group, id] = ["workerGroup", "workerId"].map(|name| given.required(name));
            let path = ["explain", "worker", given.required(POOL), group, id];
            Ok(Read::one(FLEETWRIGHT, &path, "explain the worker"))
        },
    },
    Tool {
        name: "cost",
        description: "What machines cost in millionths of a dollar, by use: useful, booting, \
                      idle, failed, leaving, lost",
        arguments: &[
            ONLY_POOL,
            choice(
                "by",
                "A line for each",
                &["kind", "pool", "launch-config", "provider", "owner", "day"],
            ),
            SINCE,
        ],
        request: |given| {
            let path = match given.get(POOL) {
                Some(pool) => vec!["cost", "pool", pool],
                None => vec!["cost"],
            };
            let read = Read::one(FLEETWRIGHT, &path, "show costs");
            Ok(read
                .query("by", Some(given.get("by").unwrap_or("kind")))
                .query("since", given.past_moment("since")?))
        },
    },
    Tool {
        name: "wait",
        description: "How long tasks waited in milliseconds, and for which causes",
        arguments: &[
            ONLY_POOL,
            choice(
                "by",
                "A line for each",
                &["cause", "pool", "queue", "owner", "day", "hour"],
            ),
            SINCE,
        ],
        request: |given| {
            let read = Read::one(FLEETWRIGHT, &["waits"], "show how long tasks waited");
            Ok(read
                .query("by", Some(given.get("by").unwrap_or("cause")))
                .query("since", given.past_moment("since")?)
                .query(POOL, given.get(POOL)))
        },
    },
    Tool {
        name: "list_pools",
        description: "The pools with the numbers and capacity of their workers",
        arguments: &[],
        request: |_| {
            let path = ["worker-pools", "stats"];
            Ok(Read::list(
                WORKER_MANAGER,
                &path,
                "workerPoolsStats",
                "list pools",
            ))
        },
    },
    Tool {
        name: "show_pool",
        description: "The definition of a pool",
        arguments: &[OF_POOL],
        request: |given| {
            let path = ["worker-pool", given.required(POOL)];
            Ok(Read::one(WORKER_MANAGER, &path, "show the pool"))
        },
    },
    Tool {
        name: "list_workers",
        description: "Workers by pool, provider, state or a search",
        arguments: &[
            ONLY_POOL,
            optional("providerId", "Only of this provider"),
            choice(
                "state",
                "Only in this state",
                &["requested", "running", "stopping", "stopped", "standalone"],
            ),
            optional("search", "Part of an id or a name"),
        ],
        request: |given| {
            let read = Read::list(FLEETWRIGHT, &["workers"], "workers", "list workers");
            let names = [POOL, "providerId", "state", "search"];
            Ok(names
                .into_iter()
                .fold(read, |read, name| read.query(name, given.get(name))))
        },
    },
    Tool {
        name: "list_tasks",
        description: "The waiting or running tasks of a pool",
        arguments: &[
            OF_POOL,
            choice("state", "Default: pending", &["pending", "running"]),
        ],
        request: |given| {
            let place = match given.get("state") {
                Some("running") => "claimed",
                _ => "pending",
            };
            let path = ["task-queues", given.required(POOL), place];
            Ok(Read::list(QUEUE, &path, "tasks", "list tasks"))
        },
    },
    Tool {
        name: "list_task_group",
        description: "The tasks of a group with their states",
        arguments: &[required("taskGroupId", "The group")],
        request: |given| {
            let path = ["task-group", given.required("taskGroupId"), "list"];
            Ok(Read::list(
                QUEUE,
                &path,
                "tasks",
                "list the tasks of the group",
            ))
        },
    },
    Tool {
        name: "error_causes",
        description: "The errors of all pools, grouped by cause",
        arguments: &[],
        request: |_| {
            Ok(Read::one(
                FLEETWRIGHT,
                &["error-causes"],
                "list causes of errors",
            ))
        },
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tools_have_names_of_their_own() {
        let names: BTreeSet<&str> = ALL.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
