//! Clients, roles and sessions: who may do what.

pub mod clients;
pub mod revisions;
pub mod roles;
pub mod secrets;
pub mod sessions;
