//! The queue's own messages about runs that stopped waiting, read from the event stream.

use domain::waits::WAIT_EXCHANGES;

use crate::engine::{Part, Result, Tx, part, statements};
use crate::history::outbox::{TABLE, size};

macro_rules! wait_messages {
    () => {
        " FROM outbox WHERE position > $1 AND position <= $2 AND topic IN ($3, $4) \
         ORDER BY position LIMIT $5"
    };
}

statements! { TABLE;
    LIST "wait_message_list" = concat!("SELECT position, payload", wait_messages!());
    SIZES "wait_message_sizes" = concat!("SELECT ", size!(), wait_messages!());
}

/// Messages with positions after `after`, up to `until`, in order. The database reads all events in
/// this range, so keep it short.
pub fn list(tx: &mut Tx<'_>, after: i64, until: i64, limit: u32) -> Result<Part<(i64, String)>> {
    let exchanges: (&str, &str) = WAIT_EXCHANGES.into();
    part::read(tx, &SIZES, &LIST, (after, until, exchanges), limit)
}
