//! Workflows against a real database, without HTTP.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod access_changes;
mod artifacts;
mod budgets;
mod database_clock;
mod documentation;
mod queue_workers;
mod sealing;
mod tree;
mod world;
