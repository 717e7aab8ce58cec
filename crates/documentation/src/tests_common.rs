//! Trees for tests.

use super::tree::{Building, Tree};

pub(super) const METADATA_TEXT: &str = r#"{"version": 1, "tier": "workers"}"#;

/// With metadata.
pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
    let mut building = Building::default();
    let metadata = [("metadata.json", METADATA_TEXT)];
    for (path, content) in metadata.iter().chain(files) {
        building
            .file(path.as_bytes(), content.as_bytes().to_vec())
            .unwrap();
    }
    building.finish().unwrap()
}
