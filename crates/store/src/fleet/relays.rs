//! Relays of datacentres, as they last announced themselves.

use domain::id::RelayId;
use domain::relay::Relay;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, columns, statements};

columns! { row: Relay {
    id: Key "relay_id",
    first_seen: Fixed "first_seen",
    last_seen: Mutable "last_seen",
    interval_seconds: Mutable "interval_seconds",
    announcement: Mutable "announcement",
} }

static TABLE: Table = Table::of::<Relay>("relays");

statements! { TABLE;
    GET "relay_get" = "SELECT {columns} FROM relays WHERE relay_id = $1";
    LIST "relay_list" =
        "SELECT {columns} FROM relays WHERE relay_id > $1 ORDER BY relay_id LIMIT $2";
    WRITE "relay_write" =
        "INSERT INTO relays ({written}) VALUES ({values}) ON CONFLICT (relay_id) DO UPDATE SET \
         last_seen = excluded.last_seen, interval_seconds = excluded.interval_seconds, \
         announcement = excluded.announcement";
    DELETE_SILENT "relay_delete_silent" =
        "DELETE FROM relays WHERE relay_id IN (SELECT relay_id FROM relays WHERE last_seen < $1 \
         ORDER BY last_seen LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, id: &RelayId) -> Result<Option<Relay>> {
    tx.row(&GET, id)
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&RelayId>, limit: u32) -> Result<Vec<Relay>> {
    tx.rows(&LIST, (after.map_or("", RelayId::as_str), limit))
}

/// Replaces the last announcement of the relay. A known relay keeps `first_seen`.
pub fn write(tx: &mut Tx<'_>, row: &Relay) -> Result<()> {
    tx.insert(&WRITE, row)?;
    Ok(())
}

/// Deletes relays without an announcement since then. Call it again while it returns the limit.
pub fn delete_silent(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_SILENT, (before, limit))
}
