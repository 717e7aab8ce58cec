//! The files that a folder holds.

use std::fs::FileType;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::{EXTENSIONS, Format, unreadable};

const MAX_FILES: usize = 10_000;
const MAX_FOLDERS_DEEP: usize = 16;
/// What helps against each of the strangers.
const ADVICE: &str = "a name that begins with a dot is left out";

#[derive(Debug, Default)]
pub struct Found {
    pub files: Vec<PathBuf>,
    /// What has the name of a file, or leads to a folder, and cannot be read.
    pub strange: Vec<String>,
}

impl Found {
    pub fn advice(&self) -> Option<String> {
        (!self.strange.is_empty()).then(|| ADVICE.to_owned())
    }
}

/// The files to read: the one that is named, or all in a folder and those below it, in the order
/// of their names. What begins with a dot is left out. Nothing else that looks like a file of ours is: what is not
/// found in a folder may be removed from a server.
pub fn find(path: &Path) -> Result<Found, FileError> {
    let kind = std::fs::metadata(path).map_err(|problem| unreadable(path, &problem))?;
    if !kind.is_dir() {
        return Ok(Found {
            files: vec![path.to_owned()],
            ..Found::default()
        });
    }
    let mut found = Found::default();
    gather(path, 0, &mut found)?;
    let Found { files, strange } = &mut found;
    if files.len() > MAX_FILES || strange.len() > MAX_FILES {
        let name = path.display();
        let text = format!("{name} holds more than {MAX_FILES} files");
        return Err(FileError::new(text));
    }
    if files.is_empty() && strange.is_empty() {
        return Err(FileError::new(format!(
            "there is no file in {} whose name ends in .{}",
            path.display(),
            EXTENSIONS.join(" or .")
        )));
    }
    files.sort();
    strange.sort();
    Ok(found)
}

fn gather(folder: &Path, depth: usize, found: &mut Found) -> Result<(), FileError> {
    let name = folder.display();
    if depth > MAX_FOLDERS_DEEP {
        return Err(FileError::new(format!(
            "{name} lies more than {MAX_FOLDERS_DEEP} folders deep"
        )));
    }
    let unreadable = |problem| unreadable(folder, &problem);
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        match what_is(&path, entry.file_type().map_err(unreadable)?) {
            Ok(What::Folder) => gather(&path, depth + 1, found)?,
            Ok(What::File) => found.files.push(path),
            Ok(What::Another) => {}
            Err(problem) => found.strange.push(format!("{}: {problem}", path.display())),
        }
        if found.files.len() > MAX_FILES || found.strange.len() > MAX_FILES {
            // They are too many, whatever else there is.
            return Ok(());
        }
    }
    Ok(())
}

enum What {
    Folder,
    File,
    /// By its name not meant for us.
    Another,
}

fn what_is(path: &Path, kind: FileType) -> Result<What, &'static str> {
    let is_ours = Format::of(path).is_some();
    if kind.is_dir() {
        return match is_ours {
            true => Err("is a folder, and has the name of a file"),
            false => Ok(What::Folder),
        };
    }
    match (std::fs::metadata(path), is_ours) {
        (Ok(target), _) if target.is_dir() => Err(
            "is a link to a folder, and such are not followed: put the folder itself in its place",
        ),
        (_, false) => Ok(What::Another),
        (Ok(target), true) if target.is_file() => Ok(What::File),
        (Ok(_), true) => Err("has the name of a file, and is none"),
        (Err(_), true) if kind.is_symlink() => Err("is a link that leads to no file"),
        (Err(_), true) => Err("cannot be looked at"),
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_folder_holds_so_many_files_with_those_below_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let mut sizes = sizes_around("files::find::MAX_FILES", MAX_FILES);
        // Ten times as many would take long to make, and one too many ends the search.
        sizes.retain(|count| *count <= MAX_FILES + 1);
        let mut n_there = 0;
        for count in sizes {
            for number in n_there..count {
                let home = [folder.path(), &below][number % 2];
                std::fs::write(home.join(format!("{number}.json")), "").unwrap();
            }
            n_there = count;
            match find(folder.path()) {
                Ok(found) => assert_eq!((found.files.len(), count <= MAX_FILES), (count, true)),
                Err(refused) if count == 0 => assert!(refused.message.contains("no file in")),
                Err(refused) => {
                    assert!(count > MAX_FILES, "{count}: {}", refused.message);
                    let root = folder.path().display();
                    let expected = format!("{root} holds more than 10000 files");
                    assert_eq!(refused.message, expected);
                }
            }
        }
    }

    #[test]
    fn a_file_lies_in_so_many_folders_and_no_deeper() {
        let limit = MAX_FOLDERS_DEEP;
        for depth in sizes_around("files::find::MAX_FOLDERS_DEEP", limit) {
            let folder = tempfile::tempdir().unwrap();
            let home = folder.path().join("d/".repeat(depth));
            std::fs::create_dir_all(&home).unwrap();
            std::fs::write(home.join("a.json"), "").unwrap();
            match find(folder.path()) {
                Ok(found) => {
                    assert!(depth <= limit, "{depth}");
                    assert_eq!(found.files, [home.join("a.json")]);
                }
                Err(refused) => {
                    assert!(depth > limit, "{depth}: {}", refused.message);
                    let text = refused.message;
                    assert!(text.ends_with("lies more than 16 folders deep"), "{text}");
                }
            }
        }
    }

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
            .files
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
        let missing = find(&file).unwrap_err().message;
        assert_eq!(
            missing,
            format!("there is no file or folder {}", file.display())
        );
        std::fs::write(&file, "").unwrap();
        assert_eq!(find(&file).unwrap().files, [file]);
    }

    #[test]
    fn what_looks_like_a_file_of_ours_and_cannot_be_read_is_named_beside_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("fine.YAML"), "").unwrap();
        std::os::unix::fs::symlink(at("fine.YAML"), at("link.yaml")).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("README")).unwrap();
        std::fs::create_dir(at("below")).unwrap();
        assert_eq!(
            find(folder.path()).unwrap().files,
            [at("fine.YAML"), at("link.yaml")]
        );
        std::os::unix::fs::symlink(at("nowhere"), at("1.yaml")).unwrap();
        std::os::unix::fs::symlink(at("below"), at("2")).unwrap();
        std::fs::create_dir(at("3.json")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(at("below/4.toml"))
            .status();
        assert!(made.unwrap().success());
        let found = find(folder.path()).unwrap();
        assert_eq!(found.files, [at("fine.YAML"), at("link.yaml")]);
        let refused = found.strange.join("\n");
        let start = format!("{}/", folder.path().display());
        insta::assert_snapshot!(refused.replace(&start, ""), @r"
        1.yaml: is a link that leads to no file
        2: is a link to a folder, and such are not followed: put the folder itself in its place
        3.json: is a folder, and has the name of a file
        below/4.toml: has the name of a file, and is none
        ");
    }
}
