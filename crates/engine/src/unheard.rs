//! What is to be undone when nobody hears the answer to a workflow.
//!
//! Whoever waits for an answer may be gone by the time that it is there: before it is made, before it is sent,
//! or in the middle of it. Each way, the answer is dropped without having been heard.

use std::fmt;

/// Does something when it is dropped, unless the answer was heard.
pub struct IfUnheard(Option<Box<dyn FnOnce() + Send>>);

impl IfUnheard {
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }

    pub fn heard(mut self) {
        self.0 = None;
    }
}

impl Drop for IfUnheard {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for IfUnheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IfUnheard")
    }
}
