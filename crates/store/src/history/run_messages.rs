//! The queue's own messages about ended runs, read from the event stream.

use domain::run_outcome::OUTCOME_EXCHANGES;

use crate::engine::{Part, Result, Tx, part, statements};
use crate::history::outbox::{TABLE, size};

macro_rules! outcome_messages {
    () => {
        " FROM outbox WHERE position > $1 AND position <= $2 AND topic IN ($3, $4, $5, $6) \
         ORDER BY position LIMIT $7"
    };
}

statements! { TABLE;
    LIST "run_message_list" = concat!("SELECT position, payload", outcome_messages!());
    SIZES "run_message_sizes" = concat!("SELECT ", size!(), outcome_messages!());
}

/// Messages with positions after `after`, up to `until`, in order. The database reads all events in
/// this range, so keep it short.
pub fn list(tx: &mut Tx<'_>, after: i64, until: i64, limit: u32) -> Result<Part<(i64, String)>> {
    let exchanges: (&str, &str, &str, &str) = OUTCOME_EXCHANGES.into();
    part::read(tx, &SIZES, &LIST, (after, until, exchanges), limit)
}
