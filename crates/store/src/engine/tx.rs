//! Transactions: the reads and writes that the functions of this crate make.

use domain::audit::AuditEntry;

use crate::engine::{
    columns::Bind, columns::Cells, columns::Entity, columns::FromRow, error::Result,
    error::StoreError, failure::Failure, pipeline::Expected, row::BadRow, row::ReadRow, row::Row,
    session::Connection, session::Session, statement, statement::Statement, touched::Touches,
    value::Value,
};

/// No answer has more rows. Longer lists must be read in pages.
pub const MAX_ROWS: usize = 100_000;

/// Limit of statements that read all rows: one more than allowed, so that an excess is noticed.
pub(crate) const ALL_ROWS: u32 = 100_001;
const _: () = assert!(ALL_ROWS as usize == MAX_ROWS + 1);

/// Rows of a page, and pages, of statements that are read in pages.
const PAGE: u32 = 100_000;
const MAX_PAGES: u32 = 20;
const _: () = assert!(PAGE as usize <= MAX_ROWS);

/// Reads and writes of one transaction. The closure that gets it may run several times.
pub struct Tx<'a> {
    session: &'a mut Session,
    /// The statement that conflicted with another transaction, if one did.
    conflict: Option<&'static str>,
    has_failed: bool,
    /// Reads are only asked for, and find nothing.
    is_asking: bool,
    pub(crate) touches: Touches,
    /// Audit entries since they were taken.
    audited: Vec<AuditEntry>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(session: &'a mut Session) -> Self {
        Self {
            session,
            conflict: None,
            has_failed: false,
            is_asking: false,
            touches: Touches::default(),
            audited: Vec::new(),
        }
    }

    pub(crate) fn note_audit(&mut self, entry: &AuditEntry) {
        self.audited.push(entry.clone());
    }

    /// The audit entries that were written since the last call.
    pub fn take_audited(&mut self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.audited)
    }

    /// The next statement changes this pool, or its workers, and no other pool.
    pub(crate) fn touch(&mut self, pool: &str) {
        self.touches.next_pool(pool);
    }

    /// The next statement changes nothing that a copy of a pool shows.
    pub(crate) fn touch_nothing(&mut self) {
        self.touches.next_nothing();
    }

    /// Another transaction changed what this one has read: roll back, and run the closure again.
    ///
    /// The result of the closure is dropped. Return the error with `?`.
    pub fn lost_race(&mut self) -> StoreError {
        if !self.is_asking {
            self.conflict = Some("closure");
        }
        StoreError::LostRace
    }

    /// Lets the next statement read what this function reads, too, because it is called soon: then
    /// its rows are there.
    ///
    /// With PostgreSQL, this saves a round trip for each statement. The function runs as on an
    /// empty database, until it writes. Statements that depend on the rows of others are sent
    /// later. With SQLite, nothing is done.
    pub fn ask<T, E>(&mut self, reads: impl FnOnce(&mut Self) -> Result<T, E>) {
        if self.is_asking || !self.has_concurrent_writers() {
            return;
        }
        self.is_asking = true;
        let _nothing = reads(self);
        self.is_asking = false;
    }

    /// Lets PostgreSQL plan the next statements of this transaction for their values, with any
    /// join, for they may read most of a table. Planning takes longer than to read a few rows, so
    /// other transactions use one plan for all values. With SQLite, nothing is done.
    pub fn plan_for_values(&mut self) -> Result<()> {
        let Connection::Postgres(postgres) = &mut self.session.connection else {
            return Ok(());
        };
        let setting = &statement::PLAN_FOR_VALUES;
        let result = postgres.run_later(setting, Vec::new(), Expected::Setting);
        result.map_err(|failure| self.failed(setting, failure))
    }

    /// Concurrent transactions of one process have different numbers; those of different processes
    /// may share one. A transaction that adds to a sum writes the row of this number, so that it
    /// seldom conflicts with another.
    pub(crate) fn slot(&self) -> u32 {
        self.session.backoff.thread
    }

    /// Whether another transaction may write at the same time, with neither seeing the other's
    /// changes before both are committed.
    pub fn has_concurrent_writers(&self) -> bool {
        match &self.session.connection {
            Connection::Sqlite(_) => false,
            Connection::Postgres(_) => true,
        }
    }

    /// Ends the transaction, as some errors of SQLite do.
    #[cfg(test)]
    pub(crate) fn end_transaction(&mut self) {
        if let Connection::Sqlite(sqlite) = &self.session.connection {
            sqlite.rollback().unwrap();
        }
    }

    pub(crate) fn ping(&mut self) -> Result<()> {
        self.exists(&statement::PING, ()).map(drop)
    }

    pub(crate) fn conflict(&self) -> Option<&'static str> {
        self.conflict
    }

    /// Whether a statement failed. PostgreSQL does not commit after that, so SQLite must not
    /// either.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the number of changed rows.
    pub(crate) fn execute<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<u64> {
        self.execute_bound(statement, &bound(values))
    }

    fn execute_bound(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<u64> {
        statement.check(values)?;
        self.ensure_not_asking()?;
        self.touches.note(statement);
        let result = self.session.execute(statement, values);
        result.map_err(|failure| self.failed(statement, failure))
    }

    /// Runs a statement whose result is not needed. PostgreSQL gets it with the next statement, or
    /// with the commit.
    pub(crate) fn run<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<()> {
        self.run_later(statement, bound(values), Expected::Done)
    }

    fn run_later(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'_>>,
        expected: Expected,
    ) -> Result<()> {
        statement.check(&values)?;
        self.ensure_not_asking()?;
        self.touches.note(statement);
        let result = self.session.run_later(statement, values, expected);
        result.map_err(|failure| self.failed(statement, failure))
    }

    /// Runs a statement that changes one row if it still has the version that was read. Otherwise
    /// the transaction has lost a race.
    pub(crate) fn execute_guarded<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<()> {
        self.run_later(statement, bound(values), Expected::Change)
    }

    /// Returns `false` and changes nothing if the key exists already.
    pub(crate) fn insert(
        &mut self,
        statement: &'static Statement,
        entity: &impl Entity,
    ) -> Result<bool> {
        Ok(self.execute(statement, entity.inserted())? > 0)
    }

    /// Inserts a row, and returns whether it is new. `exists` looks for it.
    ///
    /// With PostgreSQL, ask for the look: then the answer to the insert need not be waited for. If
    /// another transaction has inserted the row since, this one has lost a race. With SQLite, the
    /// insert itself shows it.
    pub(crate) fn insert_unless<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
        exists: impl FnOnce(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        if !self.has_concurrent_writers() {
            return Ok(self.execute(statement, values)? > 0);
        }
        if exists(self)? {
            return Ok(false);
        }
        self.execute_guarded(statement, values)?;
        Ok(true)
    }

    /// Inserts a new row. If it exists already, the transaction has lost a race.
    pub(crate) fn insert_new(
        &mut self,
        statement: &'static Statement,
        entity: &impl Entity,
    ) -> Result<()> {
        self.execute_guarded(statement, entity.inserted())
    }

    /// Writes the mutable columns, unless another transaction changed the row since it was read.
    pub(crate) fn update(
        &mut self,
        statement: &'static Statement,
        entity: &impl Entity,
    ) -> Result<()> {
        self.execute_guarded(statement, entity.updated())
    }

    pub(crate) fn rows<'v, T: FromRow>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<Vec<T>> {
        self.entities(statement, bound(values))
    }

    /// `rows` without the type of its values: compiled once for each type of row.
    fn entities<T: FromRow>(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'_>>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.read_rows(statement, values, &mut |row| {
            found.push(T::read(&mut Cells::of(row))?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The rows of a statement that ends with a limit and an offset. They are read in pages of one
    /// snapshot, so they may be more than one answer has.
    pub(crate) fn rows_in_pages<'v, T: FromRow>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v> + Copy,
    ) -> Result<Vec<T>> {
        let read = |offset: i64| self.rows(statement, (values, PAGE, offset));
        in_pages(PAGE, MAX_PAGES, read)?.ok_or(StoreError::TooManyRows {
            statement: statement.name,
            limit: PAGE as usize * MAX_PAGES as usize,
        })
    }

    pub(crate) fn row<'v, T: FromRow>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<Option<T>> {
        Ok(self.rows(statement, values)?.pop())
    }

    /// The number that the statement returns, or 0 without a row.
    pub(crate) fn number<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<u64> {
        Ok(self.row(statement, values)?.unwrap_or(0))
    }

    /// Whether the statement finds a row.
    pub(crate) fn exists<'v>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
    ) -> Result<bool> {
        Ok(self.read_rows(statement, bound(values), &mut |_| Ok(()))? > 0)
    }

    pub(crate) fn row_with<'v, T>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
        read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Option<T>> {
        Ok(self.rows_with(statement, values, read)?.pop())
    }

    pub(crate) fn rows_with<'v, T>(
        &mut self,
        statement: &'static Statement,
        values: impl Bind<'v>,
        mut read: impl FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.read_rows(statement, bound(values), &mut |row| {
            found.push(read(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the number of rows.
    fn read_rows(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'_>>,
        read: ReadRow<'_>,
    ) -> Result<usize> {
        statement.check(&values)?;
        if self.is_asking {
            self.ask_for(statement, values)?;
            return Ok(0);
        }
        self.touches.note(statement);
        match self.session.rows(statement, &values, read) {
            Ok(n_rows) => bounded(statement, n_rows?),
            Err(failure) => Err(self.failed(statement, failure)),
        }
    }

    fn ask_for(&mut self, statement: &'static Statement, values: Vec<Value<'_>>) -> Result<()> {
        if !statement.only_reads() {
            return self.ensure_not_asking();
        }
        let asked = self.session.run_later(statement, values, Expected::Rows);
        asked.map_err(|failure| self.failed(statement, failure))
    }

    /// Ends a function that only asks, where it would write.
    fn ensure_not_asking(&self) -> Result<()> {
        match self.is_asking {
            true => Err(StoreError::LostRace),
            false => Ok(()),
        }
    }

    /// A lost connection ends the transaction without a commit, so running it again is safe, too.
    fn failed(&mut self, statement: &'static Statement, failure: Failure) -> StoreError {
        let name = self.session.take_failed().unwrap_or(statement.name);
        self.has_failed = true;
        if matches!(failure, Failure::Conflict(_) | Failure::Lost(_)) {
            self.conflict = Some(name);
        }
        self.session.error(name, failure)
    }
}

fn bound<'v>(values: impl Bind<'v>) -> Vec<Value<'v>> {
    let mut bound = Vec::new();
    values.bind(&mut bound);
    bound
}

/// `None`: there are more pages.
fn in_pages<T>(
    page: u32,
    most: u32,
    mut read: impl FnMut(i64) -> Result<Vec<T>>,
) -> Result<Option<Vec<T>>> {
    let mut all = Vec::new();
    for number in 0..most {
        let rows = read(i64::from(number) * i64::from(page))?;
        let is_last = rows.len() < page as usize;
        all.extend(rows);
        if is_last {
            return Ok(Some(all));
        }
    }
    Ok(None)
}

fn bounded(statement: &'static Statement, n_rows: usize) -> Result<usize> {
    if n_rows > MAX_ROWS {
        return Err(StoreError::TooManyRows {
            statement: statement.name,
            limit: MAX_ROWS,
        });
    }
    Ok(n_rows)
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_long_answer_is_read_in_pages_up_to_a_limit() {
        let (page, most) = (3_usize, 4_usize);
        let mut sizes = sizes_around("store::engine::tx::PAGE", page);
        sizes.extend(sizes_around("store::engine::tx::MAX_PAGES", page * most));
        for n_existing in sizes {
            let read = |offset: i64| {
                let first = usize::try_from(offset).unwrap();
                Ok((first..n_existing).take(page).collect::<Vec<usize>>())
            };
            let all = in_pages(3, 4, read).unwrap();
            let fits = n_existing < page * most;
            assert_eq!(all, fits.then(|| (0..n_existing).collect()), "{n_existing}");
        }
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_rows_and_an_excess_is_noticed() {
        let requested = usize::try_from(ALL_ROWS).unwrap();
        let mut sizes = sizes_around("store::engine::tx::MAX_ROWS", MAX_ROWS);
        sizes.extend(sizes_around("store::engine::tx::ALL_ROWS", requested));
        for n_existing in sizes {
            match bounded(&statement::PING, n_existing.min(requested)) {
                Ok(n_rows) => assert_eq!((n_rows, n_existing <= MAX_ROWS), (n_existing, true)),
                Err(refused) => {
                    assert!(n_existing > MAX_ROWS, "{n_existing}: {refused}");
                    let expected = "`ping` found more than 100000 rows";
                    assert_eq!(refused.to_string(), expected);
                }
            }
        }
    }
}
