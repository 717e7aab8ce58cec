//! The fleet: what is decided about workers, and how it is carried out.
//!
//! Facts are read, `domain::plan` decides, the decision is written, and only then does a cloud hear of it.
//! Every change is a guarded write with its events, so any process may die on any line and any two may do the
//! same work at once.

mod answers;
mod bids;
mod changes;
mod decide;
mod ending;
mod facts;
mod launching;
mod outlook;
mod overriding;
mod problems;
mod regions;
mod scan;
mod scanned;
mod timing;
mod unsettled;

pub use answers::LaunchAnswers;
pub use changes::{gone, told_to_go};
pub use decide::{Decided, ReplayError, decide, is_planned, preview, replay};
pub use ending::{Ender, EndingLimits};
pub use facts::{add_launch_configs, page_of_facts, page_of_supply};
pub use launching::{Launching, launch};
pub use overriding::{end_override, tell_pause, wake_target};
pub use problems::{Problem, report};
pub use scan::{ScanLimits, Scanner};
pub use scanned::Scanned;
pub use unsettled::settle_old;
