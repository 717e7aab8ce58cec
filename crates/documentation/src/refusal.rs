//! Why a tarball or a folder is refused, and what to do about it.

use super::{
    MAX_DEPTH, MAX_ENTRIES, MAX_NAME_BYTES, MAX_PAGE_BYTES, MAX_TEXT_BYTES, MAX_TEXTS_BYTES,
    MAX_UNPACKED_BYTES, MAX_UPLOAD_BYTES, MIB,
};

/// Maximum length of an entry's name in messages.
const SHOWN_CHARACTERS: usize = 120;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The tarball has more than {} MiB: remove files that readers do not need, or pack it with gzip", MAX_UPLOAD_BYTES / MIB)]
    TooLarge,
    #[error("The files have more than {} MiB together: remove files that readers do not need", MAX_UNPACKED_BYTES / MIB)]
    TooMuchInside,
    #[error(
        "The tarball has more than {} files and folders: remove files that readers do not need",
        MAX_ENTRIES
    )]
    TooManyEntries,
    #[error("The tarball is truncated: pack it again, and check that it was sent completely")]
    BreaksOff,
    #[error("This is not a tarball ({0}): pack the folder with `tar -C FOLDER -czf docs.tar.gz .`")]
    NoTarball(String),
    #[error("The tarball is packed with gzip more than once: pack it once")]
    PackedTwice,
    #[error("{0} has an absolute path: pack the folder with `tar -C FOLDER -czf docs.tar.gz .`")]
    AbsolutePath(Shown),
    #[error("{0} leads out of its folder with `..`: give it a path within the tarball")]
    LeadsOut(Shown),
    #[error(
        "{0} has a backslash or a colon in its name, which some systems do not allow: rename it"
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
    #[error("{entry} is {kind}, and only files and folders are accepted: replace it by the file")]
    NotPlain { entry: Shown, kind: &'static str },
    #[error(
        "{0} and {1} are the same name on systems that ignore case and accents: rename or remove one of them"
    )]
    Twice(Shown, Shown),
    #[error("{0} is a file, and a folder to other entries: rename one of them")]
    FileAndFolder(Shown),
    #[error("The tarball has two sizes for {entry}, {said} and {had} bytes: pack it again")]
    SizesDiffer {
        entry: Shown,
        said: String,
        had: u64,
    },
    #[error("The tarball has several names for {0}, or none for this entry alone: pack it again")]
    NamedTwice(Shown),
    #[error("{0} is not text in UTF-8: save it as UTF-8")]
    NotText(Shown),
    #[error("{0} has more than {n} MiB: divide it into several pages", n = MAX_TEXT_BYTES / MIB)]
    TextTooLong(Shown),
    #[error("The Markdown files have more than {} MiB together: remove files that readers do not need", MAX_TEXTS_BYTES / MIB)]
    TextsTooLong,
    #[error(
        "metadata.json is missing at the top: add it with {{\"version\": 1}}, and pack the content of the folder, not the folder itself"
    )]
    NoMetadata,
    #[error("metadata.json is not valid: {0}")]
    BadMetadata(String),
    #[error("The page would have more than {} MiB: divide it, or nest less", MAX_PAGE_BYTES / MIB)]
    PageTooLarge,
}

/// The name of an entry for messages: short and without control characters.
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
