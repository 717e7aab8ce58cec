//! The folder of `import rules`: a further import changes only its own files, and only those that
//! differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use files::Format;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::code::part_of;
use crate::failure::{Exit, Failure};

/// Names the files that the last import wrote. Commands that read the folder skip it.
const RECORD: &str = ".fleetwright-import.json";

const CONFIGURATION: &str = "workerConfigurationId";

/// A file to write.
pub(super) struct OutputFile<'a> {
    /// In the folder.
    pub(super) name: String,
    pub(super) text: &'a str,
    /// Whether only commands change it: a further import replaces or removes it, with all changes.
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

/// The files of the last import.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The digest of each file, by name.
    files: BTreeMap<String, String>,
    /// Files that only commands change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    made: BTreeSet<String>,
    /// Other digests that files may have, because an import did not end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unfinished: BTreeMap<String, BTreeSet<String>>,
}

/// Writes the files, and removes those of the last import that are not among them. Without files,
/// nothing changes.
///
/// A file that people wrote or edited is an error without `force`, and never removed. If the
/// program ends halfway, each file has its old or its new text, and the record has both.
pub(super) fn save(
    folder: &Path,
    outputs: &[OutputFile<'_>],
    force: bool,
) -> Result<FolderChange, Failure> {
    let mut change = FolderChange::default();
    if outputs.is_empty() {
        return Ok(change);
    }
    let before = Record::read(folder)?;
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
    let (to_remove, edited) = before.obsolete(folder, outputs)?;
    let display = folder.display();
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {display}"))?;
    let after = Record::of(outputs);
    if !to_write.is_empty() || !to_remove.is_empty() {
        after.during(&before).write(folder)?;
    }
    let staged = to_write
        .iter()
        .map(|(path, text)| StagedFile::write(path, text));
    let staged: Vec<StagedFile> = staged.collect::<Result<_, _>>()?;
    staged.into_iter().try_for_each(StagedFile::publish)?;
    for path in &to_remove {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    before.remove_staged(folder);
    after.write(folder)?;
    change.written = to_write.into_iter().map(|(path, _)| path).collect();
    change.removed = to_remove;
    change.others = others(folder, outputs, &edited);
    change.edited = edited;
    Ok(change)
}

/// The worker configurations in files of the last import that `save` would replace or remove.
pub(super) fn replaced_configurations(
    folder: &Path,
    outputs: &[OutputFile<'_>],
) -> Result<BTreeSet<String>, Failure> {
    let record = Record::read(folder)?;
    let (mut replaced, _) = record.obsolete(folder, outputs)?;
    let recorded = outputs
        .iter()
        .filter(|output| record.files.contains_key(&output.name));
    replaced.extend(recorded.map(|output| folder.join(&output.name)));
    let mut ids = BTreeSet::new();
    for path in replaced {
        let text = content(&path)?.unwrap_or_default();
        let is_kept = |output: &OutputFile<'_>| {
            folder.join(&output.name) == path && output.text.as_bytes() == text
        };
        if !outputs.iter().any(is_kept) {
            ids.extend(configuration_of(&path, &text));
        }
    }
    Ok(ids)
}

/// The id of the worker configuration that this file has, or has a part of.
fn configuration_of(path: &Path, text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let document = files::parse("", text, Format::of(path)?).ok()?;
    let id = document.get(CONFIGURATION);
    let id = id.and_then(Value::as_str).or_else(|| part_of(&document));
    id.map(str::to_owned)
}

impl Record {
    fn of(outputs: &[OutputFile<'_>]) -> Self {
        let files = outputs
            .iter()
            .map(|output| (output.name.clone(), digest(output.text.as_bytes())));
        let made = outputs.iter().filter(|output| output.is_made);
        Self {
            files: files.collect(),
            made: made.map(|output| output.name.clone()).collect(),
            unfinished: BTreeMap::new(),
        }
    }

    /// The record until the import ends: each file has the text of this import or an earlier one.
    fn during(&self, before: &Self) -> Self {
        let mut during = Self {
            files: before.files.clone(),
            made: &before.made | &self.made,
            unfinished: before.unfinished.clone(),
        };
        for (name, digest) in &self.files {
            let earlier = during.files.insert(name.clone(), digest.clone());
            if let Some(earlier) = earlier {
                let digests = during.unfinished.entry(name.clone());
                digests.or_default().insert(earlier);
            }
        }
        during
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
            StagedFile::write(&path, &text)?.publish()?;
        }
        Ok(())
    }

    /// The existing files that are not among these: those to remove, and those that people edited.
    fn obsolete(
        &self,
        folder: &Path,
        outputs: &[OutputFile<'_>],
    ) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
        let (mut to_remove, mut edited) = (Vec::new(), Vec::new());
        let is_output = |name: &String| outputs.iter().any(|output| output.name == *name);
        for name in self.files.keys().filter(|name| !is_output(name)) {
            let path = folder.join(name);
            match content(&path)? {
                None => {}
                Some(text) if self.made.contains(name) || self.has_written(name, &text) => {
                    to_remove.push(path);
                }
                Some(_) => edited.push(path),
            }
        }
        Ok((to_remove, edited))
    }

    /// Removes texts that an import that did not end left beside its files.
    fn remove_staged(&self, folder: &Path) {
        for name in self.files.keys() {
            let _may_not_exist = std::fs::remove_file(path_beside(&folder.join(name)));
        }
    }

    /// Whether no edit of people is lost.
    fn may_replace(&self, output: &OutputFile<'_>, text: &[u8]) -> bool {
        let is_ours = self.files.contains_key(&output.name);
        is_ours && output.is_made || self.has_written(&output.name, text)
    }

    /// Whether the last import wrote exactly this.
    fn has_written(&self, name: &str, text: &[u8]) -> bool {
        let unfinished = self.unfinished.get(name).into_iter().flatten();
        let mut known = self.files.get(name).into_iter().chain(unfinished);
        let digest = digest(text);
        known.any(|known| *known == digest)
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
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            let text = format!("{} is a link to a file that does not exist", path.display());
            Err(Failure::failed(text).with_hint("remove the link"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::failed(format!(
            "cannot read {}: {error}",
            path.display()
        ))),
    }
}

/// A text beside the file that it will replace. It is removed unless it is published.
struct StagedFile {
    beside: PathBuf,
    target: PathBuf,
}

impl StagedFile {
    fn write(path: &Path, text: &str) -> Result<Self, Failure> {
        let write = || {
            let target = link_target(path)?;
            let staged = Self {
                beside: path_beside(&target),
                target,
            };
            let mut file = File::create(&staged.beside)?;
            file.write_all(text.as_bytes())?;
            if let Ok(before) = std::fs::metadata(&staged.target) {
                file.set_permissions(before.permissions())?;
            }
            file.sync_all()?;
            Ok(staged)
        };
        let written: io::Result<Self> = write();
        Ok(written.with_context(|| format!("cannot write {}", path.display()))?)
    }

    fn publish(self) -> Result<(), Failure> {
        std::fs::rename(&self.beside, &self.target)
            .with_context(|| format!("cannot write {}", self.target.display()))?;
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let _may_be_published = std::fs::remove_file(&self.beside);
    }
}

/// The file that a link leads to; other paths are their own target.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_owned()),
        found => found,
    }
}

/// Commands that read the folder skip this name.
fn path_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
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
        let files = [("a.yaml", "a")];
        assert_eq!(import(&folder, &files, false).unwrap(), [1, 0, 0, 0, 0]);
        assert!(home.path().join("outer.yaml").exists() && folder.join("notes.txt").exists());
        std::fs::write(folder.join(RECORD), "no record").unwrap();
        let error = import(&folder, &files, false).unwrap_err();
        assert!(error.message.contains(RECORD), "{}", error.message);
    }

    #[test]
    fn an_import_of_nothing_removes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let files = [("a.yaml", "a"), ("ids.yaml", "x")];
        assert_eq!(import(home.path(), &files, false).unwrap(), [2, 0, 0, 0, 0]);
        for force in [false, true] {
            assert_eq!(import(home.path(), &[], force).unwrap(), [0; 5]);
        }
        assert_eq!(import(home.path(), &files, false).unwrap(), [0, 2, 0, 0, 0]);
    }

    #[test]
    fn a_file_that_commands_shorten_is_removed_once_no_import_needs_it() {
        let home = tempfile::tempdir().unwrap();
        let files = [("a.yaml", "a"), ("ids.yaml", "x y")];
        import(home.path(), &files, false).unwrap();
        std::fs::write(home.path().join("ids.yaml"), "x").unwrap();
        let without = import(home.path(), &files[..1], false).unwrap();
        assert_eq!(without, [0, 1, 1, 0, 0]);
        assert!(!home.path().join("ids.yaml").exists());
    }

    #[test]
    fn an_import_that_cannot_write_a_file_changes_none_and_another_continues() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        import(home.path(), &[("a.yaml", "a"), ("b.yaml", "b")], false).unwrap();
        // The next text of `b.yaml` is written here.
        let obstacle = path(".b.yaml.new");
        std::fs::create_dir(&obstacle).unwrap();
        let second = [("a.yaml", "a2"), ("b.yaml", "b2"), ("c.yaml", "c2")];
        let failure = import(home.path(), &second, false).unwrap_err();
        assert!(failure.message.contains("b.yaml"), "{}", failure.message);
        assert_eq!([text("a.yaml"), text("b.yaml")], ["a", "b"]);
        assert!(!path("c.yaml").exists() && !path(".a.yaml.new").exists());
        std::fs::remove_dir(&obstacle).unwrap();

        // As after a crash between the first two files.
        std::fs::write(path("a.yaml"), "a2").unwrap();
        let third = [("a.yaml", "a3"), ("b.yaml", "b3"), ("d.yaml", "d3")];
        let done = import(home.path(), &third, false).unwrap();
        assert_eq!(done, [3, 0, 0, 0, 0]);
        let without = import(home.path(), &third[..1], false).unwrap();
        assert_eq!(without, [0, 1, 2, 0, 0]);
    }

    #[test]
    fn files_of_an_import_that_did_not_end_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        import(home.path(), &[("a.yaml", "a"), ("b.yaml", "b")], false).unwrap();
        std::fs::create_dir(path(".a.yaml.new")).unwrap();
        let second = [("a.yaml", "a2"), ("c.yaml", "c2")];
        import(home.path(), &second, false).unwrap_err();
        std::fs::remove_dir(path(".a.yaml.new")).unwrap();
        // As after a crash.
        std::fs::write(path("c.yaml"), "c2").unwrap();
        std::fs::write(path(".c.yaml.new"), "c").unwrap();
        let third = import(home.path(), &[("a.yaml", "a3")], false).unwrap();
        assert_eq!(third, [1, 0, 2, 0, 0]);
        let entries = std::fs::read_dir(home.path()).unwrap();
        assert_eq!(entries.count(), 2);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_needs_a_target() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        std::fs::write(path("target"), "a").unwrap();
        std::os::unix::fs::symlink("target", path("a.yaml")).unwrap();
        import(home.path(), &[("a.yaml", "a2")], true).unwrap();
        assert!(path("a.yaml").is_symlink());
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "a2");
        std::os::unix::fs::symlink("missing/z", path("z.yaml")).unwrap();
        let files = [("a.yaml", "a3"), ("z.yaml", "z")];
        let failure = import(home.path(), &files, true).unwrap_err();
        assert!(failure.message.contains("z.yaml"), "{}", failure.message);
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "a2");
    }
}
