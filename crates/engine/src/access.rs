//! Clients and roles: created, changed and deleted; sessions of browsers.

mod clients;
mod error;
mod roles;
mod sealing;
mod secrets;
mod sessions;

pub use clients::{
    ClientRequest, create_client, delete_client, reset_client, set_client_disabled, update_client,
};
pub use error::AccessError;
pub use roles::{RoleRequest, create_role, delete_role, update_role};
pub use sealing::{Sealed, seal_again};
pub use secrets::{SecretError, delete_secret, secret, set_secret};
pub use sessions::{
    SessionError, SignIn, digest_of, end as end_session, find as find_session,
    note_use as note_session_use, open as open_session, open_link, session_credentials,
};
