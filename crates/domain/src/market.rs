//! The memory of the strategy `balanced`.
//!
//! Memory is plain data. It changes only by observations, so the same observations in the same
//! order give the same memory, and a stored plan contains all that was known when it was made.
//! An [`OfferingMemory`] is shared by all pools that launch from the same place of a provider; a
//! [`PoolMemory`] belongs to one pool.

mod announced;
mod average;
mod breaker;
mod contest;
mod hours;
mod levels;
mod offering;
mod pool;
mod pool_record;
mod shares;

pub use crate::id::OfferingId;
pub use announced::Announced;
pub use average::Average;
pub use breaker::{Breaker, BreakerState, Trouble};
pub use contest::{Contest, Given, QuotaUse};
pub use levels::{Fall, Retention};
pub use offering::{
    NEVER_LATE_MS, OfferingMemory, OfferingNews, SURVIVAL_MS, USUAL_BOOT_MS, USUAL_TIMEOUT_MS,
};
pub use pool::{PoolMemory, PoolNews, USUAL_TASK_MS};
pub use pool_record::{MAX_UNOBSERVED_MS, ObservedTime, PoolRecord, PoolSample};
pub use shares::{Want, fair_shares};
