//! Values and a suite for the tests of all providers.

mod conformance;
mod fixture;
pub(crate) mod images;
pub(crate) mod records;
pub(crate) mod suite;
pub(crate) mod values;
