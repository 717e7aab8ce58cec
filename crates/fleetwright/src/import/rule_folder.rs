//! The folder of `import rules`: a further import changes only its own files, and only those that
//! differ.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use files::Format;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::failure::{Exit, Failure};

/// Names the files that the last import wrote. Commands that read the folder skip it.
const RECORD: &str = ".fleetwright-import.json";

/// A file to write.
pub(super) struct OutputFile<'a> {
    /// In the folder.
    pub(super) name: String,
    pub(super) text: &'a str,
    /// Whether only commands change it, so that it is never a file of people once it is ours.
    pub(super) is_made: bool,
}

/// The files that an import changed, and those that it left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderChange {
    pub(super) written: Vec<PathBuf>,
    pub(super) unchanged: Vec<PathBuf>,
    pub(super) removed: Vec<PathBuf>,
    /// Files of an earlier import that people edited since.
    pub(super) edited: Vec<PathBuf>,
    /// Files of people.
    pub(super) others: Vec<PathBuf>,
}

/// The digest of each file of the last import, by name.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    files: BTreeMap<String, String>,
}

/// Writes the files, and removes those of the last import that are not among them.
///
/// A file that people wrote or edited is an error without `force`, and never removed.
pub(super) fn save(
    folder: &Path,
    outputs: &[OutputFile<'_>],
    force: bool,
) -> Result<FolderChange, Failure> {
    let before = Record::read(folder)?;
    let mut change = FolderChange::default();
    let mut to_write = Vec::new();
    for output in outputs {
        let path = folder.join(&output.name);
        match content(&path)? {
            Some(text) if text == output.text.as_bytes() => change.unchanged.push(path),
            Some(text) if !force && !before.may_replace(output, &text) => {
                return Err(conflict(&path, before.files.contains_key(&output.name)));
            }
            Some(_) | None => to_write.push((path, output.text)),
        }
    }
    let display = folder.display();
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {display}"))?;
    for (path, text) in to_write {
        write(&path, text)?;
        change.written.push(path);
    }
    let is_output = |name: &String| outputs.iter().any(|output| output.name == *name);
    for name in before.files.keys().filter(|name| !is_output(name)) {
        let path = folder.join(name);
        match content(&path)? {
            None => {}
            Some(text) if before.has_written(name, &text) => {
                std::fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
                change.removed.push(path);
            }
            Some(_) => change.edited.push(path),
        }
    }
    Record::of(outputs).write(folder)?;
    change.others = others(folder, outputs, &change.edited);
    Ok(change)
}

impl Record {
    fn of(outputs: &[OutputFile<'_>]) -> Self {
        let files = outputs
            .iter()
            .map(|output| (output.name.clone(), digest(output.text.as_bytes())));
        Self {
            files: files.collect(),
        }
    }

    fn read(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(RECORD);
        let Some(text) = content(&path)? else {
            return Ok(Self::default());
        };
        let record: Result<Self, _> = serde_json::from_slice(&text);
        let mut record = record
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
            .map_err(|failure| {
                failure.with_hint("remove this file: it only names written files")
            })?;
        // Other names lead out of the folder, or to files that no import writes.
        record.files.retain(|name, _| {
            let has_folder = name.contains(['/', '\\']) || name.starts_with('.');
            !has_folder && Format::of(Path::new(name)).is_some()
        });
        Ok(record)
    }

    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(RECORD);
        let text = crate::output::pretty(&serde_json::to_value(self).unwrap_or_default());
        let text = format!("{text}\n");
        if content(&path)?.as_deref() != Some(text.as_bytes()) {
            write(&path, &text)?;
        }
        Ok(())
    }

    /// Whether no edit of people is lost.
    fn may_replace(&self, output: &OutputFile<'_>, text: &[u8]) -> bool {
        let is_ours = self.files.contains_key(&output.name);
        is_ours && output.is_made || self.has_written(&output.name, text)
    }

    /// Whether the last import wrote exactly this.
    fn has_written(&self, name: &str, text: &[u8]) -> bool {
        self.files
            .get(name)
            .is_some_and(|known| *known == digest(text))
    }
}

fn conflict(path: &Path, is_edited: bool) -> Failure {
    let path = path.display();
    let (problem, hint) = match is_edited {
        true => (
            format!("{path} was edited since the last import"),
            "use --force to lose the edits, or another folder with --out",
        ),
        false => (
            format!("{path} already exists"),
            "use --force to overwrite it, or another folder with --out",
        ),
    };
    Failure::new(Exit::Conflict, problem).with_hint(hint)
}

/// Other files in the folder that `plan` would read with these.
fn others(folder: &Path, outputs: &[OutputFile<'_>], edited: &[PathBuf]) -> Vec<PathBuf> {
    let existing = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let existing = existing.map(|entry| entry.path());
    let is_hidden = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b".")
    };
    let is_output = |path: &Path| {
        outputs
            .iter()
            .any(|output| folder.join(&output.name) == path)
    };
    let mut others: Vec<PathBuf> = existing
        .filter(|path| Format::of(path).is_some() && !is_hidden(path))
        .filter(|path| !is_output(path) && !edited.contains(path))
        .collect();
    others.sort();
    others
}

/// The content of a file, if it exists.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::failed(format!(
            "cannot read {}: {error}",
            path.display()
        ))),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn digest(text: &[u8]) -> String {
    let bytes = Sha256::digest(text);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(folder: &Path, files: &[(&str, &str)], force: bool) -> Result<[usize; 5], Failure> {
        let outputs: Vec<OutputFile<'_>> = files
            .iter()
            .map(|(name, text)| OutputFile {
                name: (*name).to_owned(),
                text,
                is_made: *name == "ids.yaml",
            })
            .collect();
        let change = save(folder, &outputs, force)?;
        let FolderChange {
            written,
            unchanged,
            removed,
            edited,
            others,
        } = change;
        Ok([written, unchanged, removed, edited, others].map(|paths| paths.len()))
    }

    #[test]
    fn a_further_import_changes_and_removes_only_its_own_files() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("rules");
        let first = [("a.yaml", "a"), ("b.yaml", "b"), ("c.yaml", "c")];
        assert_eq!(import(&folder, &first, false).unwrap(), [3, 0, 0, 0, 0]);
        assert_eq!(import(&folder, &first, false).unwrap(), [0, 3, 0, 0, 0]);

        std::fs::write(folder.join("mine.yaml"), "mine").unwrap();
        std::fs::write(folder.join("c.yaml"), "edited").unwrap();
        let second = [("a.yaml", "a2"), ("d.yaml", "d")];
        assert_eq!(import(&folder, &second, false).unwrap(), [2, 0, 1, 1, 1]);
        let exists = |name: &str| folder.join(name).exists();
        assert_eq!(
            ["b.yaml", "c.yaml", "mine.yaml"].map(exists),
            [false, true, true]
        );

        // The edited file is a file of people now.
        assert_eq!(import(&folder, &second, false).unwrap(), [0, 2, 0, 0, 2]);
        for name in ["mine.yaml", "c.yaml"] {
            let refused = import(&folder, &[("a.yaml", "a3"), (name, "x")], false).unwrap_err();
            assert!(refused.message.contains(name), "{}", refused.message);
            assert_eq!(
                std::fs::read_to_string(folder.join("a.yaml")).unwrap(),
                "a2"
            );
        }
        assert_eq!(
            import(&folder, &[("c.yaml", "x")], true).unwrap(),
            [1, 0, 2, 0, 1]
        );
    }

    #[test]
    fn a_file_that_commands_shorten_is_replaced_and_that_of_people_is_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ids.yaml");
        std::fs::write(&path, "mine").unwrap();
        assert!(import(home.path(), &[("ids.yaml", "a b")], false).is_err());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            import(home.path(), &[("ids.yaml", "a b")], false).unwrap(),
            [1, 0, 0, 0, 0]
        );
        std::fs::write(&path, "a").unwrap();
        assert_eq!(
            import(home.path(), &[("ids.yaml", "a c")], false).unwrap(),
            [1, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_record_leads_out_of_no_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("rules");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(home.path().join("outer.yaml"), "x").unwrap();
        std::fs::write(folder.join("notes.txt"), "x").unwrap();
        let files = ["../outer.yaml", "notes.txt"].map(|name| (name, digest(b"x")));
        let record = serde_json::json!({"files": BTreeMap::from(files)});
        std::fs::write(folder.join(RECORD), record.to_string()).unwrap();
        assert_eq!(import(&folder, &[], false).unwrap(), [0; 5]);
        assert!(home.path().join("outer.yaml").exists() && folder.join("notes.txt").exists());
        std::fs::write(folder.join(RECORD), "no record").unwrap();
        let error = import(&folder, &[], false).unwrap_err();
        assert!(error.message.contains(RECORD), "{}", error.message);
    }
}
