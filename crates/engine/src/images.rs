//! Images: their definitions and rollouts, and the pools that use them.

mod definitions;
mod refresh_pools;
mod rollouts;
mod trials;

pub use definitions::{
    DefinitionEdit, ImageError, check_uploads, create, delete, exists, is_deleted, note_request,
    update,
};
pub use refresh_pools::{RefreshError, RefreshRound, refresh_pools};
pub use rollouts::{
    ImageFacts, PersonalDecision, RolloutError, advance, course_json, start_canary, use_build,
};
