//! A set of small numbers, as bits.

/// Which of the numbers below a bound are in the set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    #[cfg(test)]
    pub(crate) fn none(bound: usize) -> Self {
        Self(vec![0; bound.div_ceil(64)].into())
    }

    pub(crate) fn all(bound: usize) -> Self {
        let mut bits = Self(vec![u64::MAX; bound.div_ceil(64)].into());
        if let Some(last) = bits.0.last_mut()
            && !bound.is_multiple_of(64)
        {
            *last = (1 << (bound % 64)) - 1;
        }
        bits
    }

    pub(crate) fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.0[number / 64] &= !(1 << (number % 64));
    }

    /// Keeps what both contain.
    pub(crate) fn intersect(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine &= theirs;
        }
    }

    /// In ascending order.
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

    use super::Bits;

    proptest! {
        #[test]
        fn it_is_a_set(bound in 1_usize..200, actions in prop::collection::vec((any::<bool>(), 0_usize..200), 0..300)) {
            let mut bits = Bits::none(bound);
            let mut set = BTreeSet::new();
            for (insert, number) in actions {
                let number = number % bound;
                if insert {
                    bits.insert(number);
                    set.insert(number);
                } else {
                    bits.remove(number);
                    set.remove(&number);
                }
            }
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            let mut all = Bits::all(bound);
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), (0..bound).collect::<Vec<_>>());
            all.intersect(&bits);
            prop_assert_eq!(all, bits);
        }
    }
}
