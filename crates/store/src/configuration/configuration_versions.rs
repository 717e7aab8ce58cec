//! Versions of worker configurations, including those of deleted configurations.

use domain::Version;
use domain::configuration::{Action, VersionRecord};
use domain::id::ConfigurationId;
use domain::time::Timestamp;

use crate::engine::{Entity, Result, Table, Tx, columns, from_row, statements};

columns! { record: VersionRecord {
    id: Key "worker_configuration_id",
    version: Key "version",
    action: Fixed "action",
    document: Fixed "document",
    market: Fixed "market",
    client_id: Fixed "client_id",
    reason: Fixed "reason",
    created: Fixed "created",
} }

static TABLE: Table = Table::of::<VersionRecord>("worker_configuration_versions");

statements! { TABLE;
    INSERT "configuration_version_insert" =
        "INSERT INTO worker_configuration_versions ({written}) VALUES ({values})";
    GET "configuration_version_get" =
        "SELECT {columns} FROM worker_configuration_versions \
         WHERE worker_configuration_id = $1 AND version = $2";
    LIST "configuration_version_list" =
        "SELECT worker_configuration_id, version, action, client_id, reason, created \
         FROM worker_configuration_versions \
         WHERE worker_configuration_id = $1 AND version < $2 ORDER BY version DESC LIMIT $3";
    OLDEST "configuration_version_oldest" =
        "SELECT version FROM worker_configuration_versions \
         WHERE worker_configuration_id = $1 ORDER BY version LIMIT 1";
    // One version stays of what is deleted, so that its numbers go on.
    DELETE_REPLACED "configuration_version_delete_replaced" =
        "DELETE FROM worker_configuration_versions WHERE (worker_configuration_id, version) IN (\
         SELECT v.worker_configuration_id, v.version FROM worker_configuration_versions AS v \
         WHERE v.created < $1 AND EXISTS (SELECT 1 FROM worker_configuration_versions AS n \
         WHERE n.worker_configuration_id = v.worker_configuration_id \
         AND n.version > v.version AND n.created < $1) \
         AND EXISTS (SELECT 1 FROM worker_configuration_versions AS k \
         WHERE k.worker_configuration_id = v.worker_configuration_id \
         AND k.version >= v.version + CASE WHEN EXISTS (SELECT 1 FROM worker_configurations AS c \
         WHERE c.worker_configuration_id = v.worker_configuration_id) \
         THEN CAST($2 AS BIGINT) ELSE CAST(1 AS BIGINT) END) \
         ORDER BY v.created LIMIT $3)";
}

/// A version without its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub id: ConfigurationId,
    pub version: Version,
    pub action: Action,
    pub client_id: String,
    pub reason: String,
    pub created: Timestamp,
}

pub fn insert(tx: &mut Tx<'_>, record: &VersionRecord) -> Result<()> {
    tx.run(&INSERT, record.inserted())
}

pub fn get(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    version: Version,
) -> Result<Option<VersionRecord>> {
    tx.row(&GET, (id, version))
}

/// Ordered from newest to oldest. Deleted configurations have versions, too.
pub fn list(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    before: Option<Version>,
    limit: u32,
) -> Result<Vec<ListedVersion>> {
    let before = before.unwrap_or(Version(i64::MAX));
    tx.rows(&LIST, (id, before, limit))
}

/// The oldest version that is still kept.
pub fn oldest(tx: &mut Tx<'_>, id: &ConfigurationId) -> Result<Option<Version>> {
    tx.row(&OLDEST, id)
}

/// Deletes versions that were replaced before this moment, but not the newest `kept` of what still
/// exists, and never the last one. Call it again while it returns the limit.
pub fn delete_replaced(tx: &mut Tx<'_>, before: Timestamp, kept: u32, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_REPLACED, (before, kept, limit))
}

from_row! { ListedVersion { id, version, action, client_id, reason, created } }
