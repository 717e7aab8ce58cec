//! The stream of events: every committed event has a place in it, and places are given in order.
//!
//! Giving places is a write of its own that counts up one row, so two processes that do it at once do it
//! one after the other: whoever has seen a place has seen all before it, and nothing is ever put in between.
//! A change that saw another has the later place, since it was numbered later and cannot be seen without it.

use domain::time::Timestamp;

use crate::engine::error::StoreError;
use crate::engine::part::{self, Part};
use crate::engine::statement::statements;
use crate::engine::tx::Tx;
use crate::history::outbox::{OutboxRow, TABLE, columns, outbox_row, size};

statements! { TABLE;
    HEAD "event_head" = "SELECT position FROM event_stream WHERE name = 'events'";
    MOVE_HEAD "event_move_head" =
        "UPDATE event_stream SET position = $1 WHERE name = 'events' AND position = $2";
    WAITING "event_waiting" =
        "SELECT sequence FROM outbox WHERE position IS NULL ORDER BY sequence LIMIT $1";
    WAITING_SIZES "event_waiting_sizes" = concat!("SELECT ", size!(),
        " FROM outbox WHERE position IS NULL ORDER BY sequence LIMIT $1");
    PLACE "event_place" =
        "UPDATE outbox SET position = sequence + $1 \
         WHERE position IS NULL AND sequence >= $2 AND sequence <= $3";
    AFTER "event_list_after" = concat!("SELECT ", columns!(),
        " FROM outbox WHERE position > $1 ORDER BY position LIMIT $2");
    AFTER_SIZES "event_list_after_sizes" = concat!("SELECT ", size!(),
        " FROM outbox WHERE position > $1 ORDER BY position LIMIT $2");
    TIMES "event_times_after" =
        "SELECT position, created FROM outbox WHERE position > $1 ORDER BY position LIMIT $2";
    DELETE "event_delete_until" = "DELETE FROM outbox WHERE position <= $1";
}

/// The last place that was given away; 0 if none was.
pub fn head(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    let head = tx.row(&HEAD, &[], |row| row.integer(0))?;
    head.ok_or_else(|| {
        StoreError::corrupt("event_stream", "events".to_owned(), "it is gone".to_owned())
    })
}

/// Whether some event has no place yet.
pub fn is_waiting(tx: &mut Tx<'_>) -> Result<bool, StoreError> {
    let first = tx.row(&WAITING, &[1_u32.into()], |row| row.integer(0))?;
    Ok(first.is_some())
}

/// Gives the oldest events that have no place the next ones, and returns them in their order.
pub fn place(tx: &mut Tx<'_>, limit: u32) -> Result<Part<OutboxRow>, StoreError> {
    let head = head(tx)?;
    let Part {
        items: waiting,
        is_cut,
    } = part::read(tx, &WAITING_SIZES, &WAITING, &[], limit, |row| {
        row.integer(0)
    })?;
    if waiting.is_empty() {
        return Ok(Part {
            items: Vec::new(),
            is_cut,
        });
    }
    // First of all, so that two who place at once meet here and nowhere else.
    let new_head = waiting.iter().fold(head, |place, _| place + 1);
    tx.execute_guarded(&MOVE_HEAD, &[new_head.into(), head.into()])?;
    let mut place = head;
    // Numbers are nearly always without gaps, so that one statement does for all of them.
    for run in waiting.chunk_by(|left, right| left + 1 == *right) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let offset = place + 1 - first;
        tx.execute(&PLACE, &[offset.into(), first.into(), last.into()])?;
        place = last + offset;
    }
    let items = tx.rows(&AFTER, &[head.into(), limit.into()], outbox_row)?;
    Ok(Part { items, is_cut })
}

/// Events after this place, in order.
pub fn list_after(tx: &mut Tx<'_>, after: i64, limit: u32) -> Result<Part<OutboxRow>, StoreError> {
    part::read(tx, &AFTER_SIZES, &AFTER, &[after.into()], limit, outbox_row)
}

/// The place and the time of the first event after this place.
pub fn time_after(tx: &mut Tx<'_>, after: i64) -> Result<Option<(i64, Timestamp)>, StoreError> {
    Ok(times_after(tx, after, 1)?.pop())
}

/// The place before the first event that happened at this time or later. Events are nearly in the order of
/// their times, so a few may lie on the wrong side.
pub fn place_before(tx: &mut Tx<'_>, time: Timestamp) -> Result<i64, StoreError> {
    let mut high = head(tx)?;
    let Some((first, _)) = time_after(tx, 0)? else {
        return Ok(high);
    };
    // All up to `low` are earlier; what comes after `high` is not.
    let mut low = first - 1;
    while low < high {
        let middle = low + (high - low) / 2;
        match time_after(tx, middle)? {
            Some((place, then)) if then < time => low = place.min(high),
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// Forgets events that are older than this, of the oldest so many, but none after the place `keep_after`.
pub fn delete_before(
    tx: &mut Tx<'_>,
    before: Timestamp,
    keep_after: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let oldest = times_after(tx, 0, limit)?;
    let old = oldest
        .iter()
        .take_while(|(place, created)| *created < before && *place <= keep_after);
    match old.last() {
        Some((last, _)) => tx.execute(&DELETE, &[(*last).into()]),
        None => Ok(0),
    }
}

fn times_after(
    tx: &mut Tx<'_>,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Timestamp)>, StoreError> {
    tx.rows(&TIMES, &[after.into(), limit.into()], |row| {
        Ok((row.integer(0)?, row.time(1)?))
    })
}
