//! Why a tarball or a folder is no documentation, and what to do about it.

use super::{
    MAX_DEPTH, MAX_ENTRIES, MAX_NAME_BYTES, MAX_PAGE_BYTES, MAX_TEXT_BYTES, MAX_TEXTS_BYTES,
    MAX_UNPACKED_BYTES, MAX_UPLOAD_BYTES, MIB,
};

/// An entry's name is shown up to here.
const SHOWN_CHARACTERS: usize = 120;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The tarball has more than {} MiB: leave out what nobody reads, or pack it with gzip", MAX_UPLOAD_BYTES / MIB)]
    TooLarge,
    #[error("The files have more than {} MiB together: leave out what nobody reads", MAX_UNPACKED_BYTES / MIB)]
    TooMuchInside,
    #[error(
        "The tarball has more than {} files and folders: leave out what nobody reads",
        MAX_ENTRIES
    )]
    TooManyEntries,
    #[error(
        "The tarball breaks off before its end: pack it again, and look whether it was sent whole"
    )]
    BreaksOff,
    #[error("This is no tarball ({0}): pack the folder with `tar -C FOLDER -czf docs.tar.gz .`")]
    NoTarball(String),
    #[error("The tarball is packed with gzip more than once: pack it once")]
    PackedTwice,
    #[error("{0} has an absolute path: pack the folder with `tar -C FOLDER -czf docs.tar.gz .`")]
    AbsolutePath(Shown),
    #[error("{0} leads out of its folder with `..`: give it a path within the tarball")]
    LeadsOut(Shown),
    #[error(
        "{0} has a backslash or a colon in its name, which is no plain name on every system: rename it"
    )]
    UnsafeName(Shown),
    #[error("{0} has a control character in its name: rename it")]
    ControlCharacter(Shown),
    #[error("The name of {0} is not UTF-8: rename it")]
    NameNotUtf8(Shown),
    #[error("An entry has an empty name: pack the folder again")]
    EmptyName,
    #[error("The path of {0} has more than {MAX_NAME_BYTES} bytes: shorten it")]
    NameTooLong(Shown),
    #[error("{0} is more than {MAX_DEPTH} folders deep: move it up")]
    TooDeep(Shown),
    #[error(
        "{entry} is {kind}, and only files and folders are taken: put the file itself in its place"
    )]
    NotPlain { entry: Shown, kind: &'static str },
    #[error(
        "{0} and {1} are one name where capitals and accents do not count: rename or remove one of them"
    )]
    Twice(Shown, Shown),
    #[error("{0} is a file, and a folder to other entries: rename one of them")]
    FileAndFolder(Shown),
    #[error(
        "The tarball says of {entry} that it has {said} bytes, and also that it has {had}: pack it again"
    )]
    SizesDiffer {
        entry: Shown,
        said: String,
        had: u64,
    },
    #[error(
        "The tarball names {0} in two ways, or in none that holds for one entry: pack it again"
    )]
    NamedTwice(Shown),
    #[error("{0} must be text in UTF-8, and is not: save it as UTF-8")]
    NotText(Shown),
    #[error("{0} has more than {n} MiB: divide it into several pages", n = MAX_TEXT_BYTES / MIB)]
    TextTooLong(Shown),
    #[error("The Markdown files have more than {} MiB together: leave out what nobody reads", MAX_TEXTS_BYTES / MIB)]
    TextsTooLong,
    #[error(
        "There is no metadata.json at the top: add one with {{\"version\": 1}}, and pack the content of the folder, not the folder itself"
    )]
    NoMetadata,
    #[error("metadata.json is not as it should be: {0}")]
    BadMetadata(String),
    #[error("As a page this would have more than {} MiB: divide it, or nest less", MAX_PAGE_BYTES / MIB)]
    PageTooLarge,
}

/// The name of an entry as people may see it: whatever it is made of, it is short and harmless.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    pub(super) fn new(name: &[u8]) -> Self {
        let text = String::from_utf8_lossy(name);
        let short: String = text.chars().take(SHOWN_CHARACTERS).collect();
        let more = if short.len() < text.len() { "…" } else { "" };
        Self(format!("{short:?}{more}"))
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
