//! The backplane against a real broker when `TEST_AMQP_URL` names one, and against a scripted HTTP server.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod broker;
mod events;
mod hints;
mod inbox;
mod queue;
mod scripted;
