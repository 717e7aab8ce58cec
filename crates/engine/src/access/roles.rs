//! Roles: named sets of scopes.

use std::sync::Arc;

use access::role::{Role, Roles};
use domain::Version;
use domain::access::RoleRecord;
use domain::audit::AuditEntry;
use domain::event::{AccessChange, EventBody};
use domain::id::RoleId;
use store::Tx;

use super::AccessError;
use crate::Engine;
use crate::change::Change;

/// The lock for changes of roles with a parameter.
const TURN: &str = "roles";

#[derive(Clone)]
pub struct RoleRequest {
    pub description: String,
    pub scopes: Vec<String>,
}

/// Creates a role. A repeated request changes nothing.
pub async fn create_role(
    engine: &Arc<Engine>,
    id: RoleId,
    asked: RoleRequest,
    audit: AuditEntry,
) -> Result<RoleRecord, AccessError> {
    let now = audit.created;
    let record = RoleRecord {
        role_id: id,
        description: asked.description,
        scopes: asked.scopes,
        created: now,
        last_modified: now,
        version: Version::FIRST,
    };
    let written = engine.change("role_create", now, move |change| {
        if let Some(known) = store::roles::get(change.tx, &record.role_id)? {
            if known.scopes != record.scopes || known.description != record.description {
                return Err(AccessError::RoleExists);
            }
            return Ok(known);
        }
        check(change.tx, &record)?;
        if !store::roles::insert(change.tx, &record)? {
            return Err(change.tx.lost_race().into());
        }
        announce(change, AccessChange::Created, &record.role_id)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record.clone())
    });
    written.await
}

/// Changes a role, if it is still at the version that the caller has read.
pub async fn update_role(
    engine: &Arc<Engine>,
    id: RoleId,
    seen: Version,
    asked: RoleRequest,
    audit: AuditEntry,
) -> Result<RoleRecord, AccessError> {
    let written = engine.change("role_update", audit.created, move |change| {
        let known = store::roles::get(change.tx, &id)?;
        let mut record = known.ok_or(AccessError::NoSuchRole)?;
        if record.version != seen {
            return Err(AccessError::RoleChanged);
        }
        record.description.clone_from(&asked.description);
        record.scopes.clone_from(&asked.scopes);
        record.last_modified = change.now;
        check(change.tx, &record)?;
        record.version = store::roles::update(change.tx, &record)?;
        announce(change, AccessChange::Updated, &id)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(record)
    });
    written.await
}

/// May be repeated.
pub async fn delete_role(engine: &Arc<Engine>, id: RoleId, audit: AuditEntry) -> store::Result<()> {
    let written = engine.change("role_delete", audit.created, move |change| {
        if store::roles::delete(change.tx, &id)? {
            announce(change, AccessChange::Deleted, &id)?;
            store::audit::insert(change.tx, &audit)?;
        }
        Ok(())
    });
    written.await
}

fn announce(change: &mut Change<'_, '_>, news: AccessChange, id: &RoleId) -> store::Result<()> {
    change.announce([EventBody::Role {
        change: news,
        role_id: id.clone(),
    }])
}

/// Refuses roles whose expansion would not end.
///
/// Only roles with a parameter can cause that, and only together. So they are written one after
/// the other; all other roles may be written concurrently.
fn check(tx: &mut Tx<'_>, candidate: &RoleRecord) -> Result<(), AccessError> {
    let candidate = role(candidate.clone());
    let known = if candidate.has_parameter() {
        store::turns::take(tx, TURN)?;
        Roles::new(store::roles::all(tx)?.into_iter().map(role))
    } else {
        Roles::default()
    };
    Ok(known.check_new(&candidate)?)
}

fn role(record: RoleRecord) -> Role {
    Role {
        role_id: record.role_id.to_string(),
        scopes: record.scopes,
    }
}
