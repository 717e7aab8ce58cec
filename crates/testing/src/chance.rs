//! Randomness that can be rewound: all random choices of a seeded run come from here.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{RngExt, TryRng};

/// A counter that is hashed. Clones draw from the same one.
#[derive(Clone)]
pub struct Chance(Arc<AtomicU64>);

impl Chance {
    pub fn new(seed: u64) -> Self {
        let chance = Self(Arc::new(AtomicU64::new(seed)));
        // Consecutive seeds must not give similar numbers.
        chance.0.store(chance.draw(), Ordering::SeqCst);
        chance
    }

    fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below this number.
    pub fn below(&self, limit: usize) -> usize {
        self.clone().random_range(0..limit)
    }

    pub fn between(&self, low: i64, high: i64) -> i64 {
        self.clone().random_range(low..=high)
    }

    /// True in this many of a hundred cases.
    pub fn percent(&self, percent: u32) -> bool {
        self.clone().random_range(0..100) < percent
    }

    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len())])
    }

    pub fn place(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn wind_back(&self, place: u64) {
        self.0.store(place, Ordering::SeqCst);
    }
}

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.draw() >> 32).expect("32 bits are left"))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.draw())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
