//! The embedded tree: its nodes, and the process that owns it.

pub mod tree_nodes;
pub mod tree_owners;
