//! A tree of files: within the limits, each name once, and with metadata.

use std::collections::BTreeMap;

use super::metadata::Metadata;
use super::path::{ancestors, folded, normal};
use super::refusal::{Refusal, Shown};
use super::{Limits, MAX_TEXT_BYTES, OWN};

/// Where the tree's own description stands.
pub(super) const METADATA: &str = "metadata.json";
pub(super) const README: &str = "README.md";

/// Files by their paths. Folders are where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// A tree to which entries are added one by one.
#[derive(Debug)]
pub struct Building {
    limits: Limits,
    files: BTreeMap<String, Vec<u8>>,
    /// What there is, also folders, by what may not be there twice.
    taken: BTreeMap<String, Taken>,
    n_bytes: usize,
    n_text_bytes: usize,
    n_entries: usize,
}

#[derive(Debug)]
struct Taken {
    path: String,
    is_folder: bool,
}

impl Tree {
    /// By path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let files = self.files.iter();
        files.map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    pub fn n_files(&self) -> usize {
        self.files.len()
    }

    pub fn n_bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    pub fn metadata(&self) -> Metadata {
        let content = self.files.get(METADATA).map_or(&b""[..], Vec::as_slice);
        // It was read when the tree was made.
        Metadata::parse(content).unwrap_or_default()
    }

    /// A file that is text; it was checked when the tree was made.
    pub(super) fn text(&self, path: &str) -> &str {
        let content = self.files.get(path).map_or(&b""[..], Vec::as_slice);
        std::str::from_utf8(content).unwrap_or_default()
    }
}

impl Default for Building {
    fn default() -> Self {
        Self::within(OWN)
    }
}

impl Building {
    pub(super) fn within(limits: Limits) -> Self {
        Self {
            limits,
            files: BTreeMap::new(),
            taken: BTreeMap::new(),
            n_bytes: 0,
            n_text_bytes: 0,
            n_entries: 0,
        }
    }

    pub fn folder(&mut self, name: &[u8]) -> Result<(), Refusal> {
        self.count()?;
        let path = normal(name, &self.limits)?;
        for folder in ancestors(&path) {
            self.take(folder, true)?;
        }
        if !path.is_empty() {
            self.take(&path, true)?;
        }
        Ok(())
    }

    /// Whether a file of so many bytes has room, before it is read.
    pub fn make_room(&self, n_bytes: u64) -> Result<(), Refusal> {
        let left = (self.limits.bytes - self.n_bytes) as u64;
        if n_bytes > left {
            return Err(Refusal::TooMuchInside);
        }
        Ok(())
    }

    pub fn file(&mut self, name: &[u8], content: Vec<u8>) -> Result<(), Refusal> {
        self.count()?;
        self.make_room(content.len() as u64)?;
        let path = normal(name, &self.limits)?;
        if path.is_empty() || name.ends_with(b"/") {
            return Err(Refusal::FileAndFolder(Shown::new(name)));
        }
        for folder in ancestors(&path) {
            self.take(folder, true)?;
        }
        self.take(&path, false)?;
        self.check_text(&path, &content)?;
        self.n_bytes += content.len();
        self.files.insert(path, content);
        Ok(())
    }

    pub fn finish(self) -> Result<Tree, Refusal> {
        let metadata = self.files.get(METADATA).ok_or(Refusal::NoMetadata)?;
        Metadata::parse(metadata)?;
        Ok(Tree { files: self.files })
    }

    fn count(&mut self) -> Result<(), Refusal> {
        self.n_entries += 1;
        if self.n_entries > self.limits.entries {
            return Err(Refusal::TooManyEntries);
        }
        Ok(())
    }

    fn take(&mut self, path: &str, is_folder: bool) -> Result<(), Refusal> {
        let folded = folded(path);
        let Some(taken) = self.taken.get(&folded) else {
            let path = path.to_owned();
            self.taken.insert(folded, Taken { path, is_folder });
            return Ok(());
        };
        let shown = Shown::new(path.as_bytes());
        if taken.is_folder != is_folder {
            return Err(Refusal::FileAndFolder(shown));
        }
        // A folder may be named again by each of its files.
        if is_folder && taken.path == path {
            return Ok(());
        }
        Err(Refusal::Twice(Shown::new(taken.path.as_bytes()), shown))
    }

    fn check_text(&mut self, path: &str, content: &[u8]) -> Result<(), Refusal> {
        let is_markdown = is_markdown(path);
        let is_text = is_markdown || has_ending(path, ".json");
        let shown = || Shown::new(path.as_bytes());
        if is_text && std::str::from_utf8(content).is_err() {
            return Err(Refusal::NotText(shown()));
        }
        if is_markdown {
            // A page of two may be longer than one.
            let longest = MAX_TEXT_BYTES * self.limits.texts_bytes / OWN.texts_bytes;
            if content.len() > longest {
                return Err(Refusal::TextTooLong(shown()));
            }
            self.n_text_bytes += content.len();
        }
        if self.n_text_bytes > self.limits.texts_bytes {
            return Err(Refusal::TextsTooLong);
        }
        Ok(())
    }
}

pub(super) fn is_markdown(path: &str) -> bool {
    has_ending(path, ".md")
}

fn has_ending(path: &str, ending: &str) -> bool {
    let tail = path.len().checked_sub(ending.len());
    tail.and_then(|at| path.get(at..))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(ending))
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::tests_common::{METADATA_TEXT, tree};
    use crate::{MAX_DEPTH, MAX_ENTRIES, MAX_UNPACKED_BYTES};

    fn refused(files: &[(&str, &[u8])]) -> String {
        let mut building = Building::default();
        let done = files
            .iter()
            .try_for_each(|(path, content)| building.file(path.as_bytes(), content.to_vec()))
            .and_then(|()| building.finish());
        done.unwrap_err().to_string()
    }

    #[test]
    fn metadata_is_all_that_must_be_there() {
        assert_eq!(tree(&[]).n_files(), 1);
        assert!(refused(&[("docs/a.md", b"a")]).starts_with("There is no metadata.json"));
    }

    #[test]
    fn one_name_is_there_once_whatever_its_capitals_and_accents() {
        for (one, other, expected) in [
            ("a.md", "a.md", r#""a.md" and "a.md" are one name"#),
            ("a.md", "./a.md", r#""a.md" and "a.md" are one name"#),
            ("A.md", "a.MD", r#""A.md" and "a.MD" are one name"#),
            ("Docs/a", "docs/b", r#""Docs" and "docs" are one name"#),
            ("é", "e\u{301}", "are one name"),
            ("docs", "docs/a", r#""docs" is a file, and a folder"#),
            ("docs/a", "DOCS", r#""DOCS" is a file, and a folder"#),
            ("docs/a", "docs", r#""docs" is a file, and a folder"#),
        ] {
            let text = refused(&[(one, b""), (other, b"")]);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn texts_must_be_texts_and_of_a_length_that_people_read() {
        for name in ["a.md", "a.MD", "a.json"] {
            let text = refused(&[(name, b"\xff")]);
            assert!(text.contains("must be text in UTF-8"), "{text}");
        }
        let long = vec![b'a'; MAX_TEXT_BYTES];
        assert!(refused(&[("a.md", &[&long[..], b"a"].concat())]).contains("divide it"));
        let names = ["1.md", "2.md", "3.md", "4.md"].map(|name| (name, &long[..]));
        let text = refused(&[&names[..], &[("5.md", b"a")]].concat());
        assert!(text.starts_with("The Markdown files have"), "{text}");
        let mut building = Building::default();
        building.file(b"image.png", vec![0xff]).unwrap();
    }

    #[test]
    fn a_tree_has_so_many_bytes_and_no_more() {
        let mut building = Building::default();
        let rest = MAX_UNPACKED_BYTES - METADATA_TEXT.len();
        building.file(b"big", vec![0; rest]).unwrap();
        building
            .file(b"metadata.json", METADATA_TEXT.into())
            .unwrap();
        assert_eq!(building.make_room(1), Err(Refusal::TooMuchInside));
        assert_eq!(building.file(b"a", vec![0]), Err(Refusal::TooMuchInside));
        let tree = building.finish().unwrap();
        assert_eq!(tree.n_bytes(), MAX_UNPACKED_BYTES);
    }

    #[test]
    fn a_tree_has_so_many_entries_and_no_more() {
        for count in sizes_around("documentation::MAX_ENTRIES", MAX_ENTRIES) {
            let mut building = Building::default();
            let mut entries = (0..count).map(|number| match number {
                0 => building.file(METADATA.as_bytes(), METADATA_TEXT.into()),
                _ if number % 2 == 0 => building.folder(format!("d{number}").as_bytes()),
                _ => building.file(format!("f{number}").as_bytes(), Vec::new()),
            });
            match entries.try_for_each(|entry| entry) {
                Ok(()) if count == 0 => assert_eq!(building.finish(), Err(Refusal::NoMetadata)),
                Ok(()) => {
                    assert!(count <= MAX_ENTRIES, "{count}");
                    assert_eq!(building.finish().unwrap().n_files(), 1 + count / 2);
                }
                Err(refused) => {
                    assert!(count > MAX_ENTRIES, "{count}: {refused}");
                    assert_eq!(refused, Refusal::TooManyEntries);
                    assert!(refused.to_string().contains("more than 500 files"));
                }
            }
        }
    }

    #[test]
    fn a_file_lies_in_so_many_folders_and_no_deeper() {
        for depth in sizes_around("documentation::MAX_DEPTH", MAX_DEPTH) {
            let path = "d/".repeat(depth) + "f";
            let mut building = Building::default();
            match building.file(path.as_bytes(), b"x".to_vec()) {
                Ok(()) => {
                    assert!(depth <= MAX_DEPTH, "{depth}");
                    assert_eq!(
                        building.files.get(&path).map(Vec::as_slice),
                        Some(&b"x"[..])
                    );
                }
                Err(refused) => {
                    assert!(depth > MAX_DEPTH, "{depth}: {refused}");
                    let text = refused.to_string();
                    assert!(text.contains("more than 8 folders deep"), "{text}");
                }
            }
        }
    }
}
