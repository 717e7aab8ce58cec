//! Clients: created, changed, enabled, disabled, reset and deleted.

use std::sync::Arc;

use access::Secret;
use domain::Version;
use domain::access::{ClientRecord, token_purpose};
use domain::audit::AuditEntry;
use domain::event::{AccessChange, EventBody};
use domain::id::ClientId;
use domain::time::{MINUTE_MS, Timestamp};

use super::AccessError;
use crate::Engine;
use crate::change::Change;

/// Within this time, the same request to create a client is a repeat.
const REPEAT_MS: i64 = 15 * MINUTE_MS;

/// The action of the audit entry for a repeat.
const TOKEN_REPEATED: &str = "token-given-again";

#[derive(Clone)]
pub struct ClientRequest {
    pub description: String,
    pub scopes: Vec<String>,
    pub expires: Timestamp,
    pub delete_on_expiration: bool,
}

/// Creates a client with a new token. A repeated request soon after gets the same token again.
pub async fn create_client(
    engine: &Arc<Engine>,
    id: ClientId,
    asked: ClientRequest,
    audit: AuditEntry,
) -> Result<(ClientRecord, Secret), AccessError> {
    let now = audit.created;
    let sealed_access_token = seal(engine, &id, &engine.random.secret());
    let record = ClientRecord {
        client_id: id,
        description: asked.description,
        scopes: asked.scopes,
        sealed_access_token,
        expires: asked.expires,
        created: now,
        last_modified: now,
        last_date_used: now,
        last_rotated: now,
        delete_on_expiration: asked.delete_on_expiration,
        disabled: false,
        version: Version::FIRST,
    };
    let written = engine.change("client_create", now, move |change| {
        if store::clients::insert(change.tx, &record)? {
            announce(change, AccessChange::Created, &record.client_id)?;
            store::audit::insert(change.tx, &audit)?;
            return Ok::<_, AccessError>(record.clone());
        }
        let known = store::clients::get(change.tx, &record.client_id)?
            .filter(|known| is_repeat(known, &record))
            .ok_or(AccessError::ClientExists)?;
        // Another caller with the same rights gets the token, too.
        let mut again = audit.clone();
        TOKEN_REPEATED.clone_into(&mut again.action);
        store::audit::insert(change.tx, &again)?;
        Ok(known)
    });
    let created = written.await?;
    let purpose = token_purpose(&created.client_id);
    let opened = engine.keyring.open(&purpose, &created.sealed_access_token);
    let token = opened.map_err(|_| AccessError::ClientExists)?;
    Ok((created, token))
}

/// Whether this request repeats the one that created the client.
fn is_repeat(known: &ClientRecord, asked: &ClientRecord) -> bool {
    let age = asked.created.millis_since(known.created);
    (0..REPEAT_MS).contains(&age)
        && !known.disabled
        && known.last_rotated == known.created
        && known.description == asked.description
        && known.scopes == asked.scopes
        && known.expires == asked.expires
        && known.delete_on_expiration == asked.delete_on_expiration
}

/// Changes a client, if it is still at the version that the caller has read.
pub async fn update_client(
    engine: &Arc<Engine>,
    id: ClientId,
    seen: Version,
    asked: ClientRequest,
    audit: AuditEntry,
) -> Result<ClientRecord, AccessError> {
    edit(engine, id, Some(seen), audit, move |record| {
        record.description.clone_from(&asked.description);
        record.scopes.clone_from(&asked.scopes);
        record.expires = asked.expires;
        record.delete_on_expiration = asked.delete_on_expiration;
    })
    .await
}

pub async fn set_client_disabled(
    engine: &Arc<Engine>,
    id: ClientId,
    disabled: bool,
    audit: AuditEntry,
) -> Result<ClientRecord, AccessError> {
    edit(engine, id, None, audit, move |record| {
        record.disabled = disabled;
    })
    .await
}

/// Gives a client a new token; the old one becomes invalid.
pub async fn reset_client(
    engine: &Arc<Engine>,
    id: ClientId,
    audit: AuditEntry,
) -> Result<(ClientRecord, Secret), AccessError> {
    let token = engine.random.secret();
    let (sealed, now) = (seal(engine, &id, &token), audit.created);
    let record = edit(engine, id, None, audit, move |record| {
        record.sealed_access_token.clone_from(&sealed);
        record.last_rotated = now;
    });
    Ok((record.await?, token))
}

/// May be repeated.
pub async fn delete_client(
    engine: &Arc<Engine>,
    id: ClientId,
    audit: AuditEntry,
) -> store::Result<()> {
    let written = engine.change("client_delete", audit.created, move |change| {
        if store::clients::delete(change.tx, &id)? {
            announce(change, AccessChange::Deleted, &id)?;
            store::audit::insert(change.tx, &audit)?;
        }
        Ok(())
    });
    written.await
}

/// If `seen` is given, only at this version.
async fn edit(
    engine: &Arc<Engine>,
    id: ClientId,
    seen: Option<Version>,
    audit: AuditEntry,
    edit: impl Fn(&mut ClientRecord) + Send + 'static,
) -> Result<ClientRecord, AccessError> {
    let written = engine.change("client_change", audit.created, move |change| {
        let known = store::clients::get(change.tx, &id)?;
        let mut record = known.ok_or(AccessError::NoSuchClient)?;
        if seen.is_some_and(|seen| seen != record.version) {
            return Err(AccessError::ClientChanged);
        }
        edit(&mut record);
        record.last_modified = change.now;
        record.version = store::clients::update(change.tx, &record)?;
        announce(change, AccessChange::Updated, &id)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record)
    });
    written.await
}

fn announce(change: &mut Change<'_, '_>, news: AccessChange, id: &ClientId) -> store::Result<()> {
    change.announce([EventBody::Client {
        change: news,
        client_id: id.clone(),
    }])
}

fn seal(engine: &Engine, id: &ClientId, token: &Secret) -> String {
    let purpose = token_purpose(id);
    engine
        .random
        .with(|random| engine.keyring.seal(&purpose, token, random))
}
