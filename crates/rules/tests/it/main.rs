//! Tests of rule sets through the public interface.
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on should say where"
)]

mod bounds;
mod chance;
mod documents;
mod edits;
mod evaluation;
mod extended;
mod extended_properties;
mod fuzz;
mod globs;
mod lints;
mod naive;
mod naive_extended;
mod properties;
