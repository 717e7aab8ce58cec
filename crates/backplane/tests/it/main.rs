//! Tests with a real broker if `TEST_AMQP_URL` is set, with a real ZooKeeper if `TEST_ZOOKEEPER` is
//! set, and with a scripted HTTP server.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod broker;
mod events;

mod inbox;
mod listener;
mod queue;
mod scripted;
mod tree;
