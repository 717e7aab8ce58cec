//! Readers of the event stream, shared by all processes.
//!
//! One process holds a reader at a time, by a lease. The lease only avoids duplicate work.
//! Correctness comes from `fence`: only the process that took the reader last can move its
//! position.

use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements};
use crate::history::events;

static TABLE: Table = Table::unlisted("event_readers", 1);

statements! { TABLE;
    OPEN "event_reader_open" =
        "INSERT INTO event_readers (name, position, holder, held_until, fence) \
         VALUES ($1, $2, '', 0, 0) ON CONFLICT (name) DO NOTHING";
    GET "event_reader_get" =
        "SELECT name, position, holder, held_until, fence FROM event_readers WHERE name = $1";
    HELD "event_reader_list_held" =
        "SELECT name, holder, held_until FROM event_readers WHERE held_until > $1 \
         ORDER BY name LIMIT $2";
    TAKE "event_reader_take" =
        "UPDATE event_readers SET holder = $1, held_until = $2, fence = $3 \
         WHERE name = $4 AND fence = $5 AND held_until = $6";
    MOVE "event_reader_move" =
        "UPDATE event_readers SET position = $1 WHERE name = $2 AND fence = $3 AND position < $1";
    LEAVE "event_reader_leave" =
        "UPDATE event_readers SET held_until = $1 \
         WHERE name = $2 AND holder = $3 AND held_until > $1";
    LEAVE_ALL "event_reader_leave_all" =
        "UPDATE event_readers SET held_until = $1 WHERE holder = $2 AND held_until > $1";
}

/// The position and the holder of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReader {
    /// The position of the last event that was delivered.
    pub position: i64,
    pub holder: String,
    pub held_until: Timestamp,
    /// Increases whenever the holder changes.
    pub fence: i64,
}

/// A reader that a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldReader {
    pub name: String,
    pub holder: String,
    pub until: Timestamp,
}

from_row! { HeldReader { name, holder, until } }

impl EventReader {
    /// Whether another process than this one holds the reader now, with a lease of this length.
    ///
    /// No process takes it for longer. A lease that ends much later was written before the clock
    /// was set back, and its holder may have ended since, so others may take it. A process that
    /// lives loses the reader by this, and its fence keeps it from moving the position.
    pub fn is_held_by_another(&self, process: &str, now: Timestamp, lease_ms: i64) -> bool {
        let left_ms = self.held_until.millis_since(now);
        self.holder != process && 0 < left_ms && left_ms <= lease_ms.saturating_mul(2)
    }
}

/// Creates the reader if it does not exist. It begins with the next event.
pub fn open(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let head = events::head(tx)?;
    tx.run(&OPEN, (name, head))
}

pub fn get(tx: &mut Tx<'_>, name: &str) -> Result<Option<EventReader>> {
    let found = tx.row::<(String, EventReader)>(&GET, name)?;
    Ok(found.map(|(_, reader)| reader))
}

/// The readers that processes hold now: one for each purpose.
pub fn list_held(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<HeldReader>> {
    tx.rows(&HELD, (now, ALL_ROWS))
}

/// Takes the reader or extends its lease. Returns `None` if another process holds it.
pub fn take(
    tx: &mut Tx<'_>,
    name: &str,
    holder: &str,
    now: Timestamp,
    lease_ms: i64,
) -> Result<Option<EventReader>> {
    let Some(known) = get(tx, name)? else {
        return Ok(None);
    };
    if known.is_held_by_another(holder, now, lease_ms) {
        return Ok(None);
    }
    let until = now.plus_millis(lease_ms);
    let fence = if known.holder == holder {
        known.fence
    } else {
        known.fence + 1
    };
    tx.execute_guarded(
        &TAKE,
        (holder, until, fence, name, known.fence, known.held_until),
    )?;
    Ok(Some(EventReader {
        holder: holder.to_owned(),
        held_until: until,
        fence,
        ..known
    }))
}

/// Records that all events up to this position were delivered. Returns `false` if another process
/// has taken the reader.
pub fn advance(tx: &mut Tx<'_>, name: &str, fence: i64, position: i64) -> Result<bool> {
    let moved = tx.execute(&MOVE, (position, name, fence))?;
    Ok(moved == 1)
}

/// Ends the lease of this holder, so that other processes can take the reader immediately.
pub fn leave(tx: &mut Tx<'_>, name: &str, holder: &str, now: Timestamp) -> Result<()> {
    tx.run(&LEAVE, (now, name, holder))
}

/// Ends all leases of this holder, which ends.
pub fn leave_all(tx: &mut Tx<'_>, holder: &str, now: Timestamp) -> Result<()> {
    tx.run(&LEAVE_ALL, (now, holder))
}

from_row! { EventReader { position, holder, held_until, fence } }
