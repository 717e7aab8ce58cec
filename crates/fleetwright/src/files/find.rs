//! The files that a folder holds.

use std::path::{Path, PathBuf};

use super::{EXTENSIONS, Format};
use crate::failure::Failure;

const MAX_FILES: usize = 10_000;
const MAX_FOLDERS_DEEP: usize = 16;

/// The files to read: the one that is named, or all in a folder and those below it, in the order
/// of their names. What begins with a dot is left out, and links to folders are not followed.
pub(crate) fn find(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    gather(path, 0, &mut files)?;
    if files.is_empty() {
        return Err(Failure::usage(format!(
            "there is no file in {} whose name ends in .{}",
            path.display(),
            EXTENSIONS.join(" or .")
        )));
    }
    files.sort();
    Ok(files)
}

fn gather(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let name = folder.display();
    if depth > MAX_FOLDERS_DEEP {
        return Err(Failure::usage(format!(
            "{name} lies more than {MAX_FOLDERS_DEEP} folders deep"
        )));
    }
    let unreadable = |problem| Failure::usage(format!("cannot read {name}: {problem}"));
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if entry.file_type().map_err(unreadable)?.is_dir() {
            gather(&path, depth + 1, files)?;
        } else if Format::of(&path).is_some() && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Failure::usage(format!(
                "{name} holds more than {MAX_FILES} files"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_folder_come_in_order_and_without_strangers() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "b.yaml",
            "a/z.toml",
            "a/y.json",
            "c.md",
            ".git/x.json",
            "a/.x.yml",
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = find(folder.path()).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["a/y.json", "a/z.toml", "b.yaml"]);
    }

    #[test]
    fn a_folder_without_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(find(folder.path()).is_err());
        let file = folder.path().join("x.yaml");
        assert_eq!(find(&file).unwrap(), [file]);
    }
}
