//! One SQL text for both databases, with a name for errors and metrics.
//!
//! SQLite takes `$1` for a name and numbers names as they appear; PostgreSQL takes it for a number. Both
//! agree when the parameters first appear in order, which a test checks for every statement here.
//!
//! A list goes into a statement as one text: a JSON array of arrays, read with `json_each($1) AS v` and
//! `v.value ->> 0`. PostgreSQL has another name for that function, which is put in here.

use std::borrow::Cow;

use crate::error::StoreError;
use crate::session::Session;
use crate::sqlite::Mode;

pub(crate) struct Statement {
    pub(crate) name: &'static str,
    /// Where the rows of the answer come from, to say which one is corrupt.
    pub(crate) table: &'static Table,
    pub(crate) sql: &'static str,
}

impl Statement {
    pub(crate) const fn new(table: &'static Table, name: &'static str, sql: &'static str) -> Self {
        Self { name, table, sql }
    }

    pub(crate) fn inserts(&self) -> bool {
        self.sql.trim_start().starts_with("INSERT")
    }

    /// The text as PostgreSQL knows it.
    pub(crate) fn postgres_sql(&self) -> Cow<'static, str> {
        const LIST: &str = "json_each($";
        if !self.sql.contains(LIST) {
            return Cow::Borrowed(self.sql);
        }
        let mut parts = self.sql.split(LIST);
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(')').unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let list = format!("json_array_elements(CAST(CAST(${number} AS TEXT) AS JSON)");
            sql.push_str(&list);
            sql.push_str(rest);
        }
        Cow::Owned(sql)
    }

    /// The highest number after a `$`.
    fn n_parameters(&self) -> usize {
        self.parameters().max().unwrap_or(0)
    }

    /// The numbers of the parameters as they appear.
    fn parameters(&self) -> impl Iterator<Item = usize> {
        self.sql.split('$').skip(1).map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit);
            digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
        })
    }
}

pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// How many columns at the start of an answer name the row.
    pub(crate) key_columns: usize,
}

/// Declares the statements of a file and the list by which tests and `check_all` find them all.
macro_rules! statements {
    ($table:expr; $($constant:ident $name:literal = $sql:expr;)+) => {
        $(static $constant: $crate::statement::Statement =
            $crate::statement::Statement::new(&$table, $name, $sql);)+
        pub(crate) static STATEMENTS: &[&$crate::statement::Statement] = &[$(&$constant),+];
    };
}
pub(crate) use statements;

/// Every statement of this crate, grouped by the file that owns it.
pub(crate) static ALL: &[&[&Statement]] = &[
    &[&PING],
    crate::migration::STATEMENTS,
    crate::access_revision::STATEMENTS,
    crate::client::STATEMENTS,
    crate::role::STATEMENTS,
    crate::cache_purge::STATEMENTS,
    crate::pool::STATEMENTS,
    crate::launch_config::STATEMENTS,
    crate::worker::STATEMENTS,
    crate::worker_list::STATEMENTS,
    crate::worker_counts::STATEMENTS,
    crate::worker_supply::STATEMENTS,
    crate::worker_running::STATEMENTS,
    crate::launch::STATEMENTS,
    crate::launch_health::STATEMENTS,
    crate::plan_record::STATEMENTS,
    crate::overrides::STATEMENTS,
    crate::turn::STATEMENTS,
    crate::worker_error::STATEMENTS,
    crate::error_stats::STATEMENTS,
    crate::queue_worker::STATEMENTS,
    crate::claimant::STATEMENTS,
    crate::task::STATEMENTS,
    crate::task_pending::STATEMENTS,
    crate::task_claimed::STATEMENTS,
    crate::task_dependency::STATEMENTS,
    crate::task_group::STATEMENTS,
    crate::task_expiry::STATEMENTS,
    crate::task_queue::STATEMENTS,
    crate::artifact::STATEMENTS,
    crate::artifact_run::STATEMENTS,
    crate::worker_metadata::STATEMENTS,
    crate::outbox::STATEMENTS,
    crate::event_stream::STATEMENTS,
    crate::event_reader::STATEMENTS,
    crate::run_outcome::STATEMENTS,
    crate::run_outcome_trim::STATEMENTS,
    crate::run_count::STATEMENTS,
    crate::run_message::STATEMENTS,
    crate::notice::STATEMENTS,
    crate::notice_cause::STATEMENTS,
    crate::audit::STATEMENTS,
    crate::configuration::STATEMENTS,
    crate::worker_type::STATEMENTS,
    crate::documentation::STATEMENTS,
    crate::write_probe::STATEMENTS,
];

/// Comes after every name that is stored: the highest character there is.
pub(crate) const AFTER_ALL: &str = "\u{10FFFF}";

pub(crate) static PING: Statement = Statement::new(
    &Table {
        name: "(none)",
        key_columns: 0,
    },
    "ping",
    "SELECT 1",
);

/// Prepares all of them, as the first use would; returns how many there are.
pub(crate) fn check_all(session: &mut Session) -> Result<usize, StoreError> {
    session
        .begin(Mode::Read)
        .map_err(|failure| session.error("begin", failure))?;
    let checked = ALL
        .iter()
        .copied()
        .flatten()
        .try_fold(0, |n_checked, statement| {
            let n_seen = session
                .prepare(statement)
                .map_err(|failure| session.error(statement.name, failure))?;
            if n_seen != statement.n_parameters() {
                let source = format!("the database sees {n_seen} parameters").into();
                return Err(StoreError::Query {
                    statement: statement.name,
                    source,
                });
            }
            Ok(n_checked + 1)
        });
    session.rollback();
    checked
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn parameters_first_appear_in_order_without_gaps() {
        for statement in ALL.iter().copied().flatten() {
            let mut highest = 0;
            for number in statement.parameters() {
                assert!(
                    number <= highest + 1,
                    "{}: ${number} comes too early",
                    statement.name
                );
                highest = highest.max(number);
                assert!(number > 0, "{}: $ without a number", statement.name);
            }
        }
    }

    #[test]
    fn a_list_has_another_function_in_postgresql() {
        static TABLE: Table = Table {
            name: "t",
            key_columns: 1,
        };
        let sql = "SELECT a FROM t, json_each($1) AS v, json_each($2) AS w WHERE b = $3";
        let statement = Statement::new(&TABLE, "s", sql);
        assert_eq!(
            statement.postgres_sql(),
            "SELECT a FROM t, json_array_elements(CAST(CAST($1 AS TEXT) AS JSON)) AS v, \
             json_array_elements(CAST(CAST($2 AS TEXT) AS JSON)) AS w WHERE b = $3"
        );
        let statement = Statement::new(&TABLE, "s", "SELECT 1");
        assert_eq!(statement.postgres_sql(), "SELECT 1");
    }

    #[test]
    fn names_are_unique() {
        let mut names = HashSet::new();
        for statement in ALL.iter().copied().flatten() {
            assert!(
                names.insert(statement.name),
                "{} is there twice",
                statement.name
            );
        }
    }

    #[test]
    fn no_statement_reads_the_clock_of_the_database_or_locks_rows() {
        // But the one that compares that clock with ours.
        let all = ALL.iter().copied().flatten();
        for statement in all.filter(|statement| statement.name != "database_clock") {
            let sql = statement.sql.to_ascii_lowercase();
            for banned in [
                "now()",
                "current_timestamp",
                "for update",
                "skip locked",
                "random()",
            ] {
                assert!(!sql.contains(banned), "{} uses {banned}", statement.name);
            }
        }
    }
}
