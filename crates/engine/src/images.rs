//! Images: their definitions, and what becomes of them.

mod definitions;

pub use definitions::{DefinitionEdit, ImageError, create, delete, update};
