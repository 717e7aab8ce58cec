//! Arrivals by hour of the week: what the next hour brings, if it is like those of earlier days.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};

/// The hours of a week.
const MAX_HOURS: u8 = 168;
/// An hour counts if at least this much of it was observed.
const LEAST_OBSERVED_MS: i64 = 30 * MINUTE_MS;
/// The newest week counts at least this much in the mean of an hour.
const WEEK_STEP: f64 = 0.25;
/// An hour of the week is known after this many weeks, an hour of the day after this many days.
const ENOUGH: u32 = 2;
/// The forecast is for the hour that begins within this time, as machines need time to start.
const LEAD_MS: i64 = 10 * MINUTE_MS;
/// 1970-01-01 was a Thursday, the fourth day of a week that begins on Monday.
const FIRST_DAY: i64 = 3;

/// The history, as it is stored. It has at most [`MAX_HOURS`] entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Hours {
    /// By hour of the week, from Monday 00:00 (UTC).
    by_hour: BTreeMap<u8, Hour>,
    under_way: Option<UnderWay>,
}

/// The tasks that came in one hour of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hour {
    /// On average.
    arrivals: f64,
    /// In how many weeks it was observed.
    weeks: u32,
}

/// The hour that is being observed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UnderWay {
    start: Timestamp,
    arrivals: u64,
    observed_ms: i64,
}

impl Hours {
    /// This many tasks have come in a time that was observed and ends now, by the clock.
    pub(super) fn observe(&mut self, clock: Timestamp, observed_ms: i64, arrivals: u64) {
        let start = clock.start_of(HOUR_MS);
        if self.under_way.is_some_and(|hour| hour.start != start) {
            self.finish();
        }
        let hour = self.under_way.get_or_insert(UnderWay {
            start,
            arrivals: 0,
            observed_ms: 0,
        });
        hour.arrivals = hour.arrivals.saturating_add(arrivals);
        hour.observed_ms = hour.observed_ms.saturating_add(observed_ms.max(0));
    }

    fn finish(&mut self) {
        let over = self.under_way.take();
        let Some(over) = over.filter(|hour| hour.observed_ms >= LEAST_OBSERVED_MS) else {
            return;
        };
        let arrivals = over.arrivals as f64 * HOUR_MS as f64 / over.observed_ms as f64;
        let hour = self.by_hour.entry(hour_of_week(over.start)).or_default();
        hour.weeks = hour.weeks.saturating_add(1);
        let step = WEEK_STEP.max(1.0 / f64::from(hour.weeks));
        hour.arrivals += step * (arrivals - hour.arrivals);
    }

    /// Tasks per second in the hour that is about to begin: the mean of that hour of the week, or
    /// of the same hour of all days. `None`: too little is known.
    pub(super) fn expected(&self, clock: Timestamp) -> Option<f64> {
        let hour = hour_of_week(clock.plus_millis(LEAD_MS));
        let of_week = self.by_hour.get(&hour).filter(|it| it.weeks >= ENOUGH);
        let arrivals = of_week.map(|it| it.arrivals).or_else(|| {
            let same = self
                .by_hour
                .iter()
                .filter(|(other, _)| *other % 24 == hour % 24);
            let days: u32 = same
                .clone()
                .map(|(_, it)| it.weeks)
                .fold(0, u32::saturating_add);
            let sum: f64 = same.map(|(_, it)| it.arrivals * f64::from(it.weeks)).sum();
            (days >= ENOUGH).then(|| sum / f64::from(days))
        });
        Some(arrivals? * 1_000.0 / HOUR_MS as f64)
    }
}

/// From 0 (Monday 00:00) to 167, in UTC.
fn hour_of_week(at: Timestamp) -> u8 {
    let ms = at.as_millis() + FIRST_DAY * DAY_MS;
    let hour = ms.div_euclid(HOUR_MS).rem_euclid(i64::from(MAX_HOURS));
    u8::try_from(hour).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 2026-01-05.
    fn monday(hours: i64) -> Timestamp {
        Timestamp::from_millis(1_767_571_200_000 + hours * HOUR_MS)
    }

    /// Observes one hour after another from Monday on, with this many tasks each.
    fn observed(arrivals: impl Iterator<Item = u64>) -> Hours {
        let mut hours = Hours::default();
        for (hour, arrivals) in arrivals.enumerate() {
            let start = monday(i64::try_from(hour).unwrap());
            hours.observe(start, HOUR_MS / 2, arrivals);
            hours.observe(start.plus_millis(HOUR_MS / 2), HOUR_MS / 2, 0);
        }
        hours
    }

    fn per_hour(hours: &Hours, at: Timestamp) -> Option<f64> {
        let rate = hours.expected(at)? * 3_600.0;
        Some((rate * 1_000.0).round() / 1_000.0)
    }

    #[test]
    fn the_hours_of_a_week_begin_on_monday() {
        assert_eq!(hour_of_week(monday(0)), 0);
        assert_eq!(hour_of_week(monday(25)), 25);
        assert_eq!(hour_of_week(monday(167)), 167);
        assert_eq!(hour_of_week(monday(168)), 0);
        assert_eq!(hour_of_week(monday(-1)), 167);
        assert_eq!(hour_of_week(Timestamp::from_millis(-1)), 3 * 24 - 1);
    }

    #[test]
    fn an_hour_is_expected_to_be_as_on_the_days_before() {
        // One day is no history.
        assert_eq!(per_hour(&observed(0..25), monday(25)), None);
        // Hour 1 of Monday and Tuesday had 1 and 25 tasks.
        assert_eq!(per_hour(&observed(0..49), monday(49)), Some(13.0));
        // Ten minutes before it begins, too.
        let before = monday(49).plus_millis(-LEAD_MS);
        assert_eq!(per_hour(&observed(0..49), before), Some(13.0));
        assert_eq!(
            per_hour(&observed(0..49), before.plus_millis(-1)),
            Some(12.0)
        );
    }

    #[test]
    fn after_two_weeks_each_day_of_the_week_counts_for_itself() {
        let weeks =
            |count: usize| observed((0..count * 168).map(|hour| u64::from(hour % 168 == 30) * 60));
        assert_eq!(per_hour(&weeks(1), monday(30)), Some(8.571));
        // The last hour is under way, and hour 30 was seen three times.
        let known = weeks(3);
        assert_eq!(per_hour(&known, monday(30)), Some(60.0));
        assert_eq!(per_hour(&known, monday(54)), Some(0.0));
        assert_eq!(known.by_hour.len(), usize::from(MAX_HOURS));
        // A change is followed.
        let mut changed = known;
        for week in 3..20 {
            changed.observe(monday(week * 168 + 30), HOUR_MS, 10);
            changed.observe(monday(week * 168 + 31), HOUR_MS, 0);
        }
        let rate = per_hour(&changed, monday(30)).unwrap();
        assert!((10.0..11.0).contains(&rate), "{rate}");
    }

    #[test]
    fn an_hour_of_which_little_was_observed_does_not_count() {
        let mut hours = Hours::default();
        for day in 0..4 {
            hours.observe(monday(24 * day), LEAST_OBSERVED_MS - 1, 1_000);
            // A clock that steps back ends the hour, too.
            hours.observe(monday(24 * day - 5), -7, 0);
        }
        assert_eq!(hours.by_hour.len(), 0);
        assert_eq!(hours.expected(monday(96)), None);
        for day in 0..4 {
            hours.observe(monday(24 * day), LEAST_OBSERVED_MS, 500);
        }
        assert_eq!(per_hour(&hours, monday(96)), Some(1_000.0));
    }
}
