//! Clients and roles, in the form in which they are stored.

use crate::Version;
use crate::id::{ClientId, RoleId};
use crate::time::Timestamp;

/// A client: it has credentials and can sign requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    pub client_id: ClientId,
    pub description: String,
    /// As given, not expanded.
    pub scopes: Vec<String>,
    /// Encrypted; decrypted only to verify a signature.
    pub sealed_access_token: String,
    pub expires: Timestamp,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub last_date_used: Timestamp,
    pub last_rotated: Timestamp,
    pub delete_on_expiration: bool,
    pub disabled: bool,
    pub version: Version,
}

/// Binds a sealed access token to its client.
pub fn token_purpose(client_id: &ClientId) -> String {
    format!("client:{client_id}")
}

/// A value that workers and people fetch by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRecord {
    pub name: String,
    /// Encrypted JSON.
    pub sealed_value: String,
    pub expires: Timestamp,
    pub last_modified: Timestamp,
}

/// Binds a sealed value to the name of its secret.
pub fn secret_purpose(name: &str) -> String {
    format!("secret:{name}")
}

/// A named set of scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRecord {
    pub role_id: RoleId,
    pub description: String,
    pub scopes: Vec<String>,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}
