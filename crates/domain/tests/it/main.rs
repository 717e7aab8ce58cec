//! Tests of the planner through its public functions.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod advice;
mod balanced;
mod bids;
mod canaries;
mod capacity;
mod common;
mod contest;
mod external;
mod foresight;
mod input;
mod learned;
mod limits;
mod offers;
mod progress;
mod properties;
mod quantity;
mod recovery;
mod rfc_191;
mod shadow;
mod stored;
mod supply;
mod trace;
mod weights;
