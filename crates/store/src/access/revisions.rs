//! Counters that grow with every change of a client or a role, so that caches know when to reload, and what.
//!
//! Transactions that run at once write different counters, so that none is in the way of another. A role says which
//! counter its last change counted up, and to what. The changes of one counter are committed in its order, so those
//! above the value that a cache has seen are all that it does not know yet.

use std::collections::BTreeMap;

use crate::engine::error::StoreError;
use crate::engine::statement::statements;
use crate::engine::table::Table;
use crate::engine::tx::Tx;

static TABLE: Table = Table::unlisted("revisions", 1);

/// The first counter, from before there were several.
const ACCESS: &str = "access";
/// What the names of the counters of deleted roles begin with.
const DELETED: &str = "access-deleted/";

statements! { TABLE;
    // `access-…` and `access/…` as well: `0` is the character after `/`.
    GET "access_revision" =
        "SELECT name, value FROM revisions WHERE name >= 'access' AND name < 'access0'";
    BUMP "access_revision_bump" =
        "INSERT INTO revisions (name, value) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET value = revisions.value + 1";
}

/// How far the changes of clients and roles are known; by default nothing is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRevision(BTreeMap<String, i64>);

pub fn current(tx: &mut Tx<'_>) -> Result<AccessRevision, StoreError> {
    let counters = tx.rows(&GET, &[], |row| {
        Ok((row.text(0)?.to_owned(), row.integer(1)?))
    })?;
    let revision = AccessRevision(counters.into_iter().collect());
    if revision.0.contains_key(ACCESS) {
        Ok(revision)
    } else {
        Err(StoreError::corrupt(TABLE.name, ACCESS, "it is missing"))
    }
}

impl AccessRevision {
    /// How many changes there were.
    pub fn n_changes(&self) -> i64 {
        self.0.values().sum()
    }

    /// The counters that grew since a cache has seen the other one, and how far it knows them. `None` if that is not all
    /// that the cache lacks.
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

    /// Whether a cache that has seen the other one lacks nothing but roles that can be found by their counters. It is
    /// not so after roles were deleted, and after the database was restored from a backup: then a counter is smaller.
    fn continues(&self, seen: &Self) -> bool {
        let deleted = |revision: &Self| {
            let counters = revision.0.iter();
            let deleted = counters.filter(|(name, _)| name.starts_with(DELETED));
            deleted.map(|(_, value)| value).sum::<i64>()
        };
        let is_there = |(name, value): (&String, &i64)| self.0.get(name) >= Some(value);
        !seen.0.is_empty() && seen.0.iter().all(is_there) && deleted(self) == deleted(seen)
    }
}

/// The counter of this transaction.
pub(crate) fn counter(tx: &Tx<'_>) -> String {
    format!("{ACCESS}/{:02}", tx.slot())
}

/// Belongs into every transaction that changes what somebody may do.
pub(crate) fn bump(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let name = counter(tx);
    tx.execute(&BUMP, &[(&name).into()]).map(drop)
}

/// As [`bump`], where a role was deleted.
pub(crate) fn bump_deleted(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let name = format!("{DELETED}{:02}", tx.slot());
    tx.execute(&BUMP, &[(&name).into()]).map(drop)
}
