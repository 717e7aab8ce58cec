//! Which worker configuration a worker type belongs to, and what the payload of its tasks must look like.

use domain::Version;
use domain::configuration::WorkerTypeRecord;
use domain::id::{ConfigurationId, PoolId};

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};

static TABLE: Table = Table {
    name: "worker_types",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "worker_pool_id, worker_configuration_id, payload_schema, check_payload"
    };
}

statements! { TABLE;
    GET "worker_type_get" = concat!(
        "SELECT ", columns!(), " FROM worker_types WHERE worker_pool_id = $1");
    CLAIM "worker_type_claim" = concat!(
        "INSERT INTO worker_types (", columns!(), ") VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING");
    UPDATE "worker_type_update" =
        "UPDATE worker_types SET payload_schema = $1, check_payload = $2 \
         WHERE worker_pool_id = $3 AND worker_configuration_id = $4";
    RELEASE "worker_type_release" =
        "DELETE FROM worker_types WHERE worker_pool_id = $1 AND worker_configuration_id = $2";
    JUDGED_BY "worker_type_judged_by" =
        "SELECT c.worker_configuration_id, c.version FROM worker_types AS t \
         CROSS JOIN worker_configurations AS c WHERE t.worker_pool_id = $1 AND t.check_payload = 1 \
         AND t.payload_schema IS NOT NULL AND c.worker_configuration_id = t.worker_configuration_id";
    LIST "worker_type_list" = concat!(
        "SELECT ", columns!(), " FROM worker_types WHERE worker_configuration_id = $1 \
         ORDER BY worker_pool_id LIMIT $2");
}

pub fn worker_type_get(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Option<WorkerTypeRecord>, StoreError> {
    tx.row(&GET, &[pool_id.as_str().into()], worker_type)
}

/// The version of the configuration by whose schema payloads are judged, if they are judged.
pub fn worker_type_judged_by(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Option<(ConfigurationId, Version)>, StoreError> {
    tx.row(&JUDGED_BY, &[pool_id.as_str().into()], |row| {
        Ok((row.text(0)?.parse()?, row.version(1)?))
    })
}

/// Makes the worker type this configuration's, or says that it is another's: `false`. If it is the configuration's
/// already, what is known of it is written anew.
pub fn worker_type_claim(
    tx: &mut Tx<'_>,
    worker_type: &WorkerTypeRecord,
) -> Result<bool, StoreError> {
    let schema = worker_type.payload_schema.as_ref().map(ToString::to_string);
    let (pool_id, owner) = (
        worker_type.pool_id.as_str(),
        worker_type.configuration_id.as_str(),
    );
    let inserted = tx.execute(
        &CLAIM,
        &[
            pool_id.into(),
            owner.into(),
            schema.as_ref().into(),
            worker_type.check_payload.into(),
        ],
    )?;
    if inserted > 0 {
        return Ok(true);
    }
    let updated = tx.execute(
        &UPDATE,
        &[
            schema.as_ref().into(),
            worker_type.check_payload.into(),
            pool_id.into(),
            owner.into(),
        ],
    )?;
    Ok(updated > 0)
}

/// The worker type is free again, if it was this configuration's.
pub fn worker_type_release(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    configuration_id: &ConfigurationId,
) -> Result<(), StoreError> {
    let values = [pool_id.as_str().into(), configuration_id.as_str().into()];
    tx.execute(&RELEASE, &values).map(drop)
}

/// Those of a configuration, by pool id.
pub fn worker_type_list(
    tx: &mut Tx<'_>,
    configuration_id: &ConfigurationId,
) -> Result<Vec<WorkerTypeRecord>, StoreError> {
    let values = [configuration_id.as_str().into(), ALL_ROWS.into()];
    tx.rows(&LIST, &values, worker_type)
}

fn worker_type(row: &Row<'_>) -> Result<WorkerTypeRecord, BadRow> {
    let schema = match row.optional_text(2)? {
        Some(text) => Some(serde_json::from_str(text)?),
        None => None,
    };
    Ok(WorkerTypeRecord {
        pool_id: row.text(0)?.parse()?,
        configuration_id: row.text(1)?.parse()?,
        payload_schema: schema,
        check_payload: row.flag(3)?,
    })
}
