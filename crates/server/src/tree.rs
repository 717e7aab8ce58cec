//! The tree of this process, for all who use it.

use std::sync::{Arc, Mutex, PoisonError};

use backplane::tree::Tree;
use domain::time::Timestamp;
use images::ImageTree;
use tokio::sync::watch;

/// The tree, as soon as it is open. Other processes may own an embedded one.
pub struct SharedTree {
    images: watch::Sender<Option<Arc<ImageTree>>>,
    /// Why it is not open.
    problem: Mutex<String>,
    /// Since when it does not answer: the copy of the images is as of that time.
    away_since: Mutex<Option<Timestamp>>,
}

impl Default for SharedTree {
    fn default() -> Self {
        Self {
            images: watch::channel(None).0,
            problem: Mutex::default(),
            away_since: Mutex::default(),
        }
    }
}

impl SharedTree {
    pub fn current(&self) -> Option<Arc<dyn Tree>> {
        let images = self.images()?;
        Some(Arc::clone(images.tree()))
    }

    /// The copy of the images in the tree.
    pub fn images(&self) -> Option<Arc<ImageTree>> {
        self.images.borrow().clone()
    }

    /// Why the tree is not open; empty: it is not known yet.
    pub fn problem(&self) -> String {
        let problem = self.problem.lock();
        problem.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Since when the open tree does not answer; `None`: it answers.
    pub fn away_since(&self) -> Option<Timestamp> {
        let away = self.away_since.lock();
        *away.unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_away(&self, since: Option<Timestamp>) {
        let away = self.away_since.lock();
        *away.unwrap_or_else(PoisonError::into_inner) = since;
    }

    pub(crate) fn open(&self, images: Arc<ImageTree>) {
        self.note_problem(String::new());
        self.note_away(None);
        self.images.send_replace(Some(images));
    }

    pub(crate) fn close(&self) {
        self.images.send_replace(None);
    }

    pub(crate) fn note_problem(&self, problem: String) {
        let mut known = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        *known = problem;
    }
}
