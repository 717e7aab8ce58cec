//! Notices to people: written before they are sent, one at a time to each recipient.
//!
//! Whoever sends a notice moves its time ahead first, so that others leave it alone and try it themselves if
//! the sender is never heard of again.

use domain::Version;
use domain::time::Timestamp;
use serde_json::Value as Json;

use crate::engine::columns::{Entity, columns, entity};
use crate::engine::error::StoreError;
use crate::engine::statement::statements;
use crate::engine::table::Table;
use crate::engine::tx::Tx;

columns! { notice: Notice {
    id: Key "notice_id",
    channel: Fixed "channel",
    recipient: Fixed "recipient",
    content: Fixed "content",
    created: Fixed "created",
    due: Mutable "due",
    refusals: Mutable "refusals",
    version: Version "version",
} }

static TABLE: Table = Table::of::<Notice>("notices");

statements! { TABLE;
    INSERT "notice_insert" =
        "INSERT INTO notices ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    NEXT "notice_next" =
        "SELECT {columns} FROM notices WHERE channel = $1 AND due <= $2 AND sent IS NULL ORDER BY due LIMIT 1";
    UPDATE "notice_update" =
        "UPDATE notices SET {changes} WHERE {key} AND sent IS NULL";
    SENT "notice_sent" =
        "UPDATE notices SET sent = $1, version = version + 1 \
         WHERE notice_id = $2 AND version = $3 AND sent IS NULL";
    DELETE "notice_delete" = "DELETE FROM notices WHERE notice_id = $1 AND version = $2";
    WAITING "notice_waiting" =
        "SELECT due FROM notices WHERE channel = $1 AND recipient = $2 AND sent IS NULL";
    RECENT "notice_recent" =
        "SELECT created FROM notices WHERE channel = $1 AND recipient = $2 AND created > $3 \
         ORDER BY created DESC LIMIT $4";
    DELETE_OLDER "notice_delete_older_than" =
        "DELETE FROM notices WHERE notice_id IN (\
         SELECT notice_id FROM notices WHERE created < $1 ORDER BY created LIMIT $2)";
}

/// A notice that has not been sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub id: String,
    pub channel: String,
    pub recipient: String,
    pub content: Json,
    pub created: Timestamp,
    /// When to send it.
    pub due: Timestamp,
    /// How often it was not taken for what it is, while others are.
    pub refusals: u32,
    pub version: Version,
}

/// `false` if another notice waits for this recipient already.
pub fn insert(tx: &mut Tx<'_>, notice: &Notice) -> Result<bool, StoreError> {
    tx.insert(&INSERT, notice)
}

/// The one that has been due the longest.
pub fn next(tx: &mut Tx<'_>, channel: &str, now: Timestamp) -> Result<Option<Notice>, StoreError> {
    tx.row(&NEXT, &[channel.into(), now.into()], entity)
}

/// Writes its time and its refusals, and returns it as it is now; `None` if it is not as it was read.
pub fn update(tx: &mut Tx<'_>, notice: Notice) -> Result<Option<Notice>, StoreError> {
    let n_updated = tx.execute(&UPDATE, &notice.updated())?;
    let version = notice.version.next();
    Ok((n_updated == 1).then_some(Notice { version, ..notice }))
}

/// `false` if somebody else has taken it over: then it may have been sent twice.
pub fn mark_sent(tx: &mut Tx<'_>, notice: &Notice, now: Timestamp) -> Result<bool, StoreError> {
    let values = [now.into(), (&notice.id).into(), notice.version.into()];
    Ok(tx.execute(&SENT, &values)? == 1)
}

/// Gives it up; `false` if it is not as it was read.
pub fn delete(tx: &mut Tx<'_>, notice: &Notice) -> Result<bool, StoreError> {
    let values = [(&notice.id).into(), notice.version.into()];
    Ok(tx.execute(&DELETE, &values)? == 1)
}

/// When the notice that waits for this recipient will be sent, if there is one.
pub fn waiting(
    tx: &mut Tx<'_>,
    channel: &str,
    recipient: &str,
) -> Result<Option<Timestamp>, StoreError> {
    tx.row(&WAITING, &[channel.into(), recipient.into()], |row| {
        row.time(0)
    })
}

/// When the last notices to this recipient were written, newest first, none of them earlier than `after`.
pub fn recent(
    tx: &mut Tx<'_>,
    channel: &str,
    recipient: &str,
    after: Timestamp,
    limit: u32,
) -> Result<Vec<Timestamp>, StoreError> {
    let values = [channel.into(), recipient.into(), after.into(), limit.into()];
    tx.rows(&RECENT, &values, |row| row.time(0))
}

/// Forgets notices, sent or not. As many as the limit means: ask again.
pub fn delete_older_than(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE_OLDER, &[before.into(), limit.into()])
}
