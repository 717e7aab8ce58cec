//! Tasks from their creation to their end, and the workers that ask for them.

pub mod announced_tasks;
pub mod artifacts;
pub mod cache_purges;
pub mod claimants;
pub mod claimed_tasks;
pub mod demand;
pub mod dependencies;
pub mod pending_tasks;
pub mod queue_workers;
pub mod task_groups;
pub mod task_queues;
pub mod task_waits;
pub mod tasks;
pub mod worker_metadata;
