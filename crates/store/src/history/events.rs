//! The event stream: every committed event gets a position, and positions are assigned in order.
//!
//! A transaction of its own assigns positions and increments one row, so two processes cannot
//! assign at the same time. A reader that has seen a position has seen all lower ones, and no event
//! is ever inserted between them. An event that was written after its transaction saw another one
//! has the higher position: its number is higher, and it cannot be visible without the other.

use domain::time::Timestamp;

use crate::engine::{Part, Result, StoreError, Tx, part, statements};
use crate::history::outbox::{OutboxRow, TABLE, columns, size};

statements! { TABLE;
    HEAD "event_head" = "SELECT position FROM event_stream WHERE name = 'events'";
    MOVE_HEAD "event_move_head" =
        "UPDATE event_stream SET position = $1 WHERE name = 'events' AND position = $2";
    WAITING "event_waiting" =
        "SELECT sequence FROM outbox WHERE position IS NULL ORDER BY sequence LIMIT $1";
    LAST_WAITING "event_last_waiting" =
        "SELECT sequence FROM outbox WHERE position IS NULL ORDER BY sequence DESC LIMIT 1";
    WAITING_SIZES "event_waiting_sizes" = concat!("SELECT ", size!(),
        " FROM outbox WHERE position IS NULL ORDER BY sequence LIMIT $1");
    ASSIGN "event_position_assign" =
        "UPDATE outbox SET position = sequence + $1 \
         WHERE position IS NULL AND sequence >= $2 AND sequence <= $3";
    AFTER "event_list_after" = concat!("SELECT ", columns!(),
        " FROM outbox WHERE position > $1 ORDER BY position LIMIT $2");
    AFTER_SIZES "event_list_after_sizes" = concat!("SELECT ", size!(),
        " FROM outbox WHERE position > $1 ORDER BY position LIMIT $2");
    TIMES "event_times_after" =
        "SELECT position, created FROM outbox WHERE position > $1 ORDER BY position LIMIT $2";
    NOT_AHEAD "event_first_not_ahead" =
        "SELECT position, created FROM outbox WHERE position > $1 AND created <= $2 \
         ORDER BY position LIMIT 1";
    DELETE "event_delete_between" = "DELETE FROM outbox WHERE position > $1 AND position <= $2";
}

/// The last assigned position, or 0.
pub fn head(tx: &mut Tx<'_>) -> Result<i64> {
    let head = tx.row(&HEAD, ())?;
    head.ok_or_else(|| StoreError::corrupt("event_stream", "events", "it is missing"))
}

/// Whether any event has no position yet.
pub fn is_waiting(tx: &mut Tx<'_>) -> Result<bool> {
    tx.exists(&WAITING, 1_u32)
}

/// The number of the first event that has no position yet.
pub fn first_waiting(tx: &mut Tx<'_>) -> Result<Option<i64>> {
    tx.row(&WAITING, 1_u32)
}

/// The number of the last event that has no position yet.
pub fn last_waiting(tx: &mut Tx<'_>) -> Result<Option<i64>> {
    tx.row(&LAST_WAITING, ())
}

/// Assigns the next positions to the oldest events without one, and returns these events in order.
pub fn assign_positions(tx: &mut Tx<'_>, limit: u32) -> Result<Part<OutboxRow>> {
    let head = head(tx)?;
    let waiting: Part<i64> = part::read(tx, &WAITING_SIZES, &WAITING, (), limit)?;
    let (waiting, is_cut) = (waiting.items, waiting.is_cut);
    if waiting.is_empty() {
        let items = Vec::new();
        return Ok(Part { items, is_cut });
    }
    // This update comes first, so that two concurrent transactions conflict here and nowhere else.
    let new_head = waiting.iter().fold(head, |position, _| position + 1);
    tx.execute_guarded(&MOVE_HEAD, (new_head, head))?;
    let mut position = head;
    // Numbers rarely have gaps, so one statement usually updates all rows.
    for run in waiting.chunk_by(|left, right| left + 1 == *right) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let offset = position + 1 - first;
        tx.run(&ASSIGN, (offset, first, last))?;
        position = last + offset;
    }
    let items = tx.rows(&AFTER, (head, limit))?;
    Ok(Part { items, is_cut })
}

/// Events after this position, in order.
pub fn list_after(tx: &mut Tx<'_>, after: i64, limit: u32) -> Result<Part<OutboxRow>> {
    part::read(tx, &AFTER_SIZES, &AFTER, after, limit)
}

/// The position and the time of the first event after this position.
pub fn time_after(tx: &mut Tx<'_>, after: i64) -> Result<Option<(i64, Timestamp)>> {
    Ok(times_after(tx, after, 1)?.pop())
}

/// The position before the first event at this time or later. Events are only nearly in the order
/// of their times, so a few may be on the wrong side.
pub fn position_before(tx: &mut Tx<'_>, time: Timestamp) -> Result<i64> {
    let mut high = head(tx)?;
    let Some((first, _)) = time_after(tx, 0)? else {
        return Ok(high);
    };
    // All events up to `low` are earlier than `time`; events after `high` are not.
    let mut low = first - 1;
    while low < high {
        let middle = low + (high - low) / 2;
        match time_after(tx, middle)? {
            Some((position, then)) if then < time => low = position.min(high),
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// Which events can be deleted.
#[derive(Clone, Copy, Debug)]
pub struct Expired {
    /// Those from before this time.
    pub before: Timestamp,
    /// Those from after this time are of a clock that was ahead. They are as old as the next event
    /// from before it.
    pub ahead: Timestamp,
    /// Those up to this position: readers need the later ones.
    pub up_to: i64,
    /// Those after this position: the earlier ones are deleted. PostgreSQL would pass over the
    /// remains of each as long as a transaction that began before the deletion runs.
    pub after: i64,
}

/// Deletes at most `limit` of the oldest expired events. Returns their number, and the position of
/// the last.
pub fn delete_expired(tx: &mut Tx<'_>, expired: Expired, limit: u32) -> Result<(u64, i64)> {
    let oldest = times_after(tx, expired.after, limit)?;
    let is_old = |(position, created): &(i64, Timestamp)| {
        *created < expired.before && *position <= expired.up_to
    };
    let is_ahead = |(_, created): &(i64, Timestamp)| *created > expired.ahead;
    let first = oldest.iter().take_while(|it| is_old(it) || is_ahead(it));
    let first: Vec<_> = first.collect();
    let mut last = first.iter().rev().find(|it| is_old(it)).copied();
    // If the first ones end before the batch does, the next one was read, and is not old.
    if last.is_none()
        && first.len() == oldest.len()
        && let [.., end] = first[..]
    {
        let next: Option<(i64, Timestamp)> = tx.row(&NOT_AHEAD, (expired.after, expired.ahead))?;
        last = next.is_some_and(|next| is_old(&next)).then_some(end);
    }
    match last {
        Some((last, _)) => Ok((tx.execute(&DELETE, (expired.after, *last))?, *last)),
        None => Ok((0, expired.after)),
    }
}

fn times_after(tx: &mut Tx<'_>, after: i64, limit: u32) -> Result<Vec<(i64, Timestamp)>> {
    tx.rows(&TIMES, (after, limit))
}
