//! Overrides: what is paused or limited otherwise for a time.

use domain::Version;
use domain::id::{OverrideId, ProviderId, WorkerGroup};
use domain::overrides::{Effect, Override, Target};
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};
use crate::value::Value;

static TABLE: Table = Table {
    name: "overrides",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "override_id, worker_pool_id, launch_config_id, provider_id, region, pause, min_capacity, \
         max_capacity, reason, owner, created, until, ended, version"
    };
}

statements! { TABLE;
    GET "override_get" = concat!("SELECT ", columns!(), " FROM overrides WHERE override_id = $1");
    INSERT "override_insert" = concat!(
        "INSERT INTO overrides (", columns!(), ") \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING");
    UPDATE "override_update" =
        "UPDATE overrides SET worker_pool_id = $1, launch_config_id = $2, provider_id = $3, \
         region = $4, pause = $5, min_capacity = $6, max_capacity = $7, reason = $8, owner = $9, \
         created = $10, until = $11, ended = $12, version = version + 1 \
         WHERE override_id = $13 AND version = $14";
    DELETE "override_delete" = "DELETE FROM overrides WHERE override_id = $1 AND version = $2";
    LIST "override_list" = concat!(
        "SELECT ", columns!(), " FROM overrides \
         WHERE override_id > $1 AND (ended IS NULL AND until > $2 OR CAST($3 AS BIGINT) = 1) \
         ORDER BY override_id LIMIT $4");
    IN_FORCE "override_list_in_force" = concat!(
        "SELECT ", columns!(), " FROM overrides WHERE ended IS NULL AND until > $1 \
         ORDER BY override_id LIMIT $2");
    DUE "override_list_due" = concat!(
        "SELECT ", columns!(), " FROM overrides WHERE ended IS NULL AND until <= $1 \
         ORDER BY until, override_id LIMIT $2");
    DELETE_ENDED "override_delete_ended_before" =
        "DELETE FROM overrides WHERE override_id IN (\
         SELECT override_id FROM overrides WHERE ended IS NOT NULL AND ended < $1 \
         ORDER BY ended LIMIT $2)";
}

pub fn override_get(tx: &mut Tx<'_>, id: &OverrideId) -> Result<Option<Override>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], from_row)
}

/// `false` if there is one of this id already; nothing changes then.
pub fn override_insert(tx: &mut Tx<'_>, given: &Override) -> Result<bool, StoreError> {
    Ok(tx.execute(&INSERT, &values(given))? > 0)
}

/// Writes everything, if nobody changed it since it was read. Returns the new version.
pub fn override_update(tx: &mut Tx<'_>, given: &Override) -> Result<Version, StoreError> {
    let mut values = values(given);
    // What it is changed by comes before what it is found by.
    values[..13].rotate_left(1);
    tx.execute_guarded(&UPDATE, &values)?;
    Ok(given.version.next())
}

/// If nobody changed it since it was read.
pub fn override_delete(tx: &mut Tx<'_>, given: &Override) -> Result<(), StoreError> {
    let key = [given.id.as_str().into(), given.version.into()];
    tx.execute_guarded(&DELETE, &key)
}

/// By id; those that have ended only if they are asked for.
pub fn override_list(
    tx: &mut Tx<'_>,
    now: Timestamp,
    with_ended: bool,
    after: Option<&OverrideId>,
    limit: u32,
) -> Result<Vec<Override>, StoreError> {
    let after = after.map_or("", OverrideId::as_str);
    let values = [after.into(), now.into(), with_ended.into(), limit.into()];
    tx.rows(&LIST, &values, from_row)
}

/// All that act at this moment, by id.
pub fn override_list_in_force(
    tx: &mut Tx<'_>,
    now: Timestamp,
) -> Result<Vec<Override>, StoreError> {
    tx.rows(&IN_FORCE, &[now.into(), ALL_ROWS.into()], from_row)
}

/// Those whose end nobody has seen yet, the oldest first.
pub fn override_list_due(
    tx: &mut Tx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Override>, StoreError> {
    tx.rows(&DUE, &[now.into(), limit.into()], from_row)
}

pub fn override_delete_ended_before(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE_ENDED, &[before.into(), limit.into()])
}

fn values(given: &Override) -> [Value<'_>; 14] {
    let (pool, config, provider, region) = match &given.target {
        Target::Pool(pool) => (Some(pool), None, None, None),
        Target::LaunchConfig(pool, config) => (Some(pool), Some(config), None, None),
        Target::Provider(provider) => (None, None, Some(provider), None),
        Target::Region(region) => (None, None, None, Some(region)),
    };
    let (min, max) = match given.effect {
        Effect::Pause => (None, None),
        Effect::Limits {
            min_capacity,
            max_capacity,
        } => (min_capacity, max_capacity),
    };
    [
        given.id.as_str().into(),
        pool.map(|id| id.as_str()).into(),
        config.map(|id| id.as_str()).into(),
        provider.map(ProviderId::as_str).into(),
        region.map(WorkerGroup::as_str).into(),
        given.is_pause().into(),
        min.map(stored).into(),
        max.map(stored).into(),
        (&given.reason).into(),
        given.owner.as_str().into(),
        given.created.into(),
        given.until.into(),
        given.ended.into(),
        given.version.into(),
    ]
}

/// Nobody has more capacity than a database can count.
fn stored(capacity: u64) -> i64 {
    i64::try_from(capacity).unwrap_or(i64::MAX)
}

fn from_row(row: &Row<'_>) -> Result<Override, BadRow> {
    let texts = [1, 2, 3, 4].map(|column| row.optional_text(column));
    let [pool, config, provider, region] = texts;
    let target = match (pool?, config?, provider?, region?) {
        (Some(pool), None, None, None) => Target::Pool(pool.parse()?),
        (Some(pool), Some(config), None, None) => {
            Target::LaunchConfig(pool.parse()?, config.parse()?)
        }
        (None, None, Some(provider), None) => Target::Provider(provider.parse()?),
        (None, None, None, Some(region)) => Target::Region(region.parse()?),
        _ => return Err(BadRow("it names no target, or several".to_owned())),
    };
    let capacity = |column| {
        let number = row.optional_integer(column)?;
        Ok::<_, BadRow>(number.and_then(|number| u64::try_from(number).ok()))
    };
    Ok(Override {
        id: row.text(0)?.parse()?,
        target,
        effect: match row.flag(5)? {
            true => Effect::Pause,
            false => Effect::Limits {
                min_capacity: capacity(6)?,
                max_capacity: capacity(7)?,
            },
        },
        reason: row.text(8)?.to_owned(),
        owner: row.text(9)?.parse()?,
        created: row.time(10)?,
        until: row.time(11)?,
        ended: row.optional_time(12)?,
        version: row.version(13)?,
    })
}
