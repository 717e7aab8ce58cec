//! Keeps results instead of printing them, to compare them with the last ones.

use std::sync::{Mutex, PoisonError};

static KEPT: Mutex<Option<String>> = Mutex::new(None);

fn kept() -> std::sync::MutexGuard<'static, Option<String>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command, and returns its results as text.
pub(crate) fn captured<T>(command: impl FnOnce() -> T) -> (T, String) {
    *kept() = Some(String::new());
    let done = command();
    (done, kept().take().unwrap_or_default())
}

pub(crate) fn is_capturing() -> bool {
    kept().is_some()
}

/// Keeps the text. `false`: it has to be printed.
pub(super) fn keep(text: &str) -> bool {
    match kept().as_mut() {
        None => false,
        Some(kept) => {
            kept.push_str(text.trim_end_matches('\n'));
            kept.push('\n');
            true
        }
    }
}
