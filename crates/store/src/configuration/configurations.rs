//! Worker configurations.

use domain::Version;
use domain::configuration::StoredConfiguration;
use domain::id::ConfigurationId;
use domain::time::Timestamp;
use serde_json::{Map, Value};

use crate::engine::{BadRow, Cells, Entity, FromRow, Result, Table, Tx, columns, statements};

/// The part of a document that lists leave out.
const RULES: &str = "rules";

columns! { stored: StoredConfiguration {
    id: Key "worker_configuration_id",
    document: Mutable "document",
    market: Mutable "market",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Mutable "version",
}
also { Mutable "summary" = summary(&stored.document) } }

static TABLE: Table = Table::of::<StoredConfiguration>("worker_configurations");

statements! { TABLE;
    GET "configuration_get" =
        "SELECT {columns} FROM worker_configurations WHERE worker_configuration_id = $1";
    CURRENT_VERSION "configuration_version_now" =
        "SELECT version FROM worker_configurations WHERE worker_configuration_id = $1";
    INSERT "configuration_insert" =
        "INSERT INTO worker_configurations ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "configuration_update" =
        "UPDATE worker_configurations SET {changes} WHERE {key} AND version = {next}";
    DELETE "configuration_delete" =
        "DELETE FROM worker_configurations WHERE worker_configuration_id = $1 AND version = $2";
    LIST "configuration_list" =
        "SELECT worker_configuration_id, coalesce(summary, document), created, \
         last_modified, version \
         FROM worker_configurations WHERE worker_configuration_id > $1 \
         ORDER BY worker_configuration_id LIMIT $2";
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

pub fn get(tx: &mut Tx<'_>, id: &ConfigurationId) -> Result<Option<StoredConfiguration>> {
    tx.row(&GET, id)
}

/// Number of the current version, without its document.
pub fn current_version(tx: &mut Tx<'_>, id: &ConfigurationId) -> Result<Option<Version>> {
    tx.row(&CURRENT_VERSION, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, stored: &StoredConfiguration) -> Result<bool> {
    tx.insert(&INSERT, stored)
}

/// Writes a new version, unless another transaction changed the configuration since version `seen`
/// was read.
pub fn update(tx: &mut Tx<'_>, stored: &StoredConfiguration, seen: Version) -> Result<()> {
    tx.execute_guarded(&UPDATE, (stored.updated(), seen))
}

/// Deletes a configuration, unless another transaction changed it since it was read. Its versions
/// stay.
pub fn delete(tx: &mut Tx<'_>, id: &ConfigurationId, seen: Version) -> Result<()> {
    tx.execute_guarded(&DELETE, (id, seen))
}

/// Ordered by id.
pub fn list(
    tx: &mut Tx<'_>,
    after: Option<&ConfigurationId>,
    limit: u32,
) -> Result<Vec<ListedConfiguration>> {
    let after = after.map_or("", ConfigurationId::as_str);
    tx.rows(&LIST, (after, limit))
}

fn summary(document: &Value) -> String {
    let members = document.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| *name != RULES);
    let summary: Map<_, _> = members
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(summary).to_string()
}

impl FromRow for ListedConfiguration {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (id, mut summary) = cells.next()?;
        if let Value::Object(members) = &mut summary {
            members.remove(RULES);
        }
        Ok(Self {
            id,
            summary,
            created: cells.next()?,
            last_modified: cells.next()?,
            version: cells.next()?,
        })
    }
}
