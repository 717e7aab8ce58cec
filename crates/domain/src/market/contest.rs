//! Contests: pools that compete for a quota that is used up.

use std::collections::BTreeMap;

use super::shares::{Want, fair_shares};

/// Busy workers stop for pools with less than this part of what would be fair. Smaller differences
/// are not worth the boots.
const POOR: f64 = 0.7;

/// A pool that uses a quota, in units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaUse {
    /// For all tasks of the pool.
    pub needed: f64,
    /// All that it has.
    pub everywhere: f64,
    /// Those of them that use the quota.
    pub held: f64,
}

/// The pools that compete for a quota, with their fair shares of the units that all of them have
/// there. The pool that asks comes first.
pub struct Contest(Vec<Contender>);

/// The units that a pool gives to others at several quotas, by the number of the rival: no rival
/// gets the same units at two of them.
#[derive(Default)]
pub struct Given(BTreeMap<usize, f64>);

struct Contender {
    /// The number of the rival; `None`: the pool that asks.
    rival: Option<usize>,
    want: Want,
    held: f64,
    share: f64,
}

impl Contest {
    /// The rivals have numbers. `None`: all pools have what they need.
    pub fn of(
        own: QuotaUse,
        rivals: impl Iterator<Item = (usize, QuotaUse)>,
        given: &Given,
    ) -> Option<Self> {
        let rivals = rivals.map(|(number, mut rival)| {
            rival.everywhere += given.to(number);
            Contender::new(Some(number), rival)
        });
        let own = std::iter::once(Contender::new(None, own));
        let mut pools: Vec<Contender> = own.chain(rivals).collect();
        if !pools.iter().any(Contender::is_short) {
            return None;
        }
        let quota = pools.iter().map(|pool| pool.held).sum();
        let wants: Vec<Want> = pools.iter().map(|pool| pool.want).collect();
        for (pool, share) in pools.iter_mut().zip(fair_shares(&wants, quota)) {
            pool.share = share;
        }
        Some(Self(pools))
    }

    /// By how much the pool exceeds its share, if it is more than a unit.
    pub fn surplus(&self) -> Option<f64> {
        let own = self.0.first()?;
        let over = own.held - own.share;
        (over > 1.0).then_some(over)
    }

    /// How many of its units stop after their task: not more than pools lack there which have much
    /// less than would be fair. They will get them.
    pub fn give(&self, given: &mut Given) -> f64 {
        let missing: f64 = self.0.iter().map(Contender::missing).sum();
        let units = self.surplus().map_or(0.0, |over| (over - 1.0).min(missing));
        if units > 0.0 {
            for pool in &self.0 {
                if let Some(rival) = pool.rival {
                    *given.0.entry(rival).or_default() += units * pool.missing() / missing;
                }
            }
        }
        units
    }
}

impl Given {
    fn to(&self, rival: usize) -> f64 {
        self.0.get(&rival).copied().unwrap_or(0.0)
    }
}

impl Contender {
    fn new(rival: Option<usize>, pool: QuotaUse) -> Self {
        let elsewhere = (pool.everywhere - pool.held).max(0.0);
        Self {
            rival,
            want: Want {
                elsewhere,
                needed: pool.needed,
            },
            held: pool.held,
            share: 0.0,
        }
    }

    fn is_short(&self) -> bool {
        self.want.needed > self.want.elsewhere + self.held
    }

    /// The units of its share that it lacks, if it has much less than would be fair.
    fn missing(&self) -> f64 {
        let elsewhere = self.want.elsewhere;
        let is_poor = elsewhere + self.held < POOR * (elsewhere + self.share);
        if is_poor { self.share - self.held } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(needed: f64, everywhere: f64, held: f64) -> QuotaUse {
        QuotaUse {
            needed,
            everywhere,
            held,
        }
    }

    #[test]
    fn a_pool_that_lacks_units_gets_them_at_one_of_several_quotas() {
        let mut given = Given::default();
        let mut everywhere = 40.0;
        let gives = [20.0, 20.0].map(|held| {
            let own = pool(60.0, everywhere, held);
            let rivals = std::iter::once((0, pool(10.0, 0.0, 0.0)));
            let contest = Contest::of(own, rivals, &given).unwrap();
            let units = contest.give(&mut given);
            everywhere -= units;
            units
        });
        // One unit more or less does not matter.
        assert_eq!(gives, [9.0, 0.0]);
    }

    #[test]
    fn nobody_gives_anything_while_all_have_what_they_need() {
        let rivals = std::iter::once((0, pool(5.0, 5.0, 0.0)));
        let own = pool(9.0, 9.0, 9.0);
        assert!(Contest::of(own, rivals, &Given::default()).is_none());
    }
}
