//! Counters that grow with every change of a client or a role. They show caches when to reload, and
//! which roles.
//!
//! Concurrent transactions write different counters, so that they do not conflict. A role stores
//! which counter its last change incremented, and the resulting value. The changes of one counter
//! are committed in the order of its values, so a cache lacks exactly the changes above the value
//! that it has seen.

use std::collections::BTreeMap;

use crate::engine::{Result, StoreError, Table, Tx, statements};

static TABLE: Table = Table::unlisted("revisions", 1);

/// The oldest counter, from the time when there was only one.
const ACCESS: &str = "access";
/// Prefix of the names of the counters of deleted roles.
const DELETED: &str = "access-deleted/";

statements! { TABLE;
    // Includes `access-…` and `access/…`: `0` is the character after `/`.
    GET "access_revision" =
        "SELECT name, value FROM revisions WHERE name >= 'access' AND name < 'access0'";
    INCREMENT "access_revision_bump" =
        "INSERT INTO revisions (name, value) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET value = revisions.value + 1";
}

/// The changes of clients and roles that a reader has seen; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRevision(BTreeMap<String, i64>);

pub fn current(tx: &mut Tx<'_>) -> Result<AccessRevision> {
    let counters = tx.rows(&GET, ())?;
    let revision = AccessRevision(counters.into_iter().collect());
    if revision.0.contains_key(ACCESS) {
        Ok(revision)
    } else {
        Err(StoreError::corrupt(TABLE.name, ACCESS, "it is missing"))
    }
}

impl AccessRevision {
    /// Number of changes so far.
    pub fn n_changes(&self) -> i64 {
        self.0.values().sum()
    }

    /// Returns the counters that grew since `seen`, each with its value in `seen`. Returns `None`
    /// if reading the roles of these counters would not bring a cache up to date.
    pub(crate) fn grown_since<'a>(
        &'a self,
        seen: &'a Self,
    ) -> Option<impl Iterator<Item = (&'a str, i64)>> {
        let known = |name| seen.0.get(name).copied().unwrap_or(0);
        let grown = self
            .0
            .iter()
            .filter(move |(name, value)| **value > known(*name));
        self.continues(seen)
            .then(|| grown.map(move |(name, _)| (name.as_str(), known(name))))
    }

    /// Whether a cache at `seen` lacks only roles that can be found by their counters. That is not
    /// so after roles were deleted, nor after the database was restored from a backup, which makes
    /// a counter smaller.
    fn continues(&self, seen: &Self) -> bool {
        let deleted = |revision: &Self| {
            let counters = revision.0.iter();
            let deleted = counters.filter(|(name, _)| name.starts_with(DELETED));
            deleted.map(|(_, value)| value).sum::<i64>()
        };
        let has_not_shrunk = |(name, value): (&String, &i64)| self.0.get(name) >= Some(value);
        !seen.0.is_empty() && seen.0.iter().all(has_not_shrunk) && deleted(self) == deleted(seen)
    }
}

/// Name of the counter that this transaction increments.
pub(crate) fn counter(tx: &Tx<'_>) -> String {
    format!("{ACCESS}/{:02}", tx.slot())
}

/// Every transaction that changes what a client may do must call this.
pub(crate) fn increment(tx: &mut Tx<'_>) -> Result<()> {
    let name = counter(tx);
    tx.run(&INCREMENT, &name)
}

/// Like [`increment`], for transactions that delete a role.
pub(crate) fn increment_deleted(tx: &mut Tx<'_>) -> Result<()> {
    let name = format!("{DELETED}{:02}", tx.slot());
    tx.run(&INCREMENT, &name)
}
