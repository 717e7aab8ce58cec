//! What many processes share: events over AMQP, and demand and outcomes from a queue elsewhere.
#![doc = include_str!("../README.md")]

mod broker;
mod inbox;
mod listener;
mod publisher;
mod taskcluster_queue;

pub use broker::{Broker, BrokerError, QueueLimits};
pub use inbox::{Inbox, Taken};
pub use listener::{Binding, Listener};
pub use publisher::{CONFIRM_LIMIT, Message, Published, Publisher};
pub use taskcluster_queue::{
    Activity, Busy, DemandError, MAX_BATCH, QueueAccess, TaskclusterQueue, WorkerPage,
};
