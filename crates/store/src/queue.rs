//! Tasks from their creation to their end, and the workers that ask for them.

pub(crate) mod artifacts;
pub(crate) mod cache_purges;
pub(crate) mod claimants;
pub(crate) mod claimed_tasks;
pub(crate) mod demand;
pub(crate) mod dependencies;
pub(crate) mod pending_tasks;
pub(crate) mod queue_workers;
pub(crate) mod task_groups;
pub(crate) mod task_queues;
pub(crate) mod tasks;
pub(crate) mod worker_metadata;
