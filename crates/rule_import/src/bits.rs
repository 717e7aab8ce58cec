//! Sets of small numbers.

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// No number, of this many.
    pub(super) fn none(length: usize) -> Self {
        Self(vec![0; length.div_ceil(64)])
    }

    pub(super) fn of(flags: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut bits = Self::none(flags.len());
        for (number, flag) in flags.enumerate() {
            if flag {
                bits.set(number);
            }
        }
        bits
    }

    pub(super) fn set(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(&other.0);
        words.all(|(own, other)| own & !other == 0)
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(&other.0);
        words.any(|(own, other)| own & other != 0)
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(own, other)| own & other).collect())
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(own, other)| own & !other).collect())
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(word, bits)| {
            (0..64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| word * 64 + bit)
        })
    }
}
