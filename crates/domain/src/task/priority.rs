//! Priorities of tasks.

use std::fmt;
use std::str::FromStr;

/// From the highest to the lowest, which is the order in which tasks are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Highest,
    VeryHigh,
    High,
    Medium,
    Low,
    VeryLow,
    Lowest,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a priority")]
pub struct BadPriority(pub String);

impl Priority {
    pub const ALL: [Self; 7] = [
        Self::Highest,
        Self::VeryHigh,
        Self::High,
        Self::Medium,
        Self::Low,
        Self::VeryLow,
        Self::Lowest,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Highest => "highest",
            Self::VeryHigh => "very-high",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::VeryLow => "very-low",
            Self::Lowest => "lowest",
        }
    }

    /// 0 for the highest.
    pub fn rank(self) -> u32 {
        self as u32
    }

    pub fn of_rank(rank: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.rank() == rank)
    }

    /// A client that may use a priority may use every lower priority: any of these priorities is
    /// enough.
    pub fn and_higher(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |other| *other <= self)
    }
}

impl FromStr for Priority {
    type Err = BadPriority;

    fn from_str(text: &str) -> Result<Self, BadPriority> {
        let named = Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == text);
        named.ok_or_else(|| BadPriority(text.to_owned()))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_ordered_named_and_numbered() {
        assert!(Priority::ALL.is_sorted());
        for (rank, priority) in (0..).zip(Priority::ALL) {
            assert_eq!(priority.as_str().parse(), Ok(priority));
            assert_eq!(Priority::of_rank(rank), Some(priority));
        }
        assert_eq!(Priority::of_rank(7), None);
        assert_eq!(
            "normal".parse::<Priority>(),
            Err(BadPriority("normal".to_owned()))
        );
    }

    #[test]
    fn a_higher_priority_includes_this_one() {
        let names: Vec<_> = Priority::High.and_higher().map(Priority::as_str).collect();
        assert_eq!(names, ["highest", "very-high", "high"]);
    }
}
