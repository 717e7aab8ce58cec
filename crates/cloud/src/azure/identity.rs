//! Verifies a machine on Azure by the attested document of its metadata service.

use async_trait::async_trait;
use domain::time::Timestamp;
use serde_json::Value;

use super::document::AttestedDocument;
use super::issuers::{IssuerError, Issuers};
use crate::{CloudError, IdentityClaim, Proof, ProofRefused, Verification, VerifyError};

/// The message for every refused worker, whatever the reason.
const REFUSED: &str = "Signature validation error";

/// Knows the id that Azure gave to the machine of a worker.
#[async_trait]
pub(super) trait VmIds: Sync {
    /// `None`: the machine does not exist.
    async fn vm_id(&self, claim: &IdentityClaim<'_>) -> Result<Option<String>, CloudError>;
}

/// The checks are in Taskcluster's order, so that Azure and the issuers are asked only about
/// documents with a right signature.
pub(super) async fn verify(
    claim: &IdentityClaim<'_>,
    issuers: &Issuers,
    vm_ids: &dyn VmIds,
) -> Result<Verification, VerifyError> {
    let document = open(claim.proof).map_err(refuse)?;
    match issuers.check(&document, claim.worker, claim.now).await {
        Ok(()) => {}
        Err(IssuerError::Refused(detail)) => return Err(refuse(detail)),
        Err(IssuerError::Unavailable(error)) => return Err(VerifyError::Cloud(error)),
    }
    let statement = document.statement().map_err(refuse)?;
    let known = vm_ids.vm_id(claim).await?;
    let known = known.ok_or_else(|| refuse("Azure knows no machine of this worker"))?;
    if !known.eq_ignore_ascii_case(&statement.vm_id) {
        let claimed = &statement.vm_id;
        return Err(refuse(format!(
            "the document is of machine {claimed:?}, and the worker's is {known:?}"
        )));
    }
    check_expiry(statement.expires_on, claim.now).map_err(refuse)?;
    let unregistered = claim.worker.check_unregistered();
    unregistered.map_err(|error| refuse(error.to_string()))?;
    Ok(Verification::by_terms(&claim.worker.terms))
}

fn open(proof: &Proof) -> Result<AttestedDocument, String> {
    match proof {
        Proof::Document(Value::String(text)) => AttestedDocument::open(text),
        Proof::Document(_)
        | Proof::SignedDocument { .. }
        | Proof::Token(_)
        | Proof::StaticSecret(_)
        | Proof::Relay => Err("the proof is of another kind".to_owned()),
    }
}

fn check_expiry(expires_on: Option<Timestamp>, now: Timestamp) -> Result<(), String> {
    match expires_on {
        Some(at) if at > now => Ok(()),
        Some(at) => Err(format!("the document expired at {at}")),
        None => Err("the document has no valid time of expiry".to_owned()),
    }
}

fn refuse(detail: impl Into<String>) -> VerifyError {
    ProofRefused::new(REFUSED, detail).into()
}
