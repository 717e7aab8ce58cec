//! Turns: of two concurrent transactions that decide about one subject, the later runs again and
//! sees what the other wrote.

use crate::engine::{error::Result, statement::statements, table::Table, tx::Tx};

static TABLE: Table = Table::unlisted("turns", 1);

statements! { TABLE;
    TAKE "turn_take" =
        "INSERT INTO turns (name, number) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET number = turns.number + 1 RETURNING number";
}

/// Takes the next turn of this name, and returns its number.
///
/// Two transactions that take a turn of one name cannot both commit on the same snapshot:
/// PostgreSQL fails the later one, which runs again; SQLite runs one after the other.
pub fn take(tx: &mut Tx<'_>, name: &str) -> Result<i64> {
    let number = tx.row(&TAKE, name)?;
    number.ok_or_else(|| tx.lost_race())
}
