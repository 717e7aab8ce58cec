//! Who is asking? Answered by our own clients and roles, or by a Taskcluster deployment's.

mod embedded;
mod remote;

use std::sync::Arc;

use access::authenticate::{AuthError, check_payload};
use access::hawk::RequestLine;
use access::scope::ScopeSet;
use async_trait::async_trait;
use domain::time::Timestamp;
use store::StoreError;

pub use embedded::Embedded;
pub use remote::Remote;

/// Why it is not known who is asking, or what they may do.
#[derive(Debug)]
pub enum GateError {
    /// The credentials are no good.
    Refused(String),
    /// The scopes that were asked about cannot be expanded.
    NotExpanded(String),
    /// The deployment that knows did not answer as it should.
    NoAnswer(&'static str),
    Store(StoreError),
}

/// What of a request matters for who sent it.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    pub method: String,
    /// Path and query exactly as sent.
    pub resource: String,
    /// The host that the client believes to talk to, in lower case, and its port.
    pub host: String,
    pub port: u16,
    pub authorization: Option<String>,
    pub source_ip: String,
    /// Lower case, without parameters; empty if there is none.
    pub content_type: String,
    /// The text of the body, if it was read as JSON.
    pub body: bytes::Bytes,
}

/// Who sent a request, and what it may do.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None`: no credentials were given.
    pub client_id: Option<String>,
    /// Expanded, with what anybody may do.
    pub scopes: Arc<ScopeSet>,
    pub expires: Timestamp,
    /// What the body must hash to, if the sender signed it.
    pub payload_hash: Option<String>,
}

impl Caller {
    /// Whether the body is the one that was signed; call it once the body has been read.
    pub fn check_payload(&self, asking: &Asking) -> Result<(), GateError> {
        let signed = self.payload_hash.as_deref();
        Ok(check_payload(signed, &asking.content_type, &asking.body)?)
    }
}

/// Authenticates requests by their heads: nothing of a body needs to be there.
#[async_trait]
pub trait Gate: Send + Sync {
    async fn authenticate(&self, asking: &Asking, now: Timestamp) -> Result<Caller, GateError>;

    /// Clients or roles have changed here: look at them anew before the next answer.
    fn forget(&self) {}

    /// Ids of clients that have signed requests since this was last asked, at most a bounded
    /// number of them.
    fn take_used(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ours, if clients and roles are kept here.
    fn embedded(&self) -> Option<&Embedded> {
        None
    }
}

impl Asking {
    pub fn line(&self) -> RequestLine<'_> {
        RequestLine {
            method: &self.method,
            resource: &self.resource,
            host: &self.host,
            port: self.port,
        }
    }
}

impl From<StoreError> for GateError {
    fn from(problem: StoreError) -> Self {
        Self::Store(problem)
    }
}

impl From<AuthError> for GateError {
    fn from(refused: AuthError) -> Self {
        Self::Refused(refused.message)
    }
}
