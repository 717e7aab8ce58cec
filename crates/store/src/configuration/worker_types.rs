//! The worker configuration of each worker type, and the schema of its tasks' payloads.

use domain::Version;
use domain::configuration::WorkerTypeRecord;
use domain::id::{ConfigurationId, PoolId};

use crate::engine::{ALL_ROWS, Entity, Result, Table, Tx, columns, statements};

columns! { worker_type: WorkerTypeRecord {
    pool_id: Key "worker_pool_id",
    configuration_id: Key "worker_configuration_id",
    payload_schema: Mutable "payload_schema",
    check_payload: Mutable "check_payload",
} }

static TABLE: Table = Table::of::<WorkerTypeRecord>("worker_types");

statements! { TABLE;
    GET "worker_type_get" =
        "SELECT {columns} FROM worker_types WHERE worker_pool_id = $1";
    CLAIM "worker_type_claim" =
        "INSERT INTO worker_types ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "worker_type_update" =
        "UPDATE worker_types SET {changes} WHERE {key}";
    RELEASE "worker_type_release" =
        "DELETE FROM worker_types WHERE worker_pool_id = $1 AND worker_configuration_id = $2";
    PAYLOAD_SCHEMA_VERSION "worker_type_payload_schema_version" =
        "SELECT c.worker_configuration_id, c.version FROM worker_types AS t \
         CROSS JOIN worker_configurations AS c WHERE t.worker_pool_id = $1 AND t.check_payload = 1 \
         AND t.payload_schema IS NOT NULL \
         AND c.worker_configuration_id = t.worker_configuration_id";
    OWNERS "worker_type_owners_between" =
        "SELECT worker_pool_id, worker_configuration_id FROM worker_types \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 ORDER BY worker_pool_id LIMIT $3";
    LIST "worker_type_list" =
        "SELECT {columns} FROM worker_types WHERE worker_configuration_id = $1 \
         ORDER BY worker_pool_id LIMIT $2";
}

pub fn get(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Option<WorkerTypeRecord>> {
    tx.row(&GET, pool_id)
}

/// The version of the configuration whose schema checks payloads, if payloads are checked.
pub fn payload_schema_version(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Option<(ConfigurationId, Version)>> {
    tx.row(&PAYLOAD_SCHEMA_VERSION, pool_id)
}

/// The worker configurations of the pools from the first to the last, ordered by pool. Other pools
/// are absent.
pub fn owners_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolId, ConfigurationId)>> {
    tx.rows(&OWNERS, (first, last, ALL_ROWS))
}

/// Assigns the worker type to this configuration, or updates its schema if it is assigned already.
/// Returns `false` if it belongs to another configuration.
pub fn claim(tx: &mut Tx<'_>, worker_type: &WorkerTypeRecord) -> Result<bool> {
    let is_new = tx.insert(&CLAIM, worker_type)?;
    Ok(is_new || tx.execute(&UPDATE, worker_type.updated())? > 0)
}

/// Unassigns the worker type, if it belongs to this configuration.
pub fn release(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    configuration_id: &ConfigurationId,
) -> Result<()> {
    tx.run(&RELEASE, (pool_id, configuration_id))
}

/// The worker types of a configuration, ordered by pool id.
pub fn list(tx: &mut Tx<'_>, configuration_id: &ConfigurationId) -> Result<Vec<WorkerTypeRecord>> {
    tx.rows(&LIST, (configuration_id, ALL_ROWS))
}
