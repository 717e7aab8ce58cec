//! What all requests together, and those from one address, may take: memory for bodies, and calls without credentials.

mod body_budget;
mod open_calls;

pub use body_budget::{BodyBudget, BodyShare, NoMemory};
pub use open_calls::{OpenCalls, TooManyCalls};
