//! Events that wait to be told to the world, written in the transaction of the change they tell of.
//!
//! Of two changes, the one that saw the other has the higher number. Changes that did not see each other
//! may be numbered and published in either order.

use domain::event::Event;
use domain::id::PoolId;
use domain::time::Timestamp;
use serde_json::Value;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "outbox",
    key_columns: 1,
};

statements! { TABLE;
    PUSH "outbox_push" =
        "INSERT INTO outbox (event_id, topic, routing_key, worker_pool_id, payload, created) \
         VALUES ($1, $2, $3, $4, $5, $6)";
    TAKE "outbox_take" =
        "SELECT sequence, event_id, topic, routing_key, worker_pool_id, payload, created FROM outbox \
         WHERE published IS NULL ORDER BY sequence LIMIT $1";
    MARK "outbox_mark_published" =
        "UPDATE outbox SET published = $1 WHERE sequence = $2 AND published IS NULL";
    DELETE "outbox_delete_published_before" =
        "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox \
         WHERE published IS NOT NULL AND published < $1 ORDER BY published LIMIT $2)";
    DEPTH "outbox_depth" = "SELECT COUNT(*) FROM outbox WHERE published IS NULL";
}

/// An event as it goes out.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    pub sequence: i64,
    /// By which a consumer can drop repeats.
    pub event_id: String,
    /// The full name of the exchange.
    pub topic: String,
    pub routing_key: String,
    /// Events of one pool keep their order.
    pub pool_id: Option<PoolId>,
    pub payload: Value,
    pub created: Timestamp,
}

pub fn outbox_push(tx: &mut Tx<'_>, event: &Event) -> Result<(), StoreError> {
    let topic = event.body.exchange().topic();
    let routing_key = event.body.routing_key();
    let payload = event.body.payload(event.created).to_string();
    tx.execute(
        &PUSH,
        &[
            (&event.id).into(),
            (&topic).into(),
            (&routing_key).into(),
            event.body.pool_id().map(PoolId::as_str).into(),
            (&payload).into(),
            event.created.into(),
        ],
    )
    .map(drop)
}

/// The oldest unpublished ones. They stay until they are marked, so each is told at least once.
pub fn outbox_take(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
    tx.rows(&TAKE, &[limit.into()], outbox_row)
}

pub fn outbox_mark_published(
    tx: &mut Tx<'_>,
    sequences: &[i64],
    now: Timestamp,
) -> Result<(), StoreError> {
    for sequence in sequences {
        tx.execute(&MARK, &[now.into(), (*sequence).into()])?;
    }
    Ok(())
}

/// As many as the limit means: ask again.
pub fn outbox_delete_published_before(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE, &[before.into(), limit.into()])
}

/// How many wait.
pub fn outbox_depth(tx: &mut Tx<'_>) -> Result<u64, StoreError> {
    Ok(tx.row(&DEPTH, &[], |row| row.number(0))?.unwrap_or(0))
}

fn outbox_row(row: &Row<'_>) -> Result<OutboxRow, BadRow> {
    Ok(OutboxRow {
        sequence: row.integer(0)?,
        event_id: row.text(1)?.to_owned(),
        topic: row.text(2)?.to_owned(),
        routing_key: row.text(3)?.to_owned(),
        pool_id: row.optional_text(4)?.map(str::parse).transpose()?,
        payload: row.json(5)?,
        created: row.time(6)?,
    })
}
