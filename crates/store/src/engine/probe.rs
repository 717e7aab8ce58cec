//! Checks whether the database accepts writes, and reads its clock.

use domain::time::Timestamp;

use crate::engine::{
    error::Result, error::StoreError, row::BadRow, row::Row, statement::statements, table::Table,
    tx::Tx,
};

static TABLE: Table = Table::unlisted("revisions", 1);

/// Processes share this many rows: they seldom conflict, and never leave more rows than this.
const SLOTS: u32 = 64;

statements! { TABLE;
    PUT "write_probe" = "INSERT INTO revisions (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    CLOCK "database_clock" = "SELECT CAST(CURRENT_TIMESTAMP AS TEXT)";
}

/// A moment by the clock of the database, as precisely as the database reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseTime {
    pub earliest: Timestamp,
    pub latest: Timestamp,
}

/// Writes the row of the process with this number, which is always the same one.
pub fn write(tx: &mut Tx<'_>, process: u32, now: Timestamp) -> Result<()> {
    let name = slot(process);
    tx.run(&PUT, (&name, now))
}

fn slot(process: u32) -> String {
    format!("probe {}", process % SLOTS)
}

/// The start of this transaction (PostgreSQL) or statement (SQLite) by the clock of the database.
pub fn clock(tx: &mut Tx<'_>) -> Result<DatabaseTime> {
    tx.row_with(&CLOCK, (), read_time)?
        .ok_or_else(|| StoreError::corrupt("(clock)", "now", "the database returned no time"))
}

fn read_time(row: &Row<'_>) -> Result<DatabaseTime, BadRow> {
    let text = row.text(0)?;
    parse_time(text).ok_or_else(|| BadRow(format!("{text:?} is not a time")))
}

/// SQLite returns `2026-09-21 14:13:20` in UTC. PostgreSQL adds a fraction and the offset of its
/// session: `2026-09-21 16:13:20.123456+02`.
fn parse_time(text: &str) -> Option<DatabaseTime> {
    let (date, rest) = text.split_at_checked(19)?;
    let second: Timestamp = format!("{}Z", date.replace(' ', "T")).parse().ok()?;
    let (fraction, zone) = rest.split_at(rest.find(['+', '-']).unwrap_or(rest.len()));
    let utc = second.plus_millis(-ahead_ms(zone)?);
    let Some(digits) = fraction.strip_prefix('.') else {
        let (earliest, latest) = (utc, utc.plus_millis(999));
        return Some(DatabaseTime { earliest, latest });
    };
    let millis: i64 = format!("{digits:0<3}").get(..3)?.parse().ok()?;
    let earliest = utc.plus_millis(millis);
    let latest = earliest.plus_millis(1);
    Some(DatabaseTime { earliest, latest })
}

/// How far a zone such as `+02` or `-03:30` is ahead of UTC.
fn ahead_ms(zone: &str) -> Option<i64> {
    let Some((sign, offset)) = zone.split_at_checked(1) else {
        return Some(0);
    };
    let mut parts = offset.split(':').map(|part| part.parse::<i64>().ok());
    let hours = parts.next().flatten()?;
    let minutes = parts.next().unwrap_or(Some(0))?;
    let ahead_ms = (hours * 60 + minutes) * 60_000;
    Some(if sign == "-" { -ahead_ms } else { ahead_ms })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testing::sizes_around;

    use super::*;

    #[test]
    fn any_number_of_processes_leaves_a_bounded_number_of_rows() {
        let limit = usize::try_from(SLOTS).unwrap();
        for n_processes in sizes_around("store::engine::probe::SLOTS", limit) {
            let processes = 0..u32::try_from(n_processes).unwrap();
            let rows: BTreeSet<String> = processes.map(slot).collect();
            assert_eq!(rows.len(), n_processes.min(limit));
        }
    }

    #[test]
    fn times_of_both_databases_are_parsed() {
        for (text, earliest_ms, latest_ms) in [
            ("2026-09-21 14:13:20", 0, 999),
            ("2026-09-21 14:13:20+00", 0, 999),
            ("2026-09-21 16:13:20.123456+02", 123, 124),
            ("2026-09-21 10:43:20.1-03:30", 100, 101),
            ("2026-09-21 14:13:20.05+00", 50, 51),
        ] {
            let at = |millis: i64| Timestamp::from_millis(1_790_000_000_000 + millis);
            let (earliest, latest) = (at(earliest_ms), at(latest_ms));
            let expected = DatabaseTime { earliest, latest };
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026-09-21 14:13:20+x",
            "2026-09-21 14:13:20.x",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
