//! The attributes of an evaluation: the names and values that conditions are compared with.

use std::fmt;

use serde::ser::{Serialize, Serializer};

/// Condition names, each with its value in one evaluation, such as `provider=ec2,
/// region=us-east-1`.
///
/// A sorted list, because it is short and so faster than a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// No attributes: only rules without conditions apply.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// The same attributes with this name set to this value.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.insert(name.into(), value.into());
        self
    }

    /// The value of a name, if it has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.iter();
        pairs.find_map(|(attributes, value)| (attributes == name).then_some(value))
    }

    /// All names with their values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn insert(&mut self, name: String, value: String) {
        match self.0.binary_search_by(|(other, _)| other.cmp(&name)) {
            Ok(index) => self.0[index].1 = value,
            Err(index) => self.0.insert(index, (name, value)),
        }
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Attributes {
    /// If a name has several values, the last one counts.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut attributes = Self::nothing();
        for (name, value) in pairs {
            attributes.insert(name.into(), value.into());
        }
        attributes
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("nothing");
        }
        for (index, (name, value)) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}
