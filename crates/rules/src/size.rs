//! The size of a rule, and whether a set exceeds a limit.

use std::ops::AddAssign;

use crate::conditions::Conditions;
use crate::limits::{
    MAX_ELEMENTS_OF_SET, MAX_GLOBS_OF_SET, MAX_MAPPINGS_OF_SET, MAX_PATTERNS_OF_SET, MAX_SET_BYTES,
};
use crate::patterns::Alternative;
use crate::sets::Sets;

/// The amounts that a rule adds to the size of its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// As compact JSON.
    bytes: usize,
    mappings: usize,
    patterns: usize,
    globs: usize,
    elements: usize,
}

impl Size {
    pub(crate) fn new(bytes: usize, conditions: &Conditions, elements: usize) -> Self {
        let mappings = conditions.mappings();
        let patterns = || {
            mappings.iter().flat_map(|mapping| {
                let lists = mapping.iter().map(|(_, patterns)| patterns.as_slice());
                lists.flatten()
            })
        };
        Self {
            bytes,
            mappings: mappings.len(),
            patterns: patterns().count(),
            globs: patterns()
                .filter_map(Alternative::as_pattern)
                .filter(|pattern| pattern.is_compiled())
                .count(),
            elements,
        }
    }

    /// The amounts of named sets.
    pub(crate) fn of_sets(sets: &Sets) -> Self {
        let patterns = || sets.iter().flat_map(|(_, set)| set.patterns());
        Self {
            bytes: if sets.is_empty() {
                0
            } else {
                sets.to_value().to_string().len()
            },
            patterns: patterns().count(),
            globs: patterns().filter(|pattern| pattern.is_compiled()).count(),
            ..Self::default()
        }
    }

    /// The first exceeded limit, if any.
    pub(crate) fn excess(&self) -> Option<String> {
        let parts = [
            (self.bytes, MAX_SET_BYTES, "bytes as compact JSON"),
            (
                self.mappings,
                MAX_MAPPINGS_OF_SET,
                "mappings in its conditions",
            ),
            (self.patterns, MAX_PATTERNS_OF_SET, "patterns"),
            (
                self.globs,
                MAX_GLOBS_OF_SET,
                "patterns with ?, [], {} or several *",
            ),
            (
                self.elements,
                MAX_ELEMENTS_OF_SET,
                "changes of elements of lists",
            ),
        ];
        let excess = parts.into_iter().find(|(is, most, _)| is > most);
        excess.map(|(_, most, what)| {
            format!("a set has at most {most} {what}, and this one has more")
        })
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.mappings += other.mappings;
        self.patterns += other.patterns;
        self.globs += other.globs;
        self.elements += other.elements;
    }
}
