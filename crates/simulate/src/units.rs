//! Conversions between milliseconds, in which simulations count, and the units that people read.

pub(crate) const SECOND: f64 = 1_000.0;
pub(crate) const HOUR: f64 = 3_600.0 * SECOND;

/// Rounds to a millisecond.
pub(crate) fn to_ms(seconds: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is too large becomes the largest number"
    )]
    let ms = (seconds * SECOND).round() as i64;
    ms
}

pub(crate) fn to_seconds(ms: i64) -> f64 {
    ms as f64 / SECOND
}

pub(crate) fn to_hours(ms: i64) -> f64 {
    ms as f64 / HOUR
}
