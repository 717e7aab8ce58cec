//! Clients and roles: created, changed and deleted.

mod clients;
mod error;
mod roles;
mod sealing;

pub use clients::{
    ClientRequest, create_client, delete_client, reset_client, set_client_disabled, update_client,
};
pub use error::AccessError;
pub use roles::{RoleRequest, create_role, delete_role, update_role};
pub use sealing::{Sealed, seal_again};
