//! The `null` provider, for pools that must not get workers: it accepts any config and does
//! nothing.

use async_trait::async_trait;
use contract::Invalid;
use serde_json::Value;

use crate::{IdentityClaim, ProofRefused, Provider, Verification, VerifyError};

pub struct NullProvider;

#[async_trait]
impl Provider for NullProvider {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let detail = "the null provider has no workers";
        Err(ProofRefused::new("not supported for this provider", detail).into())
    }
}
