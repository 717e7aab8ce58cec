//! Helpers that the tests of all crates share.
#![doc = include_str!("../README.md")]

mod chance;

pub use chance::Chance;

/// SQL for PostgreSQL, after which it analyzes no table of the schema by itself. As long as it
/// does, it keeps old rows and the index entries of all rows that are changed or deleted.
pub const ANALYZE_NOTHING: &str = "DO $$
    DECLARE name text;
    BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
            EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', name);
        END LOOP;
    END $$";

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
