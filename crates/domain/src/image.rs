//! Images: their definitions, with what a change of one makes necessary.

mod content_hash;
mod definition;
mod definition_change;
mod format;
mod reader;
mod stored;
mod upload_target;

pub use self::definition::{BuildMethod, CanarySettings, ElementList, ImageDefinition, Validation};
pub use self::definition_change::{DefinitionChange, DefinitionEffect, definition_changes};
pub use self::format::{BadFormat, ImageFormat};
pub use self::stored::{ImageAction, ImageVersion, StoredImage};
pub use self::upload_target::{UploadTarget, UploadTargetId};
