//! Overrides: pauses and limits that hold for a time.

use domain::Version;
use domain::id::OverrideId;
use domain::overrides::{Effect, Override, Target};
use domain::time::Timestamp;

use crate::engine::cells::Cell;
use crate::engine::{
    ALL_ROWS, BadRow, Cells, Field, FromRow, Result, Table, Tx, Value, columns, statements,
};

columns! { row: Override {
    id: Key "override_id",
    target: Mutable ["worker_pool_id", "launch_config_id", "worker_configuration_id",
        "provider_id", "region"],
    effect: Mutable ["pause", "min_capacity", "max_capacity"],
    reason: Mutable "reason",
    owner: Mutable "owner",
    created: Mutable "created",
    until: Mutable "until",
    ended: Mutable "ended",
    version: Version "version",
} }

impl Field for Target {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        let mut columns: [Option<&str>; 5] = [None; 5];
        match self {
            Self::Pool(pool) => columns[0] = Some(pool.as_str()),
            Self::LaunchConfig(pool, config) => {
                columns[0] = Some(pool.as_str());
                columns[1] = Some(config.as_str());
            }
            Self::Configuration(id) => columns[2] = Some(id.as_str()),
            Self::Provider(provider) => columns[3] = Some(provider.as_str()),
            Self::Region(region) => columns[4] = Some(region.as_str()),
        }
        values.extend(columns.map(Value::from));
    }
}

impl FromRow for Target {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (pool, config, rules) = (cells.next()?, cells.next()?, cells.next()?);
        match (pool, config, rules, cells.next()?, cells.next()?) {
            (Some(pool), None, None, None, None) => Ok(Self::Pool(pool)),
            (Some(pool), Some(config), None, None, None) => Ok(Self::LaunchConfig(pool, config)),
            (None, None, Some(id), None, None) => Ok(Self::Configuration(id)),
            (None, None, None, Some(provider), None) => Ok(Self::Provider(provider)),
            (None, None, None, None, Some(region)) => Ok(Self::Region(region)),
            _ => Err(BadRow("it does not name exactly one target".to_owned())),
        }
    }
}

impl Field for Effect {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        let (is_pause, min, max) = match self {
            Self::Pause => (true, &None, &None),
            Self::Limits {
                min_capacity,
                max_capacity,
            } => (false, min_capacity, max_capacity),
        };
        values.extend([is_pause.into(), min.value(), max.value()]);
    }
}

impl FromRow for Effect {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let is_pause: bool = cells.next()?;
        let (min_capacity, max_capacity) = (cells.next()?, cells.next()?);
        Ok(if is_pause {
            Self::Pause
        } else {
            Self::Limits {
                min_capacity,
                max_capacity,
            }
        })
    }
}

static TABLE: Table = Table::of::<Override>("overrides");

statements! { TABLE;
    GET "override_get" =
        "SELECT {columns} FROM overrides WHERE override_id = $1";
    INSERT "override_insert" =
        "INSERT INTO overrides ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "override_update" =
        "UPDATE overrides SET {changes} WHERE {key}";
    DELETE "override_delete" = "DELETE FROM overrides WHERE override_id = $1 AND version = $2";
    LIST "override_list" =
        "SELECT {columns} FROM overrides \
         WHERE override_id > $1 AND (ended IS NULL AND until > $2 OR CAST($3 AS BIGINT) = 1) \
         ORDER BY override_id LIMIT $4";
    IN_FORCE "override_list_in_force" =
        "SELECT {columns} FROM overrides WHERE ended IS NULL AND until > $1 \
         ORDER BY override_id LIMIT $2";
    DUE "override_list_due" =
        "SELECT {columns} FROM overrides WHERE ended IS NULL AND until <= $1 \
         ORDER BY until, override_id LIMIT $2";
    DELETE_ENDED "override_delete_ended_before" =
        "DELETE FROM overrides WHERE override_id IN (\
         SELECT override_id FROM overrides WHERE ended IS NOT NULL AND ended < $1 \
         ORDER BY ended LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, id: &OverrideId) -> Result<Option<Override>> {
    tx.row(&GET, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, row: &Override) -> Result<bool> {
    tx.insert(&INSERT, row)
}

/// Writes all columns but the id, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, row: &Override) -> Result<Version> {
    tx.update(&UPDATE, row)?;
    Ok(row.version.next())
}

/// Deletes an override, unless another transaction changed it since it was read.
pub fn delete(tx: &mut Tx<'_>, row: &Override) -> Result<()> {
    tx.execute_guarded(&DELETE, (&row.id, row.version))
}

/// Ordered by id; ended overrides only if `with_ended`.
pub fn list(
    tx: &mut Tx<'_>,
    now: Timestamp,
    with_ended: bool,
    after: Option<&OverrideId>,
    limit: u32,
) -> Result<Vec<Override>> {
    let after = after.map_or("", OverrideId::as_str);
    tx.rows(&LIST, (after, now, with_ended, limit))
}

/// All overrides in force at this moment, ordered by id.
pub fn list_in_force(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<Override>> {
    tx.rows(&IN_FORCE, (now, ALL_ROWS))
}

/// The overrides that are over but not marked as ended, the oldest first.
pub fn list_due(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<Override>> {
    tx.rows(&DUE, (now, limit))
}

pub fn delete_ended_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_ENDED, (before, limit))
}
