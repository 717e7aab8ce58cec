//! The API, as a picture calls it for the person who looks.

use api_client::Call;
use async_trait::async_trait;
use serde_json::Value;

/// The program's own API. Each call has the rights of the person who looks.
#[async_trait]
pub trait Api: Send + Sync {
    async fn call(&self, call: Call) -> Result<Value, Refusal>;

    /// Whether the scopes of the person permit a call with this address, so that a page offers
    /// nothing that would be refused whatever its body is.
    fn may(&self, call: &Call) -> bool;
}

/// A call that was not answered with a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The code of the API's error, such as `InsufficientScopes`.
    pub code: String,
    pub message: String,
}

impl Refusal {
    /// The person may not see this.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status == 401 || self.status == 403
    }

    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.status == 404
    }
}
