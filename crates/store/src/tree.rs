//! The embedded tree: its nodes, and the process that owns it; and by what id a tree elsewhere knows
//! this database.

pub mod database_identity;
pub mod tree_nodes;
pub mod tree_owners;
