//! Texts in replies, read with the parsers of their types.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};

/// Reads a text with the parser of its type.
pub(crate) fn parsed<'de, D, T>(text: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(text)?.parse().map_err(D::Error::custom)
}

pub(crate) fn parsed_if_any<'de, D, T>(text: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Option::<String>::deserialize(text)?;
    let parsed = text.map(|text| text.parse().map_err(D::Error::custom));
    parsed.transpose()
}
