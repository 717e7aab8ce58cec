//! Timestamps and the clock, which is always a parameter.

use std::fmt;
use std::str::FromStr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::id::text_in_json;

pub const SECOND_MS: i64 = 1_000;
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// The last moment with a year of four digits; RFC 3339 has no later one.
const LATEST_MS: i64 = 253_402_300_799_999;
/// The first moment of year 0; RFC 3339 has no earlier one.
const EARLIEST_MS: i64 = -62_167_219_200_000;

/// A moment in milliseconds since 1970 (UTC), always within the range of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Reads the time. Read it once per activation or request and pass the value on.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Milliseconds of a monotonic clock. Only differences are meaningful.
    fn steady_ms(&self) -> i64 {
        self.now().as_millis()
    }

    /// Why this clock may be wrong at the moment. Nothing is decided by it meanwhile.
    fn doubt(&self) -> Option<String> {
        None
    }

    /// For how long the time has passed evenly: since its last step.
    fn even_ms(&self) -> i64 {
        i64::MAX
    }

    /// How far the clock of this machine is ahead of this one; `None`: not known.
    fn machine_ahead_ms(&self) -> Option<i64> {
        None
    }

    /// Facts about the clock that people should know.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a date and time like 2026-09-21T14:13:20.000Z")]
pub struct BadTimestamp(pub String);

impl Timestamp {
    /// Moments outside the range of RFC 3339 become the nearest moment inside it.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(EARLIEST_MS, LATEST_MS))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    pub fn plus_millis(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }

    pub fn plus_seconds(self, seconds: i64) -> Self {
        self.plus_millis(seconds.saturating_mul(SECOND_MS))
    }

    /// Milliseconds since `earlier`.
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The start of the period of this length (an hour, a day) that contains this moment, UTC.
    pub fn start_of(self, period_ms: i64) -> Self {
        Self::from_millis(self.0 - self.0.rem_euclid(period_ms))
    }
}

impl fmt::Display for Timestamp {
    /// Writes the digits directly: lists print thousands of timestamps, and formatting macros are
    /// slower.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0) * 1_000_000;
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).map_err(|_| fmt::Error)?;
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put_digits(&mut text[0..4], at.year().unsigned_abs());
        put_digits(&mut text[5..7], u8::from(at.month()).into());
        put_digits(&mut text[8..10], at.day().into());
        put_digits(&mut text[11..13], at.hour().into());
        put_digits(&mut text[14..16], at.minute().into());
        put_digits(&mut text[17..19], at.second().into());
        put_digits(&mut text[20..23], at.millisecond().into());
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes decimal digits from the right; remaining positions on the left are unchanged.
fn put_digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    /// Parses any RFC 3339 date and time; fractions finer than milliseconds are cut.
    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        let bad = || BadTimestamp(text.to_owned());
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| bad())?;
        let millis = moment.unix_timestamp_nanos().div_euclid(1_000_000);
        Ok(Self::from_millis(i64::try_from(millis).map_err(|_| bad())?))
    }
}

text_in_json!(Timestamp);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_moment_prints_with_milliseconds_and_z() {
        assert_eq!(
            Timestamp::from_millis(1_790_000_000_007).to_string(),
            "2026-09-21T14:13:20.007Z"
        );
    }

    #[test]
    fn offsets_and_fine_fractions_are_read() {
        let moment: Timestamp = "2026-09-21T16:13:20.0079999+02:00".parse().unwrap();
        assert_eq!(moment.as_millis(), 1_790_000_000_007);
    }

    #[test]
    fn an_invalid_date_is_refused() {
        for text in ["", "yesterday", "2026-09-21", "2026-13-01T00:00:00Z"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_hour_of_a_moment_starts_at_its_full_hour() {
        let moment: Timestamp = "2026-09-21T14:13:20.000Z".parse().unwrap();
        assert_eq!(
            moment.start_of(HOUR_MS).to_string(),
            "2026-09-21T14:00:00.000Z"
        );
        assert_eq!(
            moment.start_of(DAY_MS).to_string(),
            "2026-09-21T00:00:00.000Z"
        );
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(millis in any::<i64>()) {
            let moment = Timestamp::from_millis(millis);
            prop_assert_eq!(moment.to_string().parse::<Timestamp>(), Ok(moment));
        }
    }
}
