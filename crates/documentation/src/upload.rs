//! What people upload: a tarball within the limits, of which a page can be made.

use super::refusal::Refusal;
use super::tree::Tree;
use super::{MAX_UPLOAD_BYTES, OWN, page, tar_file};

impl Tree {
    /// Reads an upload: a tarball, packed with gzip or not.
    pub fn accept(upload: &[u8]) -> Result<Self, Refusal> {
        if upload.len() > MAX_UPLOAD_BYTES {
            return Err(Refusal::TooLarge);
        }
        let tree = tar_file::read(upload, OWN)?;
        // An accepted tree can be shown.
        page::check(&tree)?;
        Ok(tree)
    }
}
