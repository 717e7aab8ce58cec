//! Limits for all requests together and for single addresses.

mod body_budget;
mod connections;
mod open_calls;

pub use body_budget::{BodyBudget, BodyShare, NoMemory};
pub use connections::{Connection, Connections, Place, TooManyConnections, UnderWay};
pub use open_calls::{OpenCalls, TooManyCalls};
