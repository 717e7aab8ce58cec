//! Series: levels and counts over time, in points of minutes, hours and days.
//!
//! A point of a minute has the levels at one moment of it. Points of hours and days are sums and
//! maxima of minutes, so the mean over the recorded minutes is exact.

use crate::id::{LaunchConfigId, PoolId, names};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};

/// Maximum number of points of one answer.
pub const MAX_POINTS: i64 = 1_500;
/// How long minutes are kept: a day, and an hour more, so that no minute of the last day is missing
/// while old ones are deleted.
pub const MINUTES_KEPT_MS: i64 = 25 * HOUR_MS;
pub const HOURS_KEPT_MS: i64 = 90 * DAY_MS;
pub const DAYS_KEPT_MS: i64 = 3 * 366 * DAY_MS;

/// The length of time that a point is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesStep {
    Minute,
    Hour,
    Day,
}

names! {
    SeriesStep, "not one of minute, hour, day",
    Minute = "minute",
    Hour = "hour",
    Day = "day",
}

impl SeriesStep {
    pub fn millis(self) -> i64 {
        match self {
            Self::Minute => MINUTE_MS,
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }

    pub fn kept_ms(self) -> i64 {
        match self {
            Self::Minute => MINUTES_KEPT_MS,
            Self::Hour => HOURS_KEPT_MS,
            Self::Day => DAYS_KEPT_MS,
        }
    }

    /// The finest step that covers this time, whose points of the beginning are still kept.
    pub fn finest(from: Timestamp, until: Timestamp, now: Timestamp) -> Self {
        let fits = |step: &Self| {
            Period::new(*step, from, until).n_points() <= MAX_POINTS
                && now.millis_since(from) <= step.kept_ms()
        };
        Self::ALL.into_iter().find(fits).unwrap_or(Self::Day)
    }
}

/// A time that begins and ends with a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub step: SeriesStep,
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Period {
    /// The points that contain these moments, and those between them.
    pub fn new(step: SeriesStep, from: Timestamp, until: Timestamp) -> Self {
        let span = step.millis();
        Self {
            step,
            from: from.start_of(span),
            until: until.plus_millis(span - 1).start_of(span),
        }
    }

    pub fn n_points(&self) -> i64 {
        self.until.millis_since(self.from) / self.step.millis()
    }

    /// When each point begins.
    pub fn beginnings(&self) -> impl Iterator<Item = Timestamp> + use<> {
        let (from, span) = (self.from, self.step.millis());
        (0..self.n_points()).map(move |number| from.plus_millis(number * span))
    }
}

/// The subject of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKey {
    All,
    Pool(PoolId),
    LaunchConfig(PoolId, LaunchConfigId),
}

impl SeriesKey {
    /// The pool and the launch config; an empty text stands for all.
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::All => ("", ""),
            Self::Pool(pool) => (pool.as_str(), ""),
            Self::LaunchConfig(pool, config) => (pool.as_str(), config.as_str()),
        }
    }
}

/// Tasks that wait, and units of capacity by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetLevels {
    pub waiting: i64,
    /// Machines that the cloud was asked for and has not made yet.
    pub requested: i64,
    /// Machines whose worker has not registered.
    pub booting: i64,
    pub idle: i64,
    pub busy: i64,
    /// Workers that were asked to stop and run no task, or are stopping.
    pub leaving: i64,
}

impl FleetLevels {
    /// The units that exist or are to come.
    pub fn capacity(&self) -> i64 {
        self.requested + self.booting + self.idle + self.busy + self.leaving
    }
}

/// Counts of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Machines that were made.
    pub launched: i64,
    /// Machines that a provider refused.
    pub refused: i64,
    /// Machines that ended, and whose worker never registered.
    pub failed: i64,
    /// Millionths of the currency. A refund makes it negative.
    pub cost: i64,
    /// Milliseconds that tasks had waited whose wait ended.
    pub waited: i64,
}

/// The values of a series at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub levels: FleetLevels,
    pub tallies: FleetCounts,
}

impl Values {
    pub fn add(&mut self, other: &Self) {
        let (levels, of) = (&mut self.levels, &other.levels);
        levels.waiting += of.waiting;
        levels.requested += of.requested;
        levels.booting += of.booting;
        levels.idle += of.idle;
        levels.busy += of.busy;
        levels.leaving += of.leaving;
        let (tallies, of) = (&mut self.tallies, &other.tallies);
        tallies.launched += of.launched;
        tallies.refused += of.refused;
        tallies.failed += of.failed;
        tallies.cost += of.cost;
        tallies.waited += of.waited;
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// A point that was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// How many minutes of its time were recorded; at least 1.
    pub minutes: i64,
    /// Sums over these minutes.
    pub values: Values,
    /// The highest of these minutes.
    pub highest: FleetLevels,
}

impl Point {
    /// The mean of a level over the minutes that were recorded, in thousandths.
    pub fn mean_thousandths(&self, sum: i64) -> i64 {
        sum.saturating_mul(1_000) / self.minutes.max(1)
    }
}

/// Running units that have tasks, and those that have none.
pub fn split_running(capacity: i64, claimed: i64) -> (i64, i64) {
    let busy = claimed.clamp(0, capacity.max(0));
    (busy, capacity - busy)
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    const NOW: i64 = 20_000 * DAY_MS + 5 * HOUR_MS + 7 * MINUTE_MS + 1;

    fn ago(ms: i64) -> Timestamp {
        Timestamp::from_millis(NOW - ms)
    }

    #[test]
    fn the_finest_step_has_at_most_so_many_points_and_is_kept() {
        let finest = |ms| SeriesStep::finest(ago(ms), ago(0), ago(0));
        assert_eq!(finest(1), SeriesStep::Minute);
        assert_eq!(finest(DAY_MS), SeriesStep::Minute);
        assert_eq!(finest(MINUTES_KEPT_MS), SeriesStep::Hour);
        assert_eq!(finest(7 * DAY_MS), SeriesStep::Hour);
        assert_eq!(finest(63 * DAY_MS), SeriesStep::Day);
        assert_eq!(finest(10_000 * DAY_MS), SeriesStep::Day);
        // A short time long ago has only hours, or only days.
        let past = |days: i64| {
            let from = ago(days * DAY_MS);
            SeriesStep::finest(from, from.plus_millis(HOUR_MS), ago(0))
        };
        assert_eq!(
            [past(2), past(89), past(91)],
            [SeriesStep::Hour, SeriesStep::Hour, SeriesStep::Day]
        );
        for count in sizes_around("domain::series::MAX_POINTS", 1_500) {
            let from = Timestamp::from_millis(0);
            let count = i64::try_from(count).unwrap();
            let until = from.plus_millis(count * MINUTE_MS);
            let step = SeriesStep::finest(from, until, from);
            assert_eq!(step == SeriesStep::Minute, count <= MAX_POINTS, "{count}");
        }
    }

    #[test]
    fn a_period_has_all_points_that_it_touches() {
        let period = Period::new(SeriesStep::Hour, ago(2 * HOUR_MS), ago(0));
        assert_eq!(period.n_points(), 3);
        let beginnings: Vec<Timestamp> = period.beginnings().collect();
        assert_eq!(beginnings.len(), 3);
        assert_eq!(beginnings[0], period.from);
        assert_eq!(beginnings[2].plus_millis(HOUR_MS), period.until);
        let exact = Timestamp::from_millis(DAY_MS);
        let period = Period::new(SeriesStep::Day, exact, exact.plus_millis(DAY_MS));
        assert_eq!(period.beginnings().collect::<Vec<_>>(), [exact]);
    }

    #[test]
    fn more_tasks_than_units_make_no_worker_busier_than_busy() {
        assert_eq!(split_running(4, 0), (0, 4));
        assert_eq!(split_running(4, 3), (3, 1));
        assert_eq!(split_running(4, 9), (4, 0));
        assert_eq!(split_running(0, 2), (0, 0));
    }

    #[test]
    fn a_mean_is_over_the_recorded_minutes() {
        let point = Point {
            minutes: 40,
            ..Point::default()
        };
        assert_eq!(point.mean_thousandths(50), 1_250);
        assert_eq!(Point::default().mean_thousandths(3), 3_000);
    }
}
