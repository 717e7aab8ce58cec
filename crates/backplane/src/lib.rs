//! Connections to other processes: events over AMQP, demand and outcomes from a Taskcluster queue,
//! and the tree.
#![doc = include_str!("../README.md")]

mod broker;
mod broker_stream;
mod inbox;
mod listener;
mod publisher;
mod taskcluster_queue;
pub mod tree;

pub use broker::{Broker, BrokerError, QueueLimits};
pub use inbox::{Inbox, ReceivedBatch};
pub use listener::{Binding, Listener};
pub use publisher::{CONFIRM_LIMIT, Message, PublishResult, Publisher};
pub use taskcluster_queue::{
    BusyWorkers, DemandError, MAX_BATCH, QueueAccess, TaskclusterQueue, WorkerActivity, WorkerPage,
};
