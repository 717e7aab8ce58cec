//! The queue's own messages about ended runs, read from the event stream.

use domain::run_outcome::OUTCOME_EXCHANGES;

use crate::engine::{Part, Result, Tx, Value, part, statements};
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
    let mut keys = vec![after.into(), until.into()];
    keys.extend(OUTCOME_EXCHANGES.map(Value::from));
    part::read(tx, &SIZES, &LIST, &keys, limit, |row| {
        Ok((row.integer(0)?, row.text(1)?.to_owned()))
    })
}
