//! What the planner promises, checked from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod bids;
mod capacity;
mod common;
mod input;
mod letting_go;
mod limits;
mod properties;
mod recovery;
mod stored;
mod supply;
mod trace;
mod weights;
