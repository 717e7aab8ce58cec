//! A transaction as the functions of this crate see it.

use crate::engine::columns::Entity;
use crate::engine::error::StoreError;
use crate::engine::failure::Failure;
use crate::engine::row::{BadRow, Row};
use crate::engine::session::{Connection, Session};
use crate::engine::statement::{self, Statement};
use crate::engine::value::Value;

/// No single answer holds more rows; whatever can be longer is paged.
pub const MAX_ROWS: usize = 100_000;

/// The limit of statements whose callers want everything: one more than is allowed, so that it shows.
pub(crate) const ALL_ROWS: u32 = 100_001;
const _: () = assert!(ALL_ROWS as usize == MAX_ROWS + 1);

/// Reads and writes of one transaction. The closure that gets it may run several times.
pub struct Tx<'a> {
    session: &'a mut Session,
    /// The statement at which it showed that all of this must run again.
    conflict: Option<&'static str>,
    spoiled: bool,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(session: &'a mut Session) -> Self {
        Self {
            session,
            conflict: None,
            spoiled: false,
        }
    }

    /// Somebody else changed what this transaction had read: roll back and run all of it again.
    ///
    /// Whatever the closure returns is dropped; the error is there to be returned with `?`.
    pub fn lost_race(&mut self) -> StoreError {
        self.lost_race_at("closure")
    }

    fn lost_race_at(&mut self, statement: &'static str) -> StoreError {
        self.conflict = Some(statement);
        StoreError::LostRace
    }

    /// Of transactions that run at once in one process, each has another number; those of several processes may
    /// share one. Whoever only adds to a sum writes the row of this number, and is in nobody's way.
    pub(crate) fn slot(&self) -> u32 {
        self.session.pause.thread
    }

    /// Whether others may write at the same time, unseen by this transaction until both have been committed.
    pub fn has_rivals(&self) -> bool {
        match &self.session.connection {
            Connection::Sqlite(_) => false,
            Connection::Postgres(_) => true,
        }
    }

    pub(crate) fn ping(&mut self) -> Result<(), StoreError> {
        self.rows(&statement::PING, &[], |_| Ok(())).map(drop)
    }

    pub(crate) fn conflict(&self) -> Option<&'static str> {
        self.conflict
    }

    /// A statement failed: PostgreSQL will not commit any more, so neither database may.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Returns how many rows changed.
    pub(crate) fn execute(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<u64, StoreError> {
        statement.check(values)?;
        let result = self.session.execute(statement, values);
        result.map_err(|failure| self.failed(statement, failure))
    }

    /// For statements that change one row if its version is still the one that was read.
    pub(crate) fn execute_guarded(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<(), StoreError> {
        match self.execute(statement, values)? {
            0 => Err(self.lost_race_at(statement.name)),
            _ => Ok(()),
        }
    }

    /// `false` if there is one of this key already; nothing changes then.
    pub(crate) fn insert(
        &mut self,
        statement: &'static Statement,
        entity: &impl Entity,
    ) -> Result<bool, StoreError> {
        Ok(self.execute(statement, &entity.inserted())? > 0)
    }

    /// Writes what can change, if nobody changed it since it was read.
    pub(crate) fn update(
        &mut self,
        statement: &'static Statement,
        entity: &impl Entity,
    ) -> Result<(), StoreError> {
        self.execute_guarded(statement, &entity.updated())
    }

    pub(crate) fn rows<T>(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Vec<T>, StoreError> {
        statement.check(values)?;
        let rows = match self.session.rows(statement, values, &mut read) {
            Ok(rows) => rows?,
            Err(failure) => return Err(self.failed(statement, failure)),
        };
        bounded(statement, rows)
    }

    pub(crate) fn row<T>(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
        read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(statement, values, read)?.pop())
    }

    /// A lost connection took the whole transaction with it, so running it again is safe, too.
    fn failed(&mut self, statement: &'static Statement, failure: Failure) -> StoreError {
        self.spoiled = true;
        if matches!(failure, Failure::Conflict(_) | Failure::Lost(_)) {
            self.conflict = Some(statement.name);
        }
        self.session.error(statement.name, failure)
    }
}

fn bounded<T>(statement: &'static Statement, rows: Vec<T>) -> Result<Vec<T>, StoreError> {
    if rows.len() > MAX_ROWS {
        return Err(StoreError::TooMany {
            statement: statement.name,
            limit: MAX_ROWS,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn an_answer_has_so_many_rows_and_what_is_asked_for_shows_whether_there_are_more() {
        let asked_for = usize::try_from(ALL_ROWS).unwrap();
        let mut sizes = sizes_around("store::engine::tx::MAX_ROWS", MAX_ROWS);
        sizes.extend(sizes_around("store::engine::tx::ALL_ROWS", asked_for));
        for n_there in sizes {
            let answer = vec![(); n_there.min(asked_for)];
            match bounded(&statement::PING, answer) {
                Ok(rows) => assert_eq!((rows.len(), n_there <= MAX_ROWS), (n_there, true)),
                Err(refused) => {
                    assert!(n_there > MAX_ROWS, "{n_there}: {refused}");
                    let expected = "`ping` found more than 100000 rows";
                    assert_eq!(refused.to_string(), expected);
                }
            }
        }
    }
}
