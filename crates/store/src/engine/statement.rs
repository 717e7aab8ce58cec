//! Statements: one SQL text for both databases, with a name for errors and metrics.
//!
//! SQLite reads `$1` as a name and numbers the names in the order in which they appear; PostgreSQL
//! reads it as a number. Both agree if the parameters first appear in order, which a test checks
//! for every statement.
//!
//! A list is one text parameter: a JSON array of arrays, read with `json_each($1) AS v` and
//! `v.value ->> 0`. PostgreSQL has another name for this function, which is replaced here. It takes
//! each list for a hundred rows, and a table for what it held when the statement was planned. It
//! would rather read a table that was small then, and the list again for each of its rows, than
//! look up a hundred. The condition on the list, which is always true, lets it expect a single row.
//!
//! Rows whose key is in a long list are found with
//! `IN (SELECT member.value ->> 0 FROM json_each($1) AS member)`. That becomes a comparison with an
//! array: PostgreSQL looks up each member in the index. A join is planned by the size of the table,
//! which it takes for empty if it was counted before the commit that filled it.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::engine::{
    error::Result, error::StoreError, row::BadRow, row::Row, table::Table,
    table::highest_parameter, value::MAX_TEXT_BYTES, value::Value,
};

/// The text around the list in a comparison with its members.
const MEMBERS: &str = "IN (SELECT member.value ->> 0 FROM ";
const MEMBERS_END: &str = ") AS member)";

/// A list in PostgreSQL, around the function's argument.
const ELEMENTS: &str = "(SELECT e.value FROM json_array_elements(";
const EXPECTED_ONE: &str = ") AS e WHERE json_typeof(e.value) = 'array'";

pub(crate) struct Statement {
    pub(crate) name: &'static str,
    /// The table of the returned rows, to name a corrupt row.
    pub(crate) table: &'static Table,
    template: &'static str,
    sql: OnceLock<String>,
}

impl Statement {
    pub(crate) const fn new(
        table: &'static Table,
        name: &'static str,
        template: &'static str,
    ) -> Self {
        Self {
            name,
            table,
            template,
            sql: OnceLock::new(),
        }
    }

    /// The SQL text with all placeholders filled in, built once.
    pub(crate) fn sql(&self) -> &str {
        self.sql.get_or_init(|| self.table.fill(self.template))
    }

    /// Whether it changes nothing for certain.
    pub(crate) fn only_reads(&self) -> bool {
        let sql = self.template.trim_start();
        let changes = |verb| sql.contains(verb);
        sql.starts_with("SELECT")
            || sql.starts_with("WITH ")
                && !["INSERT ", "UPDATE ", "DELETE "].into_iter().any(changes)
    }

    pub(crate) fn inserts(&self) -> bool {
        self.template.trim_start().starts_with("INSERT")
    }

    /// The only table whose rows it changes; `None`: perhaps others, too.
    pub(crate) fn changed_table(&self) -> Option<&str> {
        let sql = self.sql().trim_start();
        let verbs = ["INSERT INTO ", "UPDATE ", "DELETE FROM "];
        let rest = verbs.iter().find_map(|verb| sql.strip_prefix(verb))?;
        rest.split([' ', '(']).next()
    }

    /// Whether it may read or change this table. A column or a longer name may contain the name.
    pub(crate) fn may_name(&self, table: &str) -> bool {
        self.sql().contains(table)
    }

    /// The SQL text for PostgreSQL.
    pub(crate) fn postgres_sql(&self) -> Cow<'_, str> {
        const LIST: &str = "json_each($";
        let sql = self.sql();
        if !sql.contains(LIST) {
            return Cow::Borrowed(sql);
        }
        let mut parts = sql.split(LIST);
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(')').unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let list = format!("{ELEMENTS}CAST(CAST(${number} AS TEXT) AS JSON){EXPECTED_ONE}");
            let ends = match (sql.strip_suffix(MEMBERS), rest.strip_prefix(MEMBERS_END)) {
                (Some(before), Some(after)) => Some((before.len(), after)),
                (_, _) => None,
            };
            match ends {
                Some((start, after)) => {
                    sql.truncate(start);
                    let array =
                        format!("= ANY (ARRAY(SELECT member.value ->> 0 FROM {list}) AS member))");
                    sql.push_str(&array);
                    sql.push_str(after);
                }
                None => {
                    sql.push_str(&list);
                    sql.push_str(rest);
                }
            }
        }
        Cow::Owned(sql)
    }

    /// The SQL text for PostgreSQL that fails if the statement changes nothing: a commit that was
    /// sent with it then commits nothing.
    pub(crate) fn guarded_sql(&self) -> String {
        let sql = self.postgres_sql();
        format!("WITH changed AS ({sql} RETURNING 1) SELECT 1 / COUNT(*) FROM changed")
    }

    /// Refuses values that one of the databases would refuse, so that both behave the same.
    pub(crate) fn check(&self, values: &[Value<'_>]) -> Result<()> {
        for value in values {
            let reason = match value {
                Value::Text(text) if text.len() > MAX_TEXT_BYTES => "it is too long",
                Value::Text(text) if text.contains('\0') => "it contains a NUL character",
                Value::Text(_) | Value::Integer(_) | Value::Null => continue,
            };
            return Err(StoreError::BadText {
                statement: self.name,
                reason,
            });
        }
        Ok(())
    }

    /// The error for a corrupt row, which it names by its key.
    pub(crate) fn corrupt(&self, row: &Row<'_>, BadRow(reason): BadRow) -> StoreError {
        let parts: Vec<String> = (0..self.table.n_key_columns())
            .map(
                |column| match (row.optional_text(column), row.optional_integer(column)) {
                    (Ok(Some(text)), _) => text.to_owned(),
                    (_, Ok(Some(number))) => number.to_string(),
                    _ => "?".to_owned(),
                },
            )
            .collect();
        StoreError::corrupt(self.table.name, parts.join(" "), reason)
    }

    /// The highest number of a parameter.
    pub(crate) fn n_parameters(&self) -> usize {
        highest_parameter(self.sql())
    }
}

/// Declares the statements of a file, and the list of them (see `statements.rs`).
macro_rules! statements {
    ($table:expr; $($constant:ident $name:literal = $sql:expr;)+) => {
        $(static $constant: $crate::engine::statement::Statement =
            $crate::engine::statement::Statement::new(&$table, $name, $sql);)+
        pub(crate) static STATEMENTS: &[&$crate::engine::statement::Statement] = &[$(&$constant),+];
    };
}
pub(crate) use statements;

/// The highest character: it sorts after every stored name.
pub(crate) const AFTER_ALL: &str = "\u{10FFFF}";

pub(crate) static PING: Statement =
    Statement::new(&Table::unlisted("(none)", 0), "ping", "SELECT 1");

/// Until the end of the transaction, PostgreSQL plans each statement for its values, and may read
/// and join tables in any way.
pub(crate) static PLAN_FOR_VALUES: Statement = Statement::new(
    &Table::unlisted("(none)", 0),
    "plan_for_values",
    "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), \
     set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true), \
     set_config('enable_material', 'on', true), set_config('enable_bitmapscan', 'on', true)",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn list(number: u32) -> String {
        format!(
            "(SELECT e.value FROM json_array_elements(CAST(CAST(${number} AS TEXT) AS JSON)) AS e \
             WHERE json_typeof(e.value) = 'array')"
        )
    }

    #[test]
    fn postgresql_reads_lists_with_another_function() {
        static TABLE: Table = Table::unlisted("t", 1);
        let sql = "SELECT a FROM t, json_each($1) AS v, json_each($2) AS w WHERE b = $3";
        let statement = Statement::new(&TABLE, "s", sql);
        assert_eq!(
            statement.postgres_sql(),
            format!(
                "SELECT a FROM t, {} AS v, {} AS w WHERE b = $3",
                list(1),
                list(2)
            )
        );
        let statement = Statement::new(&TABLE, "s", "SELECT 1");
        assert_eq!(statement.postgres_sql(), "SELECT 1");
    }

    #[test]
    fn postgresql_compares_keys_with_an_array_of_the_members_of_a_list() {
        static TABLE: Table = Table::unlisted("t", 1);
        let sql = "SELECT a FROM t WHERE b IN (SELECT member.value ->> 0 FROM json_each($1) AS \
                   member) AND c IN (SELECT v.value ->> 0 FROM json_each($2) AS v)";
        assert_eq!(
            Statement::new(&TABLE, "s", sql).postgres_sql(),
            format!(
                "SELECT a FROM t WHERE b = ANY (ARRAY(SELECT member.value ->> 0 FROM {} AS member)) \
                 AND c IN (SELECT v.value ->> 0 FROM {} AS v)",
                list(1),
                list(2)
            )
        );
    }

    #[test]
    fn the_changed_table_is_known_unless_a_statement_may_change_others() {
        static TABLE: Table = Table::unlisted("t", 1);
        for (sql, changed) in [
            ("INSERT INTO waits (a) VALUES ($1)", Some("waits")),
            ("INSERT INTO waits(a) SELECT a FROM costs", Some("waits")),
            ("UPDATE waits SET a = 1", Some("waits")),
            (
                " DELETE FROM waits WHERE a IN (SELECT b FROM costs)",
                Some("waits"),
            ),
            (
                "WITH c AS (DELETE FROM waits RETURNING a) INSERT INTO costs SELECT a FROM c",
                None,
            ),
            ("SELECT a FROM waits", None),
        ] {
            let statement = Statement::new(&TABLE, "s", sql);
            assert_eq!(statement.changed_table(), changed, "{sql}");
            assert!(statement.may_name("waits"));
            assert!(!statement.may_name("launches"));
        }
    }
}
