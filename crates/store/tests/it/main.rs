//! Tests of the store on SQLite, and on PostgreSQL if `TEST_PG_URL` is set.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod access;
mod announced_tasks;
mod artifacts;
mod audit;
mod budgets;
mod cache_purges;
mod configuration;
mod costs;
mod documentation;
mod equality;
mod errors;
mod events;
mod forgotten;
mod launch_configs;
mod launch_failures;
mod launch_health;
mod launches;
mod market;
mod migrations;
mod notices;
mod overrides;
mod pools;
mod postgres_pipeline;
mod postgres_plans;
mod postgres_trips;
mod postgres_updates;
mod queue_workers;
mod reconnect;
mod relays;
mod run_outcomes;
mod samples;
mod statistics;
mod supply;
mod task_dependencies;
mod task_queues;
mod tasks;
mod texts;
mod transactions;
mod tree;
mod wait_accounts;
mod workers;
mod world;
mod year_old;
