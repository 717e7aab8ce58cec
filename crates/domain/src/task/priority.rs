//! Priorities of tasks.

use crate::id::names;

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

names! {
    Priority, "not a priority",
    Highest = "highest",
    VeryHigh = "very-high",
    High = "high",
    Medium = "medium",
    Low = "low",
    VeryLow = "very-low",
    Lowest = "lowest",
}

impl Priority {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BadName;

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
            Err(BadName {
                text: "normal".to_owned(),
                what: "not a priority",
            })
        );
    }

    #[test]
    fn a_higher_priority_includes_this_one() {
        let names: Vec<_> = Priority::High.and_higher().map(Priority::as_str).collect();
        assert_eq!(names, ["highest", "very-high", "high"]);
    }
}
