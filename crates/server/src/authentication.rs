//! Authenticates requests by our own clients, or by an outside auth service.

mod embedded;
mod held;
mod remote;

use std::sync::Arc;

use access::authenticate::{AuthError, check_payload};
use access::hawk::RequestLine;
use access::scope::ScopeSet;
use async_trait::async_trait;
use domain::time::Timestamp;
use store::StoreError;

pub use embedded::EmbeddedAuthenticator;
pub use held::{
    Holders, Holding, PersonHolding, given, holder, restored, sign, stored, stored_person,
};
pub use remote::RemoteAuthenticator;

/// Why a request was not authenticated, or its scopes not expanded.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// The credentials are invalid.
    #[error("{0}")]
    Refused(String),
    /// The client is not known yet, and looking for it was not permitted.
    #[error("the client was not looked up")]
    NotLookedUp,
    /// The given scopes cannot be expanded.
    #[error("{0}")]
    NotExpanded(String),
    /// The outside auth service did not answer, or not correctly.
    #[error("{0}")]
    NoAnswer(&'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The parts of a request that authentication needs.
#[derive(Clone, Debug, Default)]
pub struct RequestToAuthenticate {
    pub method: String,
    /// Path and query exactly as sent.
    pub resource: String,
    /// The host that the client addressed, in lower case, and its port.
    pub host: String,
    pub port: u16,
    pub authorization: Option<String>,
    pub source_ip: String,
    /// Whether the database may be read for a client that is not in memory.
    pub may_look_up: bool,
    /// Lower case, without parameters; empty if the header is missing.
    pub content_type: String,
    /// The text of the body, if it was read as JSON.
    pub body: bytes::Bytes,
}

/// The sender of a request, and its scopes.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None`: no credentials were given.
    pub client_id: Option<String>,
    /// Expanded, including the scopes of `anonymous`.
    pub scopes: Arc<ScopeSet>,
    pub expires: Timestamp,
    /// The signed hash of the body, if any.
    pub payload_hash: Option<String>,
}

impl Caller {
    fn anonymous(scopes: Arc<ScopeSet>, expires: Timestamp) -> Self {
        Self {
            client_id: None,
            scopes,
            expires,
            payload_hash: None,
        }
    }

    /// Checks that the body is the signed one; call it after reading the body.
    pub fn check_payload(
        &self,
        request: &RequestToAuthenticate,
    ) -> Result<(), AuthenticationError> {
        let signed = self.payload_hash.as_deref();
        Ok(check_payload(signed, &request.content_type, &request.body)?)
    }
}

/// Authenticates requests by their heads, before their bodies are read.
#[async_trait]
pub trait Authenticator: Send + Sync {
    async fn authenticate(
        &self,
        request: &RequestToAuthenticate,
        now: Timestamp,
    ) -> Result<Caller, AuthenticationError>;

    /// Clients or roles have changed in this process: read them again before the next answer.
    fn forget(&self) {}

    /// A bounded number of ids of clients that have signed requests since the last call.
    fn take_used(&self) -> Vec<String> {
        Vec::new()
    }

    /// The built-in authenticator, if clients and roles are kept here.
    fn embedded(&self) -> Option<&EmbeddedAuthenticator> {
        None
    }
}

impl RequestToAuthenticate {
    pub fn line(&self) -> RequestLine<'_> {
        RequestLine {
            method: &self.method,
            resource: &self.resource,
            host: &self.host,
            port: self.port,
        }
    }
}

impl From<AuthError> for AuthenticationError {
    fn from(refused: AuthError) -> Self {
        Self::Refused(refused.message)
    }
}
