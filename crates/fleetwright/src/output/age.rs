//! Relative times such as "3m ago" and "in 30d".

use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

/// Units from large to small; the largest that fits is used.
const UNITS: [(i64, char); 5] = [
    (365 * DAY_MS, 'y'),
    (DAY_MS, 'd'),
    (HOUR_MS, 'h'),
    (MINUTE_MS, 'm'),
    (SECOND_MS, 's'),
];

/// Later expiry times are shown as "never".
const NEVER_MS: u64 = 500 * 365 * DAY_MS.unsigned_abs();

pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let elapsed = now.millis_since(then);
    let amount = elapsed.unsigned_abs();
    let unit = UNITS
        .iter()
        .map(|(length, name)| (length.unsigned_abs(), name))
        .find(|(length, _)| amount >= *length);
    if elapsed < 0 && amount >= NEVER_MS {
        return "never".to_owned();
    }
    match unit {
        None => "now".to_owned(),
        // Rounded: an expiry that was just set to 90 days is not shown as 89.
        Some((length, name)) if elapsed < 0 => {
            format!("in {}{name}", (amount + length / 2) / length)
        }
        Some((length, name)) => format!("{}{name} ago", amount / length),
    }
}

/// A time for people, to the second: `2026-11-21 06:19:13Z`.
pub(crate) fn clock(moment: Timestamp) -> String {
    let text = moment.to_string().replace('T', " ");
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{seconds}Z")
}

/// Parses a time from the command line: a timestamp, or a duration from now such as `90d`.
pub(crate) fn parse_moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let length = UNITS.iter().find_map(|(length, name)| {
        let amount: i64 = text.strip_suffix(*name)?.parse().ok()?;
        amount.checked_mul(*length).filter(|length| *length >= 0)
    });
    length.map(|length| now.plus_millis(length)).ok_or_else(|| {
        format!(
            "{text:?} is neither a time such as 2027-01-31T12:00:00Z nor a duration such as 90d, \
             12h or 30m"
        )
    })
}

/// The same, with a duration before now.
pub(crate) fn parse_past_moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let ahead = parse_moment(text, now)?;
    Ok(now.plus_millis(-ahead.millis_since(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000_000).plus_seconds(seconds)
    }

    #[test]
    fn an_age_has_one_unit() {
        for (seconds, text) in [
            (0, "now"),
            (-59, "59s ago"),
            (-200, "3m ago"),
            (-7_300, "2h ago"),
            (-100 * 86_400, "100d ago"),
            (61, "in 1m"),
            (86_400, "in 1d"),
            (90 * 86_400 - 1, "in 90d"),
            (-800 * 86_400, "2y ago"),
        ] {
            assert_eq!(age(at(seconds), at(0)), text);
        }
    }

    #[test]
    fn a_time_is_shown_to_the_second_with_its_zone() {
        let moment: Timestamp = "2026-11-21T06:19:13.999Z".parse().unwrap();
        assert_eq!(clock(moment), "2026-11-21 06:19:13Z");
    }

    #[test]
    fn the_furthest_moments_have_an_age_too() {
        let ends = [i64::MIN, i64::MAX].map(Timestamp::from_millis);
        assert!(age(ends[0], ends[1]).ends_with("y ago"));
        assert_eq!(age(ends[1], ends[0]), "never");
    }

    #[test]
    fn a_moment_is_a_time_or_a_length_from_now() {
        assert_eq!(parse_moment("90s", at(0)), Ok(at(90)));
        assert_eq!(parse_moment("2d", at(0)), Ok(at(2 * 86_400)));
        let text = at(5).to_string();
        assert_eq!(parse_moment(&text, at(0)), Ok(at(5)));
        assert_eq!(parse_past_moment("2d", at(0)), Ok(at(-2 * 86_400)));
        assert_eq!(parse_past_moment(&text, at(0)), Ok(at(5)));
        assert!(parse_past_moment("soon", at(0)).is_err());
        for wrong in ["", "d", "-3d", "3", "3w", "9223372036854775807d", "soon"] {
            assert!(parse_moment(wrong, at(0)).is_err(), "{wrong}");
        }
    }
}
