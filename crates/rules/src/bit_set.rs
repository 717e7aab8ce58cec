//! A set of small numbers, stored as bit_set.

/// A set of numbers below a bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BitSet(Box<[u64]>);

impl BitSet {
    #[cfg(test)]
    pub(crate) fn none(bound: usize) -> Self {
        Self(vec![0; bound.div_ceil(64)].into())
    }

    pub(crate) fn all(bound: usize) -> Self {
        let mut bit_set = Self(vec![u64::MAX; bound.div_ceil(64)].into());
        if let Some(last) = bit_set.0.last_mut()
            && !bound.is_multiple_of(64)
        {
            *last = (1 << (bound % 64)) - 1;
        }
        bit_set
    }

    pub(crate) fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    /// Removes the numbers that the other set lacks.
    pub(crate) fn intersect(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine &= theirs;
        }
    }

    /// The numbers in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    index * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::BitSet;

    proptest! {
        #[test]
        fn it_is_a_set(bound in 1_usize..200, actions in prop::collection::vec((any::<bool>(), 0_usize..200), 0..300)) {
            let mut bit_set = BitSet::none(bound);
            let mut set = BTreeSet::new();
            for (insert, number) in actions {
                let number = number % bound;
                if insert {
                    bit_set.insert(number);
                    set.insert(number);
                } else {
                    bit_set.remove(number);
                    set.remove(&number);
                }
            }
            prop_assert_eq!(bit_set.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            let mut all = BitSet::all(bound);
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), (0..bound).collect::<Vec<_>>());
            all.intersect(&bit_set);
            prop_assert_eq!(all, bit_set);
        }
    }
}
