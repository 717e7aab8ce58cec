//! Clients and roles: who may do what.

pub(crate) mod clients;
pub(crate) mod revisions;
pub(crate) mod roles;
