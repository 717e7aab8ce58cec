//! Documentation of worker configurations and worker types: a tree of files, its tarball, its page.
#![doc = include_str!("../README.md")]

mod front_matter;
mod join;
mod links;
mod metadata;
mod page;
mod path;
mod refusal;
mod relink;
mod sheet;
mod tar_file;
#[cfg(test)]
mod tests_common;
mod tree;
mod upload;

pub use join::{GENERAL_FOLDER, GENERAL_HEADER, join};
pub use metadata::Metadata;
pub use page::{STYLE, page, text};
pub use refusal::Refusal;
pub use tree::{Building, Tree};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Maximum size of an upload, packed or not.
pub const MAX_UPLOAD_BYTES: usize = 4 * MIB;
/// Maximum size of all files together.
pub const MAX_UNPACKED_BYTES: usize = 16 * MIB;
/// Maximum number of files and folders.
pub const MAX_ENTRIES: usize = 500;
/// Maximum number of folders around a file.
pub const MAX_DEPTH: usize = 8;
/// Maximum bytes of a path.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum size of a Markdown file.
pub const MAX_TEXT_BYTES: usize = MIB;
/// Maximum size of all Markdown files together, as they become a page.
pub const MAX_TEXTS_BYTES: usize = 4 * MIB;
/// Maximum size of a tree as HTML.
pub const MAX_PAGE_BYTES: usize = 8 * MIB;
/// Maximum size of the images in a page together.
pub const MAX_IMAGES_BYTES: usize = 2 * MIB;

/// The limits of a tree.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: usize,
    texts_bytes: usize,
    entries: usize,
    depth: usize,
    name_bytes: usize,
}

/// The limits of an uploaded tree.
const OWN: Limits = Limits {
    bytes: MAX_UNPACKED_BYTES,
    texts_bytes: MAX_TEXTS_BYTES,
    entries: MAX_ENTRIES,
    depth: MAX_DEPTH,
    name_bytes: MAX_NAME_BYTES,
};
/// The limits of two joined trees: one of them is some folders deeper, and its texts have longer
/// links.
const JOINED: Limits = Limits {
    bytes: 3 * MAX_UNPACKED_BYTES,
    texts_bytes: 8 * MAX_TEXTS_BYTES,
    entries: 2 * MAX_ENTRIES,
    depth: MAX_DEPTH + 2,
    name_bytes: MAX_NAME_BYTES + 32,
};

impl Limits {
    /// Bytes that are read of a tarball: the files, and the headers that this many entries can
    /// need.
    fn stream_bytes(&self) -> u64 {
        (self.bytes + self.entries * 4 * KIB) as u64
    }
}
