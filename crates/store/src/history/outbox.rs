//! The outbox: events are written in the transaction of their change.
//!
//! If one change saw another, its number is higher. Concurrent changes may be numbered in either
//! order, and the higher number may be committed first. So `events` assigns each event a position
//! after it is committed.

use domain::event::Event;
use domain::id::PoolId;
use domain::time::Timestamp;
use serde_json::Value;

use crate::engine::{BadRow, Cells, FromRow, Result, Table, Tx, statements, to_json};

pub(crate) static TABLE: Table = Table::unlisted("outbox", 1);

statements! { TABLE;
    OLDEST_WAITING "outbox_oldest_waiting" =
        "SELECT created FROM outbox WHERE position IS NULL ORDER BY sequence LIMIT 1";
    PUSH "outbox_push" =
        "INSERT INTO outbox (event_id, topic, routing_key, worker_pool_id, payload, created, \
         routes) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    DEPTH "outbox_depth" = "SELECT COUNT(*) FROM outbox WHERE position IS NULL";
}

/// An event with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    /// Its position in the stream. A reader that has seen an event has seen all events with lower
    /// positions.
    pub position: i64,
    /// Consumers can recognize duplicates by it.
    pub event_id: String,
    /// The full name of the exchange.
    pub topic: String,
    pub routing_key: String,
    /// Further routing keys.
    pub routes: Vec<String>,
    /// Events of one pool keep their order.
    pub pool_id: Option<PoolId>,
    pub payload: Value,
    pub created: Timestamp,
}

pub fn push(tx: &mut Tx<'_>, event: &Event) -> Result<()> {
    let topic = event.body.exchange().topic();
    let routing_key = event.body.routing_key();
    let payload = event.body.payload(event.created).to_string();
    let routes = event.body.routes();
    let routes = (!routes.is_empty()).then(|| to_json(&routes));
    let pool_id = event.body.pool_id().cloned();
    let names = (&event.id, &topic, &routing_key, &pool_id);
    tx.run(&PUSH, (names, &payload, event.created, &routes))
}

/// When the event that has waited longest for its place in the stream was written.
pub fn oldest_waiting(tx: &mut Tx<'_>) -> Result<Option<Timestamp>> {
    tx.row(&OLDEST_WAITING, ())
}

/// Number of events without a position.
pub fn depth(tx: &mut Tx<'_>) -> Result<u64> {
    tx.number(&DEPTH, ())
}

/// The columns of a row, in the order in which `OutboxRow` reads them.
macro_rules! columns {
    () => {
        "position, event_id, topic, routing_key, worker_pool_id, payload, created, routes"
    };
}
pub(crate) use columns;

/// The size of the columns that can be large, in bytes.
macro_rules! size {
    () => {
        "CAST(OCTET_LENGTH(payload) AS BIGINT)"
    };
}
pub(crate) use size;

impl FromRow for OutboxRow {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            position: cells.next()?,
            event_id: cells.next()?,
            topic: cells.next()?,
            routing_key: cells.next()?,
            pool_id: cells.next()?,
            payload: cells.next()?,
            created: cells.next()?,
            routes: cells.next::<Option<_>>()?.unwrap_or_default(),
        })
    }
}
