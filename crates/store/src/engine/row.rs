//! Rows that a statement returns, for both drivers. Every value is checked when it is read.

use rusqlite::types::ValueRef;
use tokio_postgres::types::{FromSql, Type};

/// One row of an answer. Columns are counted from 0.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

/// Why a row cannot be read. Every error of a parser converts into it.
#[derive(Debug)]
pub(crate) struct BadRow(pub(crate) String);

/// Reads a row and keeps what it read.
pub(crate) type ReadRow<'f> = &'f mut dyn FnMut(&Row<'_>) -> Result<(), BadRow>;

impl<E: std::error::Error> From<E> for BadRow {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Row<'_> {
    pub(crate) fn text(&self, column: usize) -> Result<&str, BadRow> {
        self.optional_text(column)?
            .ok_or_else(|| unexpected_null(column))
    }

    pub(crate) fn optional_text(&self, column: usize) -> Result<Option<&str>, BadRow> {
        match self {
            Self::Sqlite(row) => match row.get_ref(column)? {
                ValueRef::Null => Ok(None),
                ValueRef::Text(bytes) => Ok(Some(std::str::from_utf8(bytes)?)),
                ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                    Err(BadRow(format!("column {column} is not text")))
                }
            },
            Self::Postgres(row) => Ok(row.try_get(column)?),
        }
    }

    pub(crate) fn is_null(&self, column: usize) -> Result<bool, BadRow> {
        match self {
            Self::Sqlite(row) => Ok(row.get_ref(column)? == ValueRef::Null),
            Self::Postgres(row) => Ok(row.try_get::<_, Option<AnyValue>>(column)?.is_none()),
        }
    }

    pub(crate) fn integer(&self, column: usize) -> Result<i64, BadRow> {
        self.optional_integer(column)?
            .ok_or_else(|| unexpected_null(column))
    }

    pub(crate) fn optional_integer(&self, column: usize) -> Result<Option<i64>, BadRow> {
        match self {
            Self::Sqlite(row) => match row.get_ref(column)? {
                ValueRef::Null => Ok(None),
                ValueRef::Integer(number) => Ok(Some(number)),
                ValueRef::Text(_) | ValueRef::Real(_) | ValueRef::Blob(_) => {
                    Err(BadRow(format!("column {column} is not a whole number")))
                }
            },
            Self::Postgres(row) => Ok(row.try_get(column)?),
        }
    }

    /// A whole number, if it fits into the type.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize) -> Result<T, BadRow> {
        let number = self.integer(column)?;
        T::try_from(number)
            .map_err(|_| BadRow(format!("column {column} is out of range: {number}")))
    }
}

/// A value of any type that is not read: it only shows that the column is not NULL.
struct AnyValue;

impl FromSql<'_> for AnyValue {
    fn from_sql(_: &Type, _: &[u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn unexpected_null(column: usize) -> BadRow {
    BadRow(format!("column {column} is NULL"))
}
