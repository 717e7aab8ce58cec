//! Limits of requests and connections.

mod body_budget;
mod connection_table;
mod connections;
mod open_calls;
mod refusal_log;

pub use body_budget::{BodyBudget, BodyShare, NoMemory};
pub use connections::{Connection, ConnectionPlace, Connections, TooManyConnections, UnderWay};
pub use open_calls::{OpenCalls, TooManyCalls};
pub use refusal_log::RefusalLog;
