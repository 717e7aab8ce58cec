//! The store against real databases: SQLite always, PostgreSQL when `TEST_PG_URL` names one.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod access;
mod audit_and_outbox;
mod equality;
mod errors;
mod launch_configs;
mod migrations;
mod pools;
mod queue_workers;
mod reconnect;
mod samples;
mod texts;
mod transactions;
mod workers;
mod world;
