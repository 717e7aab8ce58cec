//! What a cache of roles does not know yet.

use domain::access::RoleRecord;

use crate::access_revision::AccessRevision;
use crate::error::StoreError;
use crate::role::{role_all, role_changed};
use crate::tx::Tx;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleNews {
    /// These are new or were changed; the others are as they were.
    Changed(Vec<RoleRecord>),
    /// All that there are.
    All(Vec<RoleRecord>),
}

/// What changed between the revision that a cache has seen and the current one.
pub fn role_news(
    tx: &mut Tx<'_>,
    seen: &AccessRevision,
    current: &AccessRevision,
) -> Result<RoleNews, StoreError> {
    let Some(grown) = current.grown_since(seen) else {
        return role_all(tx).map(RoleNews::All);
    };
    let mut changed = Vec::new();
    for (counter, known) in grown {
        changed.extend(role_changed(tx, counter, known)?);
    }
    Ok(RoleNews::Changed(changed))
}
