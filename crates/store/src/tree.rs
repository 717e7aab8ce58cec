//! The embedded tree and its owner, and the identity of the database.

pub mod database_identity;
pub mod tree_nodes;
pub mod tree_owners;
