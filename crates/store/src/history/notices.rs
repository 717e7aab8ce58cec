//! Notices to people: written before they are sent, and sent one at a time to each recipient.
//!
//! A process postpones a notice before it sends it, so that other processes leave it alone, and
//! send it themselves if that process stops.

use domain::Version;
use domain::time::Timestamp;
use serde_json::Value as Json;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

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
        "SELECT {columns} FROM notices WHERE channel = $1 AND due <= $2 AND sent IS NULL \
         ORDER BY due LIMIT 1";
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

/// A notice that was not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub id: String,
    pub channel: String,
    pub recipient: String,
    pub content: Json,
    pub created: Timestamp,
    /// When to send it.
    pub due: Timestamp,
    /// How often the receiver refused this notice although it accepts others.
    pub refusals: u32,
    pub version: Version,
}

/// Returns `false` if another notice is waiting for this recipient.
pub fn insert(tx: &mut Tx<'_>, notice: &Notice) -> Result<bool> {
    tx.insert(&INSERT, notice)
}

/// The notice that has been due the longest.
pub fn next(tx: &mut Tx<'_>, channel: &str, now: Timestamp) -> Result<Option<Notice>> {
    tx.row(&NEXT, (channel, now))
}

/// Writes the mutable columns, and returns the notice with its new version. Returns `None` if
/// another transaction changed it since it was read.
pub fn update(tx: &mut Tx<'_>, notice: Notice) -> Result<Option<Notice>> {
    let n_updated = tx.execute(&UPDATE, notice.updated())?;
    let version = notice.version.next();
    Ok((n_updated == 1).then_some(Notice { version, ..notice }))
}

/// Returns `false` if another process has taken the notice: then it may be sent twice.
pub fn mark_sent(tx: &mut Tx<'_>, notice: &Notice, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(&SENT, (now, &notice.id, notice.version))? == 1)
}

/// Deletes a notice without sending it. Returns `false` if another transaction changed it since it
/// was read.
pub fn delete(tx: &mut Tx<'_>, notice: &Notice) -> Result<bool> {
    Ok(tx.execute(&DELETE, (&notice.id, notice.version))? == 1)
}

/// When the waiting notice to this recipient is due, if one waits.
pub fn waiting(tx: &mut Tx<'_>, channel: &str, recipient: &str) -> Result<Option<Timestamp>> {
    tx.row(&WAITING, (channel, recipient))
}

/// When the last notices to this recipient were written, after `after`, newest first.
pub fn recent(
    tx: &mut Tx<'_>,
    channel: &str,
    recipient: &str,
    after: Timestamp,
    limit: u32,
) -> Result<Vec<Timestamp>> {
    tx.rows(&RECENT, (channel, recipient, after, limit))
}

/// Deletes notices, sent or not. Call it again while it returns the limit.
pub fn delete_older_than(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_OLDER, (before, limit))
}
