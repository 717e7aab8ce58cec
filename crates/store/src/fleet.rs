//! Pools, launch configs, launches and workers: what the planner sees and writes.

pub(crate) mod launch_configs;
pub(crate) mod launch_health;
pub(crate) mod launches;
pub(crate) mod overrides;
pub(crate) mod plans;
pub(crate) mod pools;
pub(crate) mod running_workers;
pub(crate) mod worker_counts;
pub(crate) mod worker_supply;
pub(crate) mod workers;
