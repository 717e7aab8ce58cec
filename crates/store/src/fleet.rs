//! Pools, launch configs, launches and workers: what the planner sees and writes.

pub mod budgets;
pub mod host_numbers;
pub mod launch_configs;
pub mod launch_failures;
pub mod launch_health;
pub mod launches;
pub mod listed_workers;
pub mod machine_moments;
pub mod offering_memories;
pub mod offering_news;
pub mod overrides;
pub mod plans;
pub mod pool_memories;
pub mod pool_news;
pub mod pool_resources;
pub mod pool_waits;
pub mod pools;
pub mod relays;
pub mod running_workers;
pub mod shadow_plans;
pub mod started_workers;
pub mod worker_counts;
pub mod worker_supply;
pub mod workers;
