//! Undoes a workflow when its reply cannot be delivered.
//!
//! A client may disconnect before its reply is made, before it is sent, or while it is sent. In
//! each case the reply is dropped without having been delivered.

use std::fmt;

/// Runs its function when it is dropped, unless it was disarmed.
pub struct UndoGuard(Option<Box<dyn FnOnce() + Send>>);

impl UndoGuard {
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }

    /// The reply was delivered: nothing is undone.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for UndoGuard {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for UndoGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UndoGuard")
    }
}
