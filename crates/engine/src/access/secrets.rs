//! Secrets: sealed with their name, and read only by their name.

use std::sync::Arc;

use access::Secret;
use access::seal::OpenError;
use domain::access::{SecretRecord, secret_purpose};
use domain::audit::AuditEntry;
use domain::time::Timestamp;
use store::StoreError;

use crate::Engine;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("Secret not found")]
    NotFound,
    #[error(
        "no key of this server opens secret {0}: {1}. Add the old key to keys.file, or put the secret again"
    )]
    Sealed(String, OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes a secret; one with this name is replaced.
pub async fn set_secret(
    engine: &Arc<Engine>,
    name: String,
    value: &Secret,
    expires: Timestamp,
    audit: AuditEntry,
) -> store::Result<()> {
    let purpose = secret_purpose(&name);
    let sealed_value = engine
        .random
        .with(|random| engine.keyring.seal(&purpose, value, random));
    let record = SecretRecord {
        name,
        sealed_value,
        expires,
        last_modified: audit.created,
    };
    let written = engine.change("secret_put", audit.created, move |change| {
        let is_known = store::secrets::get(change.tx, &record.name)?.is_some();
        store::secrets::put(change.tx, &record)?;
        let action = if is_known { "updated" } else { "created" };
        let audit = AuditEntry {
            action: action.to_owned(),
            ..audit.clone()
        };
        store::audit::insert(change.tx, &audit)
    });
    written.await
}

/// The value of a secret, and when it expires.
pub async fn secret(
    engine: &Arc<Engine>,
    name: String,
    now: Timestamp,
) -> Result<(Secret, Timestamp), SecretError> {
    let purpose = secret_purpose(&name);
    let read = engine
        .store
        .read("secret_get", move |tx| store::secrets::get(tx, &name));
    let found: Option<SecretRecord> = read.await?;
    let record = found
        .filter(|record| record.expires > now)
        .ok_or(SecretError::NotFound)?;
    match engine.keyring.open(&purpose, &record.sealed_value) {
        Ok(value) => Ok((value, record.expires)),
        Err(error) => Err(SecretError::Sealed(record.name, error)),
    }
}

/// May be repeated.
pub async fn delete_secret(
    engine: &Arc<Engine>,
    name: String,
    audit: AuditEntry,
) -> store::Result<()> {
    let written = engine.change("secret_delete", audit.created, move |change| {
        if store::secrets::delete(change.tx, &name)? {
            store::audit::insert(change.tx, &audit)?;
        }
        Ok(())
    });
    written.await
}
