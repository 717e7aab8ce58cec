//! The rules about this repository. They use no crate of the product.
#![expect(
    clippy::unwrap_used,
    reason = "a rule that cannot be checked should say where"
)]

mod borders;
mod bounds;
mod bounds_listed;
mod crates;
mod deny;
mod dependencies;
mod designs;
mod doors;
mod imports;
mod links;
mod places;
mod refusals;
mod repository;
mod rings;
mod states;
mod timing;
mod words;
