//! Helpers that the tests of all crates share.
#![doc = include_str!("../README.md")]

mod chance;
#[cfg(feature = "databases")]
pub mod databases;
pub mod dns;

pub use chance::Chance;

/// The sizes around a limit at which errors show: zero, one, just below, at and above the limit,
/// and far beyond.
///
/// `constant` is the path of the limit, like `server::background::overrides::BATCH`. From this path
/// the tidy test of bounds knows that the constant has a test. If a bound is expensive to reach,
/// make it a parameter of the tested function and pass a smaller limit here.
pub fn sizes_around(constant: &str, limit: usize) -> Vec<usize> {
    assert!(limit > 0, "{constant} is not a limit");
    let mut sizes = vec![0, 1, limit - 1, limit, limit + 1, 10 * limit];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_around_the_limit_without_duplicates() {
        assert_eq!(sizes_around("a::B", 50), [0, 1, 49, 50, 51, 500]);
        assert_eq!(sizes_around("a::B", 1), [0, 1, 2, 10]);
    }
}
