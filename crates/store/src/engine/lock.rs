//! Locks that a panic leaves usable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic while one of these is held leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
