//! Levels of demand: when each was last left, for how long it stayed unused, and how long a worker
//! on it should therefore be kept.
//!
//! A pool whose tasks keep `n` workers busy is on level `n`. When it falls below a level and rises
//! to it again, the gap is recorded. From the gaps of similar levels follows the retention: the
//! time for which keeping an idle worker costs less than missing it later.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

/// Higher levels count as this one.
pub(super) const MAX_LEVEL: u64 = 100_000;
/// The number of falls that are remembered; beyond that, the oldest are merged.
pub(super) const MAX_FALLS: usize = 200;
/// A fall this long ago says nothing about the next hour.
const FALL_MEMORY_MS: i64 = DAY_MS;
/// Gaps that are remembered in each band of levels.
pub(super) const MAX_GAPS: u32 = 300;
/// Each band reaches half again as high as the one before.
const BAND_GROWTH: f64 = 1.5;
/// Below this number of gaps nothing is learned.
const MIN_GAPS: u32 = 8;
/// A retention is computed again after this many further gaps.
const RENEW_AFTER: u32 = 10;
/// Retention where nothing is learned yet.
const USUAL_RETENTION_MS: i64 = 150 * SECOND_MS;
/// Open gaps count while they are younger than this many times the cost of a missing worker.
const OPEN_GAPS: f64 = 6.0;

/// The retentions to choose from.
const RETENTIONS_MS: [i64; 14] = [
    30 * SECOND_MS,
    MINUTE_MS,
    90 * SECOND_MS,
    2 * MINUTE_MS,
    3 * MINUTE_MS,
    4 * MINUTE_MS,
    5 * MINUTE_MS,
    7 * MINUTE_MS,
    10 * MINUTE_MS,
    15 * MINUTE_MS,
    20 * MINUTE_MS,
    30 * MINUTE_MS,
    45 * MINUTE_MS,
    HOUR_MS,
];

/// The levels from `low` to `high` were left at this moment, and not reached since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fall {
    pub low: u64,
    pub high: u64,
    pub at: Timestamp,
}

/// Gaps of the same length, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Gap {
    ms: i64,
    count: u32,
}

/// The gaps of a band of levels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Band {
    gaps: VecDeque<Gap>,
    /// The number of gaps in them all.
    total: u32,
    /// Gaps since the retention was computed.
    fresh: u32,
    retention_ms: Option<i64>,
}

/// The history of levels, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Levels {
    pub(super) level: u64,
    /// The highest levels first; each fall is directly above the next one.
    falls: Vec<Fall>,
    bands: BTreeMap<u8, Band>,
}

/// How long workers on each level are kept: the part of the history that a plan needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retention {
    /// The highest levels first.
    pub falls: Vec<Fall>,
    /// By band of levels, in milliseconds; bands without one have the usual retention.
    pub by_band: BTreeMap<u8, i64>,
}

impl Levels {
    /// The demand now keeps this many workers busy.
    pub(super) fn reach(&mut self, level: u64, now: Timestamp) {
        let level = level.min(MAX_LEVEL);
        if level < self.level {
            self.fall_to(level, now);
        } else {
            self.rise_to(level, now);
        }
        self.level = level;
    }

    fn fall_to(&mut self, level: u64, now: Timestamp) {
        match self.falls.last_mut() {
            Some(last) if last.at == now => last.low = level + 1,
            Some(_) | None => self.falls.push(Fall {
                low: level + 1,
                high: self.level,
                at: now,
            }),
        }
        if self.falls.len() > MAX_FALLS {
            let oldest = self.falls.remove(0);
            self.falls[0].high = oldest.high;
        }
    }

    fn rise_to(&mut self, level: u64, now: Timestamp) {
        while let Some(last) = self.falls.last_mut() {
            if last.low > level {
                break;
            }
            let (low, high, at) = (last.low, last.high.min(level), last.at);
            last.low = high + 1;
            if last.low > last.high {
                self.falls.pop();
            }
            self.record(low, high, now.millis_since(at).max(0));
        }
    }

    fn record(&mut self, mut low: u64, high: u64, ms: i64) {
        while low <= high {
            let number = band_of(low);
            let last = start_of(number + 1).saturating_sub(1).min(high);
            let count = u32::try_from(last - low + 1).unwrap_or(u32::MAX);
            self.bands.entry(number).or_default().record(ms, count);
            low = last + 1;
        }
    }

    /// Computes the retention of bands with many new gaps. A worker that is missing when demand
    /// rises costs as much as an idle worker in `missing_ms`.
    pub(super) fn learn(&mut self, missing_ms: f64, now: Timestamp) {
        self.falls
            .retain(|fall| now.millis_since(fall.at) <= FALL_MEMORY_MS);
        for (number, band) in &mut self.bands {
            if band.retention_ms.is_some() && band.fresh < RENEW_AFTER {
                continue;
            }
            let open = open_gaps(&self.falls, *number, OPEN_GAPS * missing_ms, now);
            let n_open: u64 = open.iter().map(|(_, count)| count).sum();
            if u64::from(band.total) + n_open < u64::from(MIN_GAPS) {
                continue;
            }
            band.fresh = 0;
            band.retention_ms = Some(band.cheapest(&open, missing_ms));
        }
    }

    pub(super) fn retention(&self) -> Retention {
        let bands = self.bands.iter();
        Retention {
            falls: self.falls.clone(),
            by_band: bands
                .filter_map(|(number, band)| Some((*number, band.retention_ms?)))
                .collect(),
        }
    }
}

/// The gaps of a band's levels that have not ended, in milliseconds, each with its number of
/// levels.
fn open_gaps(falls: &[Fall], band: u8, most_ms: f64, now: Timestamp) -> Vec<(f64, u64)> {
    let (low, high) = (start_of(band), start_of(band + 1).saturating_sub(1));
    let gap = |fall: &Fall| {
        let ms = now.millis_since(fall.at) as f64;
        let (low, high) = (fall.low.max(low), fall.high.min(high));
        (low <= high && ms < most_ms).then(|| (ms.max(0.0), high - low + 1))
    };
    falls.iter().filter_map(gap).collect()
}

impl Band {
    fn record(&mut self, ms: i64, count: u32) {
        let count = count.min(MAX_GAPS);
        match self.gaps.back_mut() {
            Some(last) if last.ms == ms => last.count += count,
            Some(_) | None => self.gaps.push_back(Gap { ms, count }),
        }
        self.total += count;
        self.fresh = self.fresh.saturating_add(count);
        while self.total > MAX_GAPS
            && let Some(oldest) = self.gaps.front_mut()
        {
            let surplus = (self.total - MAX_GAPS).min(oldest.count);
            oldest.count -= surplus;
            self.total -= surplus;
            if oldest.count == 0 {
                self.gaps.pop_front();
            }
        }
    }

    /// The retention that would have cost least on these gaps. A gap that is shorter costs its
    /// length, a longer one costs the retention and the missing worker.
    fn cheapest(&self, open: &[(f64, u64)], missing_ms: f64) -> i64 {
        let cost = |retention: i64| {
            let kept = retention as f64;
            let ended = self.gaps.iter().map(|gap| {
                let ms = gap.ms as f64;
                let each = if ms <= kept { ms } else { kept + missing_ms };
                each * f64::from(gap.count)
            });
            let open = open.iter().map(|(ms, count)| {
                let each = ms.min(kept) + if *ms > kept { missing_ms } else { 0.0 };
                each * *count as f64
            });
            ended.chain(open).sum::<f64>()
        };
        let affordable = |ms: &i64| *ms <= MINUTE_MS || *ms as f64 <= 2.0 * missing_ms;
        let retentions = RETENTIONS_MS.into_iter().filter(affordable);
        let cheapest = retentions.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        cheapest.unwrap_or(RETENTIONS_MS[0])
    }
}

impl Retention {
    /// The highest level that was left less than its retention ago; 0 if there is none.
    pub fn highest_kept(&self, now: Timestamp) -> u64 {
        let kept = |fall: &Fall| {
            let idle_ms = now.millis_since(fall.at);
            let (mut high, low) = (fall.high, fall.low);
            while high >= low && high > 0 {
                let band = band_of(high);
                let retention = self.by_band.get(&band).copied();
                if idle_ms <= retention.unwrap_or(USUAL_RETENTION_MS) {
                    return Some(high);
                }
                high = start_of(band) - 1;
            }
            None
        };
        self.falls.iter().find_map(kept).unwrap_or(0)
    }
}

/// The band of a level; the lowest level is 1.
fn band_of(level: u64) -> u8 {
    let mut band = 0;
    while start_of(band + 1) <= level {
        band += 1;
    }
    band
}

/// The lowest level of a band.
fn start_of(band: u8) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and what is too large becomes the largest number"
    )]
    let start = BAND_GROWTH.powi(i32::from(band)).ceil() as u64;
    start
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    /// Levels at these seconds.
    fn levels(steps: &[(i64, u64)]) -> Levels {
        let mut levels = Levels::default();
        for (seconds, level) in steps {
            levels.reach(*level, at(*seconds));
        }
        levels
    }

    fn gaps(levels: &Levels) -> Vec<(i64, u32)> {
        let gaps = levels.bands.values().flat_map(|band| &band.gaps);
        gaps.map(|gap| (gap.ms / SECOND_MS, gap.count)).collect()
    }

    #[test]
    fn a_gap_is_the_time_between_leaving_a_level_and_reaching_it_again() {
        let levels = levels(&[(0, 1), (10, 0), (40, 1)]);
        assert_eq!(gaps(&levels), [(30, 1)]);
        assert!(levels.falls.is_empty());
    }

    #[test]
    fn each_level_has_its_own_gap() {
        // 3 is left at 10, 2 at 20; both are reached again at 50, and 3 is left again.
        let mut levels = levels(&[(0, 3), (10, 2), (20, 1), (50, 3), (60, 2)]);
        assert_eq!(gaps(&levels), [(30, 1), (40, 1)]);
        let fall = |low, high, seconds| Fall {
            low,
            high,
            at: at(seconds),
        };
        assert_eq!(levels.falls, [fall(3, 3, 60)]);
        levels.reach(0, at(70));
        assert_eq!(levels.falls, [fall(3, 3, 60), fall(1, 2, 70)]);
        levels.reach(2, at(75));
        assert_eq!(levels.falls, [fall(3, 3, 60)]);
    }

    #[test]
    fn a_part_of_a_fall_can_end() {
        let levels = levels(&[(0, 10), (10, 0), (30, 4)]);
        assert_eq!(levels.falls.len(), 1);
        assert_eq!((levels.falls[0].low, levels.falls[0].high), (5, 10));
        assert_eq!(gaps(&levels).iter().map(|gap| gap.1).sum::<u32>(), 4);
    }

    #[test]
    fn levels_above_the_highest_are_not_told_apart() {
        for size in sizes_around(
            "domain::market::levels::MAX_LEVEL",
            usize::try_from(MAX_LEVEL).unwrap(),
        ) {
            let levels = levels(&[(0, size as u64)]);
            assert_eq!(levels.level, (size as u64).min(MAX_LEVEL));
        }
    }

    #[test]
    fn falls_beyond_the_limit_are_merged_into_their_neighbour() {
        for size in sizes_around("domain::market::levels::MAX_FALLS", MAX_FALLS) {
            let n_falls = size as u64;
            let mut levels = levels(&[(0, n_falls)]);
            for step in 1..=n_falls {
                levels.reach(n_falls - step, at(i64::try_from(step).unwrap()));
            }
            assert_eq!(levels.falls.len(), size.min(MAX_FALLS));
            if let (Some(first), Some(last)) = (levels.falls.first(), levels.falls.last()) {
                assert_eq!((first.high, last.low), (n_falls, 1));
            }
        }
    }

    #[test]
    fn the_oldest_gaps_are_forgotten() {
        let most = usize::try_from(MAX_GAPS).unwrap();
        for size in sizes_around("domain::market::levels::MAX_GAPS", most) {
            let mut levels = Levels::default();
            for step in 0..i64::try_from(size).unwrap() {
                levels.reach(1, at(10 * step));
                levels.reach(0, at(10 * step + 1 + step % 7));
            }
            levels.reach(1, at(1_000_000));
            let total: u32 = gaps(&levels).iter().map(|gap| gap.1).sum();
            assert_eq!(total as usize, size.min(most));
            let last = gaps(&levels).last().map(|gap| gap.0);
            assert_eq!(last.is_some_and(|last| last > 900_000), size > 0);
        }
    }

    /// A level that is left for `gap` seconds again and again.
    fn repeated(gap: i64) -> Levels {
        let mut levels = Levels::default();
        for step in 0..20 {
            levels.reach(1, at(step * 2 * gap));
            levels.reach(0, at(step * 2 * gap + gap));
        }
        levels
    }

    fn learned(gap: i64, missing_seconds: f64) -> Option<i64> {
        let mut levels = repeated(gap);
        levels.learn(missing_seconds * 1_000.0, at(40 * gap));
        levels.retention().by_band.get(&0).map(|ms| ms / SECOND_MS)
    }

    #[test]
    fn a_worker_is_kept_over_gaps_that_cost_less_than_missing_it() {
        // A worker that is missing costs as much as ten idle minutes.
        assert_eq!(learned(100, 600.0), Some(120));
        assert_eq!(learned(400, 600.0), Some(420));
        // These gaps are never worth it: not even a minute.
        assert_eq!(learned(3_000, 600.0), Some(30));
        // Too few gaps.
        let mut levels = levels(&[(0, 1), (10, 0), (40, 1)]);
        levels.learn(600_000.0, at(50));
        assert!(levels.retention().by_band.is_empty());
    }

    #[test]
    fn the_highest_level_within_its_retention_is_kept() {
        let levels = levels(&[(0, 30), (100, 20), (200, 5)]);
        let mut retention = levels.retention();
        assert_eq!(retention.highest_kept(at(210)), 30);
        assert_eq!(retention.highest_kept(at(251)), 20);
        assert_eq!(retention.highest_kept(at(351)), 0);
        retention.by_band.insert(band_of(30), 30_000);
        assert_eq!(retention.highest_kept(at(210)), 25);
        retention.by_band.insert(band_of(20), 3_600_000);
        assert_eq!(retention.highest_kept(at(3_700)), 25);
        assert_eq!(Retention::default().highest_kept(at(0)), 0);
    }

    #[test]
    fn bands_cover_all_levels_without_gaps() {
        for level in 1..5_000 {
            let band = band_of(level);
            assert!(start_of(band) <= level && level < start_of(band + 1));
        }
        assert!(band_of(MAX_LEVEL) < 30);
    }
}
