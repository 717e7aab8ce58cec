//! Authentication and authorisation: Hawk, temporary credentials, scopes, roles, sealed secrets.
#![doc = include_str!("../README.md")]

mod auth_error;
pub mod authenticate;
pub mod certificate;
pub mod hawk;
mod hmac;
pub mod role;
pub mod scope;
pub mod seal;
mod secret;
pub mod slugid;

pub use secret::Secret;
