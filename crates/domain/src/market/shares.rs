//! Fair shares of a quota that is too small for all.

/// The units that a pool wants of a quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// Those that it has outside of the quota.
    pub elsewhere: f64,
    /// All that it needs, with these.
    pub needed: f64,
}

impl Want {
    /// Its share if each pool has at most `level` altogether.
    fn share(&self, level: f64) -> f64 {
        (self.needed.min(level) - self.elsewhere).max(0.0)
    }
}

/// Max-min shares: each pool gets what it needs up to a common level of all that it has, and the
/// level is as high as the quota allows. The shares are in the order of the wants.
pub fn fair_shares(wants: &[Want], quota: f64) -> Vec<f64> {
    // Each pool takes a part of the quota while the level rises from what it has to what it needs.
    let mut turns: Vec<(f64, f64)> = Vec::with_capacity(2 * wants.len());
    for want in wants.iter().filter(|want| want.needed > want.elsewhere) {
        turns.push((want.elsewhere, 1.0));
        turns.push((want.needed, -1.0));
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut level, mut n_taking, mut left) = (f64::INFINITY, 0.0, quota.max(0.0));
    let mut reached = turns.first().map_or(0.0, |(at, _)| *at);
    for (at, change) in turns {
        let taken = n_taking * (at - reached);
        if taken > left {
            level = reached + left / n_taking;
            break;
        }
        left -= taken;
        reached = at;
        n_taking += change;
    }
    wants.iter().map(|want| want.share(level)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares<const N: usize>(wants: [(f64, f64); N], quota: f64) -> Vec<f64> {
        let wants = wants.map(|(elsewhere, needed)| Want { elsewhere, needed });
        fair_shares(&wants, quota)
    }

    fn of_nothing<const N: usize>(needed: [f64; N], quota: f64) -> Vec<f64> {
        shares(needed.map(|needed| (0.0, needed)), quota)
    }

    #[test]
    fn small_wishes_are_met_and_the_others_share_the_rest() {
        assert_eq!(of_nothing([60.0, 60.0, 15.0], 100.0), [42.5, 42.5, 15.0]);
        assert_eq!(of_nothing([10.0, 20.0], 100.0), [10.0, 20.0]);
        assert_eq!(of_nothing([50.0, 50.0, 50.0], 30.0), [10.0, 10.0, 10.0]);
        assert_eq!(of_nothing([0.0, 9.0], 4.0), [0.0, 4.0]);
        assert_eq!(of_nothing([5.0], 0.0), [0.0]);
        assert!(fair_shares(&[], 4.0).is_empty());
    }

    #[test]
    fn a_pool_that_has_much_elsewhere_leaves_the_quota_to_others() {
        assert_eq!(shares([(30.0, 60.0), (0.0, 20.0)], 10.0), [0.0, 10.0]);
        assert_eq!(shares([(5.0, 60.0), (0.0, 20.0)], 15.0), [5.0, 10.0]);
        assert_eq!(shares([(5.0, 60.0), (0.0, 8.0)], 15.0), [7.0, 8.0]);
        // Each has as much at another place.
        assert_eq!(shares([(0.0, 60.0), (40.0, 60.0)], 40.0), [40.0, 0.0]);
        // It needs nothing.
        assert_eq!(shares([(9.0, 4.0), (0.0, 3.0)], 5.0), [0.0, 3.0]);
    }

    proptest! {
        #[test]
        fn the_quota_is_given_away_and_no_pool_gets_more_than_one_that_lacks_something(
            wants in proptest::collection::vec((0_u8..50, 0_u8..90), 1..8), quota in 0_u8..200,
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(elsewhere, needed)| Want {
                elsewhere: f64::from(elsewhere),
                needed: f64::from(needed),
            }).collect();
            let (shares, quota) = (fair_shares(&wants, f64::from(quota)), f64::from(quota));
            let missing = |want: &Want| (want.needed - want.elsewhere).max(0.0);
            let all: f64 = wants.iter().map(missing).sum();
            let given: f64 = shares.iter().sum();
            prop_assert!((given - all.min(quota)).abs() < 1e-6, "{given} of {quota}");
            for (want, share) in wants.iter().zip(&shares) {
                prop_assert!((0.0..=missing(want) + 1e-9).contains(share));
                let lacks = missing(want) - share > 1e-6;
                let has = want.elsewhere + share;
                for (other, of_other) in wants.iter().zip(&shares) {
                    let is_fair = !lacks || *of_other < 1e-6 || other.elsewhere + of_other <= has + 1e-6;
                    prop_assert!(is_fair, "{want:?} {share}, {other:?} {of_other}");
                }
            }
        }
    }
}
