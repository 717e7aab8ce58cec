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

/// What is uploaded, packed or not.
pub const MAX_UPLOAD_BYTES: usize = 4 * MIB;
/// All files together.
pub const MAX_UNPACKED_BYTES: usize = 16 * MIB;
/// Files and folders.
pub const MAX_ENTRIES: usize = 500;
/// A file in eight folders is the deepest.
pub const MAX_DEPTH: usize = 8;
/// Bytes of a path.
pub const MAX_NAME_BYTES: usize = 255;
/// One text in Markdown.
pub const MAX_TEXT_BYTES: usize = MIB;
/// All texts in Markdown together: a page is made of them.
pub const MAX_TEXTS_BYTES: usize = 4 * MIB;
/// What a tree becomes as HTML.
pub const MAX_PAGE_BYTES: usize = 8 * MIB;
/// Images that are put into a page, together.
pub const MAX_IMAGES_BYTES: usize = 2 * MIB;

/// How much a tree may hold.
#[derive(Clone, Copy, Debug)]
struct Limits {
    bytes: usize,
    texts_bytes: usize,
    entries: usize,
    depth: usize,
    name_bytes: usize,
}

/// Of what people upload.
const OWN: Limits = Limits {
    bytes: MAX_UNPACKED_BYTES,
    texts_bytes: MAX_TEXTS_BYTES,
    entries: MAX_ENTRIES,
    depth: MAX_DEPTH,
    name_bytes: MAX_NAME_BYTES,
};
/// Of two trees that became one, in which one of them is a few folders deeper; its texts, with longer links.
const JOINED: Limits = Limits {
    bytes: 3 * MAX_UNPACKED_BYTES,
    texts_bytes: 8 * MAX_TEXTS_BYTES,
    entries: 2 * MAX_ENTRIES,
    depth: MAX_DEPTH + 2,
    name_bytes: MAX_NAME_BYTES + 32,
};

impl Limits {
    /// What is read of a tarball in the end: the files, and as much around them as so many entries can need.
    fn stream_bytes(&self) -> u64 {
        (self.bytes + self.entries * 4 * KIB) as u64
    }
}
