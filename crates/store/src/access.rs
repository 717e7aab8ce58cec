//! Clients and roles: who may do what.

pub mod clients;
pub mod revisions;
pub mod roles;
