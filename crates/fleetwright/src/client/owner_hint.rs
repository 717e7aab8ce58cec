//! The hint at the owner's credentials that `fleetwright up` wrote on this machine.

use std::path::Path;

use crate::data_folder::DataFolder;
use crate::owner_file::quoted;

/// The advice, with the command that sources the owner's file if there is one.
pub(super) fn with_owner_file(advice: &str) -> String {
    let file = DataFolder::default_owner_file();
    with_file(advice, file.as_deref())
}

fn with_file(advice: &str, file: Option<&Path>) -> String {
    match file.filter(|file| file.exists()) {
        Some(file) => format!(
            "{advice}; for the server that `fleetwright up` started on this machine: `. {}`",
            quoted(&file.display().to_string())
        ),
        None => advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_where_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("owner.env");
        assert_eq!(with_file("set it", None), "set it");
        assert_eq!(with_file("set it", Some(&file)), "set it");
        std::fs::write(&file, "").unwrap();
        let command = format!("`. {}`", file.display());
        assert!(with_file("set it", Some(&file)).ends_with(&command));
    }
}
