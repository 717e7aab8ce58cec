//! Clients and roles: made, changed and deleted by those who may.

mod clients;
mod error;
mod roles;

pub use clients::{
    AskedClient, create_client, delete_client, reset_client, switch_client, update_client,
};
pub use error::AccessError;
pub use roles::{AskedRole, create_role, delete_role, update_role};
