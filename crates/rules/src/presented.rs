//! What is presented to a rule set: the names and values that its conditions are held against.

use std::fmt;

use serde::ser::{Serialize, Serializer};

/// Condition names with the value that each has in one evaluation, such as `provider=ec2, region=us-east-1`.
///
/// They are few, so that a sorted list is faster than a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Presented(Vec<(String, String)>);

impl Presented {
    /// Presents nothing: only rules without conditions apply.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// The same, with this name presented too (or with another value).
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.insert(name.into(), value.into());
        self
    }

    /// The value presented under a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.iter();
        pairs.find_map(|(presented, value)| (presented == name).then_some(value))
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

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Presented {
    /// Of several values under one name, the last counts.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut presented = Self::nothing();
        for (name, value) in pairs {
            presented.insert(name.into(), value.into());
        }
        presented
    }
}

impl Serialize for Presented {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl fmt::Display for Presented {
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
