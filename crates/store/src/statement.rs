//! One SQL text for both databases, with a name for errors and metrics.
//!
//! SQLite takes `$1` for a name and numbers names as they appear; PostgreSQL takes it for a number. Both
//! agree when the parameters first appear in order, which a test checks for every statement here.
//!
//! A list goes into a statement as one text: a JSON array of arrays, read with `json_each($1) AS v` and
//! `v.value ->> 0`. PostgreSQL has another name for that function, which is put in here.

use std::borrow::Cow;

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
    pub(crate) fn n_parameters(&self) -> usize {
        self.parameters().max().unwrap_or(0)
    }

    /// The numbers of the parameters as they appear.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = usize> {
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

/// Declares the statements of a file, and the list of them (see `all_statements.rs`).
macro_rules! statements {
    ($table:expr; $($constant:ident $name:literal = $sql:expr;)+) => {
        $(static $constant: $crate::statement::Statement =
            $crate::statement::Statement::new(&$table, $name, $sql);)+
        pub(crate) static STATEMENTS: &[&$crate::statement::Statement] = &[$(&$constant),+];
    };
}
pub(crate) use statements;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
