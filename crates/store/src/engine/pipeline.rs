//! Statements that are sent to PostgreSQL together with the next one, instead of waiting for each
//! answer.
//!
//! The server runs them in the order in which they were given. After a failed one it refuses the
//! rest of the transaction, a commit included. So a guarded statement fails if it changes nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::future::maybe_done;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::engine::{failure::Failure, sqlite::Mode, statement::Statement, value::Value};

/// More statements are not kept back.
pub(crate) const MAX_WAITING: usize = 64;

pub(crate) type DriverResult<T> = Result<T, tokio_postgres::Error>;

/// The result that a waiting statement must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Any.
    Done,
    /// It changes a row. Otherwise another transaction has changed the row before.
    Change,
    /// Rows, which are asked for later.
    Rows,
    /// Any: it says how later statements are planned, and reads and changes no rows.
    Setting,
}

struct Waiting {
    statement: &'static Statement,
    values: Vec<Value<'static>>,
    expected: Expected,
}

struct Answered {
    statement: &'static Statement,
    values: Vec<Value<'static>>,
    rows: Vec<tokio_postgres::Row>,
}

/// Statements that a transaction has not sent yet, and answers that were not asked for yet.
#[derive(Default)]
pub(crate) struct Pipeline {
    beginning: Option<&'static str>,
    waiting: Vec<Waiting>,
    answered: Vec<Answered>,
    /// The waiting statement that failed.
    failed: Option<&'static str>,
    has_written: bool,
    /// The database would refuse a write, but a write that waits is not sent before the end.
    refuses_writes: bool,
}

/// The statements that are sent before the last one.
pub(crate) struct Prepared {
    pub(crate) beginning: Option<tokio_postgres::Statement>,
    /// The waiting statements.
    pub(crate) waiting: Vec<tokio_postgres::Statement>,
}

/// The rows, if they were asked for.
type Answer = Option<Vec<tokio_postgres::Row>>;

impl Pipeline {
    /// The transaction begins with its first statement.
    pub(crate) fn begin(&mut self, beginning: &'static str, mode: Mode) {
        *self = Self {
            beginning: Some(beginning),
            refuses_writes: mode == Mode::Read,
            ..Self::default()
        };
    }

    /// The command that begins the transaction, if the server knows nothing of it yet.
    pub(crate) fn beginning(&self) -> Option<&'static str> {
        self.beginning
    }

    pub(crate) fn is_first(&self) -> bool {
        self.beginning.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING
    }

    pub(crate) fn add(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'static>>,
        expected: Expected,
    ) -> Result<(), Failure> {
        match expected {
            Expected::Done | Expected::Change if self.refuses_writes => {
                return Err(Failure::Other("this transaction only reads".into()));
            }
            Expected::Done | Expected::Change => self.note_write(statement),
            Expected::Rows | Expected::Setting => {
                if self.is_asked(statement, &values) {
                    return Ok(());
                }
            }
        }
        self.waiting.push(Waiting {
            statement,
            values,
            expected,
        });
        Ok(())
    }

    /// Whether this read waits, or is answered.
    fn is_asked(&self, statement: &Statement, values: &[Value<'static>]) -> bool {
        let mut waiting = self.waiting.iter().map(|it| (it.statement, &it.values));
        let mut answered = self.answered.iter().map(|it| (it.statement, &it.values));
        let is_same = |(asked, with): (&Statement, &Vec<Value<'static>>)| {
            asked.name == statement.name && with == values
        };
        waiting.any(is_same) || answered.any(is_same)
    }

    /// Forgets the reads whose rows this statement may change.
    pub(crate) fn note_write(&mut self, statement: &Statement) {
        let changed = statement.changed_table();
        let stays = |read: &Statement| changed.is_some_and(|table| !read.may_name(table));
        self.answered.retain(|answered| stays(answered.statement));
        let is_read = |waiting: &Waiting| waiting.expected == Expected::Rows;
        self.waiting
            .retain(|waiting| !is_read(waiting) || stays(waiting.statement));
        self.has_written = true;
    }

    /// Anything may be changed.
    pub(crate) fn note_any_write(&mut self) {
        self.answered.clear();
        self.forget_reads();
        self.has_written = true;
    }

    /// Whether the transaction may have changed something.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Forgets reads whose rows were not asked for.
    pub(crate) fn forget_reads(&mut self) {
        self.waiting
            .retain(|waiting| waiting.expected != Expected::Rows);
    }

    /// The answer to this read, if it was given already. If the read still waits, it is forgotten,
    /// for it is sent now.
    pub(crate) fn take_rows(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Option<Vec<tokio_postgres::Row>> {
        let is_same = |name: &str, known: &[Value<'_>]| name == statement.name && known == values;
        self.waiting.retain(|waiting| {
            waiting.expected != Expected::Rows || !is_same(waiting.statement.name, &waiting.values)
        });
        let mut answered = self.answered.iter();
        let place = answered.position(|known| is_same(known.statement.name, &known.values))?;
        Some(self.answered.swap_remove(place).rows)
    }

    pub(crate) fn note_failed(&mut self, statement: &Statement) {
        self.failed = Some(statement.name);
    }

    pub(crate) fn take_failed(&mut self) -> Option<&'static str> {
        self.failed.take()
    }

    pub(crate) fn statements(&self) -> Vec<(&'static Statement, Expected)> {
        let waiting = self.waiting.iter();
        waiting
            .map(|waiting| (waiting.statement, waiting.expected))
            .collect()
    }

    /// Sends the beginning, what waits, and the last statement, before the first answer is waited
    /// for.
    pub(crate) async fn send<T>(
        &mut self,
        client: &Client,
        prepared: &Prepared,
        last: impl Future<Output = DriverResult<T>>,
    ) -> Result<T, Failure> {
        self.failed = None;
        let mut begun = pin!(maybe_done(async {
            match &prepared.beginning {
                Some(command) => client.execute(command, &[]).await.map(drop),
                None => Ok(()),
            }
        }));
        let waiting = self.waiting.iter().zip(&prepared.waiting);
        let asked = waiting.map(|(waiting, prepared)| waiting.ask(client, prepared));
        let mut asked: Vec<_> = asked.map(|asked| Box::pin(maybe_done(asked))).collect();
        let mut last = pin!(maybe_done(last));
        // The driver sends a statement when it is polled for the first time.
        poll_fn(|context| {
            let mut is_done = begun.as_mut().poll(context).is_ready();
            for each in &mut asked {
                is_done &= each.as_mut().poll(context).is_ready();
            }
            match is_done & last.as_mut().poll(context).is_ready() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        let begun = begun.as_mut().take_output();
        let answers = asked.iter_mut().map(|each| each.as_mut().take_output());
        let answers: Vec<_> = answers.flatten().collect();
        drop(asked);
        let last = last.as_mut().take_output();
        let result = match begun.expect("it was waited for") {
            Ok(()) => self
                .take_answers(answers)
                .and_then(|()| Ok(last.expect("it was waited for")?)),
            Err(error) => Err(error.into()),
        };
        if matches!(result, Err(Failure::Lost(_))) {
            // On another connection all of it may be sent again, for another snapshot.
            self.answered.clear();
        } else {
            self.beginning = None;
            self.waiting.clear();
        }
        result
    }

    /// The first failure decides: the server refused what came after it.
    fn take_answers(&mut self, answers: Vec<DriverResult<Answer>>) -> Result<(), Failure> {
        for (waiting, answer) in self.waiting.iter().zip(answers) {
            match answer {
                Err(error) => {
                    self.failed = Some(waiting.statement.name);
                    let is_guard = waiting.expected == Expected::Change;
                    return Err(match error.code() {
                        Some(&SqlState::DIVISION_BY_ZERO) if is_guard => lost_race(),
                        Some(_) | None => error.into(),
                    });
                }
                Ok(None) => {}
                Ok(Some(rows)) => self.answered.push(Answered {
                    statement: waiting.statement,
                    values: waiting.values.clone(),
                    rows,
                }),
            }
        }
        Ok(())
    }
}

/// A guarded statement has changed nothing.
pub(crate) fn lost_race() -> Failure {
    Failure::Conflict("another transaction was faster".into())
}

impl Waiting {
    async fn ask(
        &self,
        client: &Client,
        prepared: &tokio_postgres::Statement,
    ) -> DriverResult<Answer> {
        let values = parameters(&self.values);
        match self.expected {
            Expected::Rows => client.query(prepared, &values).await.map(Some),
            Expected::Done | Expected::Change | Expected::Setting => {
                client.execute(prepared, &values).await.map(|_| None)
            }
        }
    }
}

pub(crate) fn parameters<'a>(values: &'a [Value<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::statement::PLAN_FOR_VALUES;
    use crate::engine::table::Table;

    static TABLE: Table = Table::unlisted("t", 1);
    static READ: Statement = Statement::new(&TABLE, "read", "SELECT a FROM t");
    static WRITE: Statement = Statement::new(&TABLE, "write", "UPDATE t SET a = 1");
    static COUNT: Statement = Statement::new(
        &TABLE,
        "count",
        "WITH c AS (SELECT a FROM t) SELECT a FROM c",
    );

    fn waiting(pipeline: &Pipeline) -> Vec<&'static str> {
        let statements = pipeline.statements().into_iter();
        statements.map(|(statement, _)| statement.name).collect()
    }

    #[test]
    fn a_setting_waits_for_the_statement_that_it_is_for_whatever_comes_between() {
        let mut pipeline = Pipeline::default();
        pipeline.begin("BEGIN", Mode::Read);
        for _ in 0..2 {
            let added = pipeline.add(&PLAN_FOR_VALUES, Vec::new(), Expected::Setting);
            added.unwrap();
        }
        pipeline.add(&READ, Vec::new(), Expected::Rows).unwrap();
        assert_eq!(waiting(&pipeline), ["plan_for_values", "read"]);
        pipeline.note_write(&WRITE);
        assert_eq!(waiting(&pipeline), ["plan_for_values"]);
        pipeline.note_any_write();
        assert_eq!(waiting(&pipeline), ["plan_for_values"]);
    }

    #[test]
    fn a_read_with_a_common_table_is_a_read() {
        assert!(READ.only_reads() && COUNT.only_reads() && !WRITE.only_reads());
        for changing in [
            "WITH c AS (DELETE FROM t RETURNING a) SELECT a FROM c",
            "WITH c AS (UPDATE t SET a = 1 RETURNING a) SELECT a FROM c",
            "WITH c AS (SELECT 1) INSERT INTO t SELECT a FROM c",
        ] {
            assert!(!Statement::new(&TABLE, "s", changing).only_reads());
        }
    }
}
