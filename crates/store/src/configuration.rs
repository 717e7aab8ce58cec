//! Worker configurations and all their versions.

use domain::Version;
use domain::configuration::{Action, StoredConfiguration, VersionRecord};
use domain::id::ConfigurationId;
use domain::time::Timestamp;
use serde_json::{Map, Value};

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;

/// The part of a document that lists leave out.
const RULES: &str = "rules";

static TABLE: Table = Table {
    name: "worker_configurations",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "worker_configuration_id, document, market, created, last_modified, version"
    };
}

macro_rules! version_columns {
    () => {
        "worker_configuration_id, version, action, document, market, client_id, reason, created"
    };
}

statements! { TABLE;
    GET "configuration_get" = concat!(
        "SELECT ", columns!(), " FROM worker_configurations WHERE worker_configuration_id = $1");
    VERSION_NOW "configuration_version_now" =
        "SELECT version FROM worker_configurations WHERE worker_configuration_id = $1";
    INSERT "configuration_insert" = concat!(
        "INSERT INTO worker_configurations (", columns!(), ", summary) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING");
    UPDATE "configuration_update" =
        "UPDATE worker_configurations SET document = $1, market = $2, last_modified = $3, \
         version = $4, summary = $5 WHERE worker_configuration_id = $6 AND version = $7";
    DELETE "configuration_delete" =
        "DELETE FROM worker_configurations WHERE worker_configuration_id = $1 AND version = $2";
    LIST "configuration_list" =
        "SELECT worker_configuration_id, coalesce(summary, document), created, last_modified, version \
         FROM worker_configurations WHERE worker_configuration_id > $1 \
         ORDER BY worker_configuration_id LIMIT $2";
    ADD_VERSION "configuration_version_insert" = concat!(
        "INSERT INTO worker_configuration_versions (", version_columns!(), ") \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
    VERSION "configuration_version_get" = concat!(
        "SELECT ", version_columns!(), " FROM worker_configuration_versions \
         WHERE worker_configuration_id = $1 AND version = $2");
    VERSIONS "configuration_version_list" =
        "SELECT worker_configuration_id, version, action, client_id, reason, created \
         FROM worker_configuration_versions \
         WHERE worker_configuration_id = $1 AND version < $2 ORDER BY version DESC LIMIT $3";
}

/// A configuration without its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedConfiguration {
    pub id: ConfigurationId,
    /// All of the document but the rules.
    pub summary: Value,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// A version without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    pub id: ConfigurationId,
    pub version: Version,
    pub action: Action,
    pub client_id: String,
    pub reason: String,
    pub created: Timestamp,
}

pub fn configuration_get(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
) -> Result<Option<StoredConfiguration>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], configuration)
}

/// The number of its present version, without reading it.
pub fn configuration_version_now(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
) -> Result<Option<Version>, StoreError> {
    tx.row(&VERSION_NOW, &[id.as_str().into()], |row| row.version(0))
}

/// `false` if there is one of this id already; nothing changes then.
pub fn configuration_insert(
    tx: &mut Tx<'_>,
    stored: &StoredConfiguration,
) -> Result<bool, StoreError> {
    let document = stored.document.to_string();
    let market = stored.market.to_string();
    let n_inserted = tx.execute(
        &INSERT,
        &[
            stored.id.as_str().into(),
            (&document).into(),
            (&market).into(),
            stored.created.into(),
            stored.last_modified.into(),
            stored.version.into(),
            (&summary(&stored.document)).into(),
        ],
    )?;
    Ok(n_inserted > 0)
}

/// Writes it under its version, if nobody changed it since the version before was read.
pub fn configuration_update(
    tx: &mut Tx<'_>,
    stored: &StoredConfiguration,
    seen: Version,
) -> Result<(), StoreError> {
    let document = stored.document.to_string();
    let market = stored.market.to_string();
    tx.execute_guarded(
        &UPDATE,
        &[
            (&document).into(),
            (&market).into(),
            stored.last_modified.into(),
            stored.version.into(),
            (&summary(&stored.document)).into(),
            stored.id.as_str().into(),
            seen.into(),
        ],
    )
}

/// Deletes it, if nobody changed it since it was read. Its versions stay.
pub fn configuration_delete(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    seen: Version,
) -> Result<(), StoreError> {
    tx.execute_guarded(&DELETE, &[id.as_str().into(), seen.into()])
}

/// By id.
pub fn configuration_list(
    tx: &mut Tx<'_>,
    after: Option<&ConfigurationId>,
    limit: u32,
) -> Result<Vec<ListedConfiguration>, StoreError> {
    let after = after.map_or("", ConfigurationId::as_str);
    tx.rows(&LIST, &[after.into(), limit.into()], listed)
}

pub fn configuration_version_insert(
    tx: &mut Tx<'_>,
    record: &VersionRecord,
) -> Result<(), StoreError> {
    let document = record.document.to_string();
    let market = record.market.to_string();
    tx.execute(
        &ADD_VERSION,
        &[
            record.id.as_str().into(),
            record.version.into(),
            record.action.as_str().into(),
            (&document).into(),
            (&market).into(),
            (&record.client_id).into(),
            (&record.reason).into(),
            record.created.into(),
        ],
    )
    .map(drop)
}

pub fn configuration_version_get(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    version: Version,
) -> Result<Option<VersionRecord>, StoreError> {
    tx.row(&VERSION, &[id.as_str().into(), version.into()], record)
}

/// Newest first, also of configurations that have been deleted.
pub fn configuration_version_list(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    before: Option<Version>,
    limit: u32,
) -> Result<Vec<ListedVersion>, StoreError> {
    let before = before.unwrap_or(Version(i64::MAX));
    tx.rows(
        &VERSIONS,
        &[id.as_str().into(), before.into(), limit.into()],
        listed_version,
    )
}

fn summary(document: &Value) -> String {
    let members = document.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| *name != RULES);
    let summary: Map<_, _> = members
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(summary).to_string()
}

fn listed(row: &Row<'_>) -> Result<ListedConfiguration, BadRow> {
    let mut summary = row.json(1)?;
    if let Value::Object(members) = &mut summary {
        members.remove(RULES);
    }
    Ok(ListedConfiguration {
        id: row.text(0)?.parse()?,
        summary,
        created: row.time(2)?,
        last_modified: row.time(3)?,
        version: row.version(4)?,
    })
}

fn listed_version(row: &Row<'_>) -> Result<ListedVersion, BadRow> {
    Ok(ListedVersion {
        id: row.text(0)?.parse()?,
        version: row.version(1)?,
        action: row.text(2)?.parse::<Action>()?,
        client_id: row.text(3)?.to_owned(),
        reason: row.text(4)?.to_owned(),
        created: row.time(5)?,
    })
}

fn configuration(row: &Row<'_>) -> Result<StoredConfiguration, BadRow> {
    Ok(StoredConfiguration {
        id: row.text(0)?.parse()?,
        document: row.json(1)?,
        market: row.json(2)?,
        created: row.time(3)?,
        last_modified: row.time(4)?,
        version: row.version(5)?,
    })
}

fn record(row: &Row<'_>) -> Result<VersionRecord, BadRow> {
    Ok(VersionRecord {
        id: row.text(0)?.parse()?,
        version: row.version(1)?,
        action: row.text(2)?.parse::<Action>()?,
        document: row.json(3)?,
        market: row.json(4)?,
        client_id: row.text(5)?.to_owned(),
        reason: row.text(6)?.to_owned(),
        created: row.time(7)?,
    })
}
