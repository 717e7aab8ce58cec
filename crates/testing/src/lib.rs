//! What the tests of all crates share. Nothing that is shipped is built on it.

/// The sizes around a limit at which mistakes show: nothing, one, just below, at and above it, and far beyond.
///
/// `constant` names the limit by its path, as `server::tasks::overrides::BATCH`. That is how the tidy test of bounds
/// knows that the constant has a test. A bound that is expensive to reach may be a parameter of what is tested; then
/// the limit here is a smaller one.
pub fn sizes_around(constant: &str, limit: usize) -> Vec<usize> {
    assert!(limit > 0, "{constant} bounds something");
    let mut sizes = vec![0, 1, limit - 1, limit, limit + 1, 10 * limit];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_around_the_limit_and_each_comes_once() {
        assert_eq!(sizes_around("a::B", 50), [0, 1, 49, 50, 51, 500]);
        assert_eq!(sizes_around("a::B", 1), [0, 1, 2, 10]);
    }
}
