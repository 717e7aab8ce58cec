//! Why a client or a role is not made, changed or deleted.

use access::role::RoleError;
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("Client not found")]
    NoSuchClient,
    #[error("Client already exists")]
    ClientExists,
    #[error("The client was changed by somebody else meanwhile; read it and try again")]
    ClientChanged,
    #[error("Role not found")]
    NoSuchRole,
    #[error("Role already exists")]
    RoleExists,
    #[error("The role was changed by somebody else meanwhile; read it and try again")]
    RoleChanged,
    /// Its id or scopes are no good, or it would expand without end.
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
