//! What comes out of a statement, for both drivers, without trusting it.

use domain::Version;
use domain::time::Timestamp;
use rusqlite::types::ValueRef;

use crate::error::StoreError;
use crate::statement::Table;

/// One row of an answer; columns count from zero.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a postgres::Row),
}

/// Why a row cannot be understood. Any error of a parser becomes one.
#[derive(Debug)]
pub(crate) struct BadRow(pub(crate) String);

impl<E: std::error::Error> From<E> for BadRow {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Row<'_> {
    pub(crate) fn text(&self, column: usize) -> Result<&str, BadRow> {
        self.optional_text(column)?.ok_or_else(|| absent(column))
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

    pub(crate) fn integer(&self, column: usize) -> Result<i64, BadRow> {
        self.optional_integer(column)?.ok_or_else(|| absent(column))
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

    /// Any whole number that the wanted type holds.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize) -> Result<T, BadRow> {
        let number = self.integer(column)?;
        T::try_from(number)
            .map_err(|_| BadRow(format!("column {column} is out of range: {number}")))
    }

    pub(crate) fn flag(&self, column: usize) -> Result<bool, BadRow> {
        Ok(self.integer(column)? != 0)
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp, BadRow> {
        self.integer(column).map(Timestamp::from_millis)
    }

    pub(crate) fn optional_time(&self, column: usize) -> Result<Option<Timestamp>, BadRow> {
        Ok(self.optional_integer(column)?.map(Timestamp::from_millis))
    }

    pub(crate) fn version(&self, column: usize) -> Result<Version, BadRow> {
        self.integer(column).map(Version)
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T, BadRow> {
        serde_json::from_str(self.text(column)?).map_err(|error| {
            BadRow(format!(
                "column {column} is not the JSON it should be: {error}"
            ))
        })
    }

    /// Names the row for people; selects list the key's columns first.
    pub(crate) fn corrupt(&self, table: &Table, BadRow(reason): BadRow) -> StoreError {
        let parts: Vec<String> = (0..table.key_columns)
            .map(
                |column| match (self.optional_text(column), self.optional_integer(column)) {
                    (Ok(Some(text)), _) => text.to_owned(),
                    (_, Ok(Some(number))) => number.to_string(),
                    _ => "?".to_owned(),
                },
            )
            .collect();
        StoreError::corrupt(table.name, parts.join(" "), reason)
    }
}

fn absent(column: usize) -> BadRow {
    BadRow(format!("column {column} is empty"))
}
