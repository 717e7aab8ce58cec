//! The notes of an import: errors, and remarks about keys that it did not take over.

use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of errors that are listed.
const MAX_PROBLEMS: usize = 50;

/// An error in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodepoolProblem {
    /// A JSON pointer into the file.
    pub place: String,
    pub message: String,
}

/// A part of the file that was not taken over, or has another meaning here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// A JSON pointer into the file.
    pub place: String,
    pub reason: String,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    problems: Vec<NodepoolProblem>,
    n_more: usize,
    remarks: Vec<Remark>,
    /// The places with a remark that several others share.
    shared: BTreeSet<String>,
}

impl fmt::Display for NodepoolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.is_empty() {
            true => f.write_str(&self.message),
            false => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

impl Notes {
    pub(super) fn wrong(&mut self, place: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() >= MAX_PROBLEMS {
            self.n_more += 1;
            return;
        }
        self.problems.push(NodepoolProblem {
            place: place.into(),
            message: message.into(),
        });
    }

    pub(super) fn remark(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.remarks.push(Remark {
            place: place.into(),
            reason: reason.into(),
        });
    }

    /// A remark on a part that several others share.
    pub(super) fn remark_once(&mut self, place: String, reason: impl Into<String>) {
        if self.shared.insert(place.clone()) {
            self.remark(place, reason);
        }
    }

    pub(super) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// The remarks, if there are no errors.
    pub(super) fn finish(mut self) -> Result<Vec<Remark>, Vec<NodepoolProblem>> {
        if self.n_more > 0 {
            self.problems.push(NodepoolProblem {
                place: String::new(),
                message: format!("and {} more errors", self.n_more),
            });
        }
        match self.problems.is_empty() {
            true => Ok(self.remarks),
            false => Err(self.problems),
        }
    }
}

/// A JSON pointer to a member or an item.
pub(super) fn below(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn errors_have_a_limit_and_the_rest_is_counted() {
        for count in sizes_around("rule_import::nodepool::notes::MAX_PROBLEMS", MAX_PROBLEMS) {
            let mut notes = Notes::default();
            for number in 0..count {
                notes.wrong(format!("/{number}"), "wrong");
            }
            let problems = notes.finish().err().unwrap_or_default();
            match count.checked_sub(MAX_PROBLEMS) {
                Some(more @ 1..) => {
                    assert_eq!(problems.len(), MAX_PROBLEMS + 1);
                    let last = problems.last().unwrap().to_string();
                    assert_eq!(last, format!("and {more} more errors"));
                }
                Some(0) | None => assert_eq!(problems.len(), count),
            }
        }
    }
}
