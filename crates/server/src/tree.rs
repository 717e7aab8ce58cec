//! The tree of this process, for all who use it.

use std::sync::Arc;

use backplane::tree::Tree;
use images::ImageTree;
use tokio::sync::watch;

/// The tree, as soon as it is open. Other processes may own an embedded one.
pub struct SharedTree(watch::Sender<Option<Arc<ImageTree>>>);

impl Default for SharedTree {
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl SharedTree {
    pub fn current(&self) -> Option<Arc<dyn Tree>> {
        let images = self.images()?;
        Some(Arc::clone(images.tree()))
    }

    /// The copy of the images in the tree.
    pub fn images(&self) -> Option<Arc<ImageTree>> {
        self.0.borrow().clone()
    }

    pub(crate) fn replace(&self, images: Option<Arc<ImageTree>>) {
        self.0.send_replace(images);
    }
}
