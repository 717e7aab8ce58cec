//! Parameters of statements, for both drivers: whole numbers and texts.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use domain::Version;
use domain::time::Timestamp;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Longer texts are refused before they reach the database.
pub const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// All columns of the schema are whole numbers or texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Text(Cow<'a, str>),
}

impl Value<'_> {
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Integer(number) => Value::Integer(number),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
        }
    }
}

pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("all maps have texts as keys, so serialization cannot fail")
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Integer(flag.into())
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(moment: Timestamp) -> Self {
        Self::Integer(moment.as_millis())
    }
}

impl From<Version> for Value<'_> {
    fn from(version: Version) -> Self {
        Self::Integer(version.0)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *ty == Type::INT8 => number.to_sql(ty, out),
            Self::Text(text) if <&str as ToSql>::accepts(ty) => text.as_ref().to_sql(ty, out),
            Self::Integer(_) | Self::Text(_) => {
                Err(format!("the parameter has type {ty}, not the type of the value").into())
            }
        }
    }

    /// The type is checked in `to_sql`, where the value is known.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
