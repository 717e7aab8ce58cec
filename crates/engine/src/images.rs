//! Images: their definitions, and what becomes of them.

mod definitions;

pub use definitions::{
    DefinitionEdit, ImageError, check_providers, create, delete, note_request, update,
};
