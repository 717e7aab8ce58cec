//! What many processes share: events over AMQP, and demand from a queue elsewhere.

mod broker;
mod listener;
mod publisher;
mod taskcluster_queue;

pub use broker::{Broker, BrokerError};
pub use listener::{Binding, Listener};
pub use publisher::{CONFIRM_LIMIT, Message, Published, Publisher};
pub use taskcluster_queue::{
    Activity, Busy, DemandError, MAX_BATCH, QueueAccess, TaskclusterQueue,
};
