//! Values and a suite for the tests of all providers.

pub(crate) mod images;
pub(crate) mod suite;
pub(crate) mod values;
