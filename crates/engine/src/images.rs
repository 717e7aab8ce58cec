//! Images: their definitions, and what becomes of them.

mod definitions;
pub mod launch_configs;

pub use definitions::{
    DefinitionEdit, ImageError, check_providers, create, delete, note_request, update,
};
