//! How the databases run statements, and how many rows their tables have: for tests.

use std::collections::BTreeMap;

use domain::time::Timestamp;

use crate::engine::{
    error::Result,
    failure::Failure,
    postgres_session::PostgresSession,
    session::{Connection, Session},
    sqlite::Mode,
    statement::Statement,
};

/// Where a statement takes a text, or a list of rows.
const POOL: &str = "year/pool-7";
const LIST: &str = r#"[["year/pool-7","zone-1","i-7"]]"#;

/// How a database runs a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub statement: &'static str,
    pub sql: String,
    /// The lines of the plan, as the database prints them.
    pub lines: Vec<String>,
}

/// How PostgreSQL joins tables. SQLite always looks rows up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// The rows of the second table are looked up for each row of the first, as in nearly all
    /// transactions.
    Lookups,
    /// Both tables are read, as far as the conditions on each of them allow. A transaction that
    /// plans for its values may choose this.
    Reads,
}

impl Joins {
    fn settings(self) -> &'static str {
        match self {
            Self::Lookups => "",
            Self::Reads => {
                "SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; \
                 SET LOCAL enable_material = on; SET LOCAL enable_bitmapscan = on; \
                 SET LOCAL enable_nestloop = off; "
            }
        }
    }
}

/// Explains statements with the values that they would have in a year-old database.
pub(crate) fn explain(
    session: &mut Session,
    statements: impl Iterator<Item = &'static Statement>,
    joins: Joins,
    now: Timestamp,
) -> Result<Vec<Explanation>> {
    session.once("explain", Mode::Read, |session| {
        let explained = statements.map(|statement| explain_one(session, statement, joins, now));
        explained.collect()
    })
}

fn explain_one(
    session: &mut Session,
    statement: &'static Statement,
    joins: Joins,
    now: Timestamp,
) -> Result<Explanation> {
    let sql = statement.sql();
    let lines = match &mut session.connection {
        Connection::Sqlite(sqlite) => sqlite.lines(&format!("EXPLAIN QUERY PLAN {sql}")),
        Connection::Postgres(postgres) => explain_in_postgres(postgres, statement, joins, now),
    };
    Ok(Explanation {
        statement: statement.name,
        sql: sql.to_owned(),
        lines: lines.map_err(|failure| session.error(statement.name, failure))?,
    })
}

/// Connections keep one plan of each statement, for all values, but `EXPLAIN` needs some.
fn explain_in_postgres(
    postgres: &mut PostgresSession,
    statement: &Statement,
    joins: Joins,
    now: Timestamp,
) -> Result<Vec<String>, Failure> {
    let (name, sql) = (statement.name, statement.postgres_sql());
    let joins = joins.settings();
    postgres.batch(&format!("{joins}PREPARE {name} AS {sql}"))?;
    let types = postgres.lines(&format!(
        "SELECT unnest(parameter_types) FROM pg_prepared_statements WHERE name = '{name}'"
    ))?;
    let values = types.iter().zip(1..).map(|(name, number)| {
        let is = |before: &str, after: &str| sql.contains(&format!("{before}${number}{after}"));
        match name.as_str() {
            "bigint" if is("LIMIT ", "") => "100".to_owned(),
            "bigint" => now.as_millis().to_string(),
            _ if is("CAST(CAST(", " AS TEXT)") => format!("'{LIST}'"),
            _ => format!("'{POOL}'"),
        }
    });
    let values: Vec<String> = values.collect();
    let values = match values.is_empty() {
        true => String::new(),
        false => format!("({})", values.join(", ")),
    };
    let lines = postgres.lines(&format!("EXPLAIN EXECUTE {name}{values}"))?;
    postgres.batch(&format!("DEALLOCATE {name}"))?;
    Ok(lines)
}

/// The number of rows of each table.
pub(crate) fn count_rows(session: &mut Session) -> Result<BTreeMap<String, u64>> {
    session.once("count_rows", Mode::Read, |session| {
        let tables = match &session.connection {
            Connection::Sqlite(_) => "SELECT name FROM sqlite_master WHERE type = 'table'",
            Connection::Postgres(_) => {
                "SELECT relname FROM pg_class WHERE relkind = 'r' \
                 AND relnamespace = CAST(current_schema() AS regnamespace)"
            }
        };
        let tables = lines(session, tables)?;
        let counts = tables.into_iter().map(|table| {
            let count = lines(session, &format!("SELECT COUNT(*) FROM {table}"))?;
            let count = count.first().and_then(|count| count.parse().ok());
            Ok((table, count.unwrap_or(0)))
        });
        counts.collect()
    })
}

/// The last column of each row, as text.
fn lines(session: &mut Session, sql: &str) -> Result<Vec<String>> {
    let lines: Result<Vec<String>, Failure> = match &mut session.connection {
        Connection::Sqlite(sqlite) => sqlite.lines(sql),
        Connection::Postgres(postgres) => postgres.lines(sql),
    };
    lines.map_err(|failure| session.error("explain", failure))
}
