//! Documentation of worker configurations and worker types: a tree of files, kept as a tarball, shown as a page.
//!
//! The tree has the layout of taskcluster-lib-docs: `README.md`, `docs/`, `metadata.json`, `references/`, `schema/`.
//! Whoever uploads a tarball is not trusted: it is read as a stream within limits, and what is not plain is refused with
//! the name of the entry. What is stored is packed anew, so that equal trees are equal bytes.

mod front_matter;
mod join;
mod links;
mod metadata;
mod page;
mod path;
mod record;
mod refusal;
mod relink;
mod sheet;
mod tar_file;
#[cfg(test)]
mod tests_common;
mod tree;

pub use self::join::{GENERAL_FOLDER, GENERAL_HEADER, join};
pub use self::metadata::Metadata;
pub use self::page::{STYLE, page, text};
pub use self::record::{Record, Subject};
pub use self::refusal::Refusal;
pub use self::tree::{Building, Tree};

const MIB: usize = 1024 * 1024;

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

/// What is read of a tarball in the end: the files, and as much around them as so many entries can need.
const MAX_STREAM_BYTES: u64 = (MAX_UNPACKED_BYTES + 2 * MIB) as u64;
