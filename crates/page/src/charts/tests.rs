//! Tests of the charts: places inside the box, sums, limits, and texts of others.

mod axes;
mod columns;
mod drawn;
mod limits;
mod shapes;

use super::{Series, TimeRange};

const MINUTE_MS: i64 = 60_000;
/// The 30th of November 2026, 08:00 UTC.
const MORNING_MS: i64 = 1_796_025_600_000;

/// Six hours.
fn range() -> TimeRange {
    TimeRange::new(MORNING_MS, MORNING_MS + 360 * MINUTE_MS)
}

/// A value for each of the first minutes of the range.
fn minutes(values: impl IntoIterator<Item = f64>) -> Series {
    Series::new(MORNING_MS, MINUTE_MS, values)
}
