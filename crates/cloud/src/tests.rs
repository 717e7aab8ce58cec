//! What the tests of all providers share.

pub(crate) mod suite;
pub(crate) mod values;
