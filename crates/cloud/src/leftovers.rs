//! Leftovers of machines: resources with our marks that no machine uses any more.
//!
//! Most resources end with their machine. Others stay: a disk that outlives its machine by the
//! launch config, a part of a machine that was never completed, a part whose machine others
//! deleted. They cost money, and no row leads to them.

use domain::time::{HOUR_MS, Timestamp};

/// Until then, a launch may be about to use the resource, or an end about to remove it.
const GRACE_MS: i64 = HOUR_MS;
/// Leftovers that one call removes at most.
const MAX_REMOVED: usize = 100;
/// The name of the tag or label of resources that are to stay. Those that outlive their machine by
/// the launch config get it, unless the launch config gives it another value.
pub(crate) const KEEP: &str = "fleetwright-keep";
/// The value with which such a resource is removed all the same.
const REMOVE: &str = "false";

/// A resource that was removed, or whose removal has begun.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// `disk`, `address`, `interface`, …
    pub kind: &'static str,
    pub name: String,
}

/// Whether something is old enough to be left over. `None`, for its time is not known: no.
pub(crate) fn is_old(since: Option<Timestamp>, now: Timestamp) -> bool {
    since.is_some_and(|since| now.millis_since(since) >= GRACE_MS)
}

/// Whether a resource with this value of the tag is to stay.
pub(crate) fn is_kept(value: Option<&str>) -> bool {
    value.is_some_and(|value| value != REMOVE)
}

/// Those that one call removes. The next call goes on.
pub(crate) fn bounded<T>(mut found: Vec<T>) -> Vec<T> {
    found.truncate(MAX_REMOVED);
    found
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn a_limited_number_is_removed_by_one_call() {
        for size in sizes_around("cloud::leftovers::MAX_REMOVED", MAX_REMOVED) {
            assert_eq!(bounded(vec![(); size]).len(), size.min(MAX_REMOVED));
        }
    }

    #[test]
    fn what_has_the_tag_stays_unless_it_says_no() {
        let kept = [None, Some(""), Some("true"), Some("false")].map(is_kept);
        assert_eq!(kept, [false, true, true, false]);
    }

    #[test]
    fn a_time_that_is_not_known_is_not_old() {
        let now = Timestamp::from_millis(10 * HOUR_MS);
        assert!(is_old(Some(now.plus_millis(-GRACE_MS)), now));
        assert!(!is_old(Some(now.plus_millis(1 - GRACE_MS)), now));
        assert!(!is_old(None, now));
    }
}
