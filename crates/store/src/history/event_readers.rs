//! Readers of the event stream, shared by all processes.
//!
//! One process holds a reader at a time, by a lease. The lease only avoids duplicate work.
//! Correctness comes from `fence`: only the process that took the reader last can move its
//! position.

use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};
use crate::history::events;

static TABLE: Table = Table::unlisted("event_readers", 1);

statements! { TABLE;
    OPEN "event_reader_open" =
        "INSERT INTO event_readers (name, position, holder, held_until, fence) \
         VALUES ($1, $2, '', 0, 0) ON CONFLICT (name) DO NOTHING";
    GET "event_reader_get" =
        "SELECT name, position, holder, held_until, fence FROM event_readers WHERE name = $1";
    TAKE "event_reader_take" =
        "UPDATE event_readers SET holder = $1, held_until = $2, fence = $3 \
         WHERE name = $4 AND fence = $5 AND held_until = $6";
    MOVE "event_reader_move" =
        "UPDATE event_readers SET position = $1 WHERE name = $2 AND fence = $3 AND position < $1";
    LEAVE "event_reader_leave" =
        "UPDATE event_readers SET held_until = $1 \
         WHERE name = $2 AND holder = $3 AND held_until > $1";
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

/// Creates the reader if it does not exist. It begins with the next event.
pub fn open(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let head = events::head(tx)?;
    tx.run(&OPEN, (name, head))
}

pub fn get(tx: &mut Tx<'_>, name: &str) -> Result<Option<EventReader>> {
    let found = tx.row::<(String, EventReader)>(&GET, name)?;
    Ok(found.map(|(_, reader)| reader))
}

/// Takes the reader or extends its lease. Returns `None` if another process holds it.
pub fn take(
    tx: &mut Tx<'_>,
    name: &str,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<EventReader>> {
    let Some(known) = get(tx, name)? else {
        return Ok(None);
    };
    let is_mine = known.holder == holder;
    if !is_mine && known.held_until > now {
        return Ok(None);
    }
    let fence = if is_mine {
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

from_row! { EventReader { position, holder, held_until, fence } }
