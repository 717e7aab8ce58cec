//! The provider of pools that are on their way out: it does nothing and accepts any config.

use async_trait::async_trait;
use contract::Invalid;
use serde_json::Value;

use crate::{IdentityClaim, NotVerified, ProofRefused, Provider, Verified};

pub struct NullProvider;

#[async_trait]
impl Provider for NullProvider {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
        let detail = "the null provider has no workers".to_owned();
        Err(ProofRefused {
            message: "not supported for this provider",
            detail,
        }
        .into())
    }
}
