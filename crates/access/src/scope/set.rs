//! A normalised set of scopes, sorted so that one binary search tells whether a scope is held.

use std::cmp::Ordering;

use super::{covers, split};

/// A set of scopes, without scopes that others cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet(
    /// Sorted by [`order`]. All scopes that begin with `x` are then adjacent, with `x*` first. So
    /// if the set has `x*`, the others were dropped as covered, and `x*` is the direct predecessor
    /// of any scope that it covers.
    Vec<String>,
);

impl ScopeSet {
    /// Sorts the scopes, and drops covered ones.
    pub fn new(scopes: impl IntoIterator<Item = String>) -> Self {
        let mut sorted: Vec<String> = scopes.into_iter().collect();
        sorted.sort_unstable_by(|left, right| order(left, right));
        sorted.dedup_by(|next, kept| covers(kept, next));
        Self(sorted)
    }

    pub fn satisfies(&self, scope: &str) -> bool {
        let after = self
            .0
            .partition_point(|held| order(held, scope) != Ordering::Greater);
        after > 0 && covers(&self.0[after - 1], scope)
    }

    pub fn satisfies_all<'a>(&self, scopes: impl IntoIterator<Item = &'a str>) -> bool {
        scopes.into_iter().all(|scope| self.satisfies(scope))
    }

    /// The scopes in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The scopes in order, for responses.
    pub fn to_vec(&self) -> Vec<String> {
        self.0.clone()
    }

    /// The number of scopes after normalisation.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<String> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = String>>(scopes: I) -> Self {
        Self::new(scopes)
    }
}

/// Orders by the text before a final star; of two equal texts, the starred one is first.
fn order(left: &str, right: &str) -> Ordering {
    let ((left, left_star), (right, right_star)) = (split(left), split(right));
    left.cmp(right).then(right_star.cmp(&left_star))
}
