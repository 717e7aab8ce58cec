//! JSON pointers.

/// The pointer to a member of the value at this pointer.
pub(super) fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}
