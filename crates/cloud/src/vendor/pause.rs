//! The headers by which vendors limit the rate of our calls.

use std::time::Duration;

use domain::time::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use crate::call_scope::MAX_PAUSE;

/// Azure's counts of the calls of some resource that are left, like
/// `Microsoft.Compute/PutVM3Min;239,Microsoft.Compute/PutVM30Min;1198`.
const LEFT_OF_RESOURCE: &str = "x-ms-ratelimit-remaining-resource";
/// The beginnings of the names of Azure's counts of all calls that are left, like
/// `x-ms-ratelimit-remaining-subscription-writes`.
const LEFT: [&str; 2] = [
    "x-ms-ratelimit-remaining-subscription-",
    "x-ms-ratelimit-remaining-tenant-",
];
/// Counts up to this one mean that the calls are used up: other calls may be under way.
const FEW: u64 = 3;
/// Azure allows new calls steadily. The pause is this part of the time in which it allows all.
const PART: u32 = 10;
/// The longest pause for this reason. It is no longer than calls may wait, so they go on slowly
/// even if a count never rises.
const LONGEST_PART: Duration = Duration::from_secs(20);
/// The pause after a count without a time.
const USUAL_PAUSE: Duration = Duration::from_secs(10);

/// How long the vendor asks to wait: seconds, or a date, which its own clock explains.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let now = read_date(headers.get(DATE)?.to_str().ok()?)?;
            let millis = read_date(text)?.millis_since(now);
            Duration::from_millis(u64::try_from(millis).unwrap_or(0))
        }
    };
    Some(wait.min(MAX_PAUSE))
}

/// A date like `Sun, 06 Nov 1994 08:49:37 GMT`.
fn read_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = text.strip_suffix(" GMT")?.split_once(", ")?;
    let parts: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, time] = parts.try_into().ok()?;
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    format!("{year}-{month:02}-{day}T{time}.000Z").parse().ok()
}

/// The pause before the next call of this kind, if few are left.
pub(super) fn scarcity(headers: &HeaderMap) -> Option<Duration> {
    let of_resource = headers.get_all(LEFT_OF_RESOURCE).iter();
    let of_resource = of_resource.filter_map(|value| value.to_str().ok());
    let counts = of_resource.flat_map(|text| text.split(','));
    let pauses = counts.filter_map(|count| {
        let (name, left) = count.trim().split_once(';')?;
        is_few(left).then(|| pause_of(name))
    });
    let is_count = |name: &str| LEFT.iter().any(|start| name.starts_with(start));
    let totals = headers.iter().filter(|(name, _)| is_count(name.as_str()));
    let used_up = totals.filter(|(_, left)| left.to_str().is_ok_and(is_few));
    pauses.chain(used_up.map(|_| USUAL_PAUSE)).max()
}

fn is_few(left: &str) -> bool {
    left.trim().parse::<u64>().is_ok_and(|left| left <= FEW)
}

/// The name of a count ends with the minutes in which Azure allows all calls: `PutVM3Min`.
fn pause_of(name: &str) -> Duration {
    let minutes = name.strip_suffix("Min").map(|name| {
        let digits = name.trim_end_matches(|it: char| it.is_ascii_digit());
        &name[digits.len()..]
    });
    let minutes = minutes.and_then(|digits| digits.parse::<u32>().ok());
    let pause = minutes.map(|minutes| Duration::from_secs(60) * minutes.min(60) / PART);
    pause
        .filter(|pause| !pause.is_zero())
        .unwrap_or(USUAL_PAUSE)
        .min(LONGEST_PART)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_wait_is_in_seconds_or_until_a_date_and_has_a_limit() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (value, expected) in [
            ("17", Some(17)),
            (" 0 ", Some(0)),
            ("100000", Some(600)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", Some(600)),
            ("-1", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:50:07", None),
            ("Sun, 06 Foo 1994 08:50:07 GMT", None),
        ] {
            let found = retry_after(&headers(&[("retry-after", value), ("date", date)]));
            assert_eq!(found, expected.map(Duration::from_secs), "{value}");
        }
        let undated = headers(&[("retry-after", date)]);
        assert_eq!(retry_after(&undated), None);
        assert_eq!(retry_after(&headers(&[])), None);
    }

    #[test]
    fn few_calls_that_are_left_ask_for_a_pause() {
        const RESOURCE: &str = "x-ms-ratelimit-remaining-resource";
        const WRITES: &str = "x-ms-ratelimit-remaining-subscription-writes";
        for (name, value, expected) in [
            (RESOURCE, "Microsoft.Compute/PutVM3Min;239", None),
            (RESOURCE, "Microsoft.Compute/PutVM3Min;4", None),
            (RESOURCE, "Microsoft.Compute/PutVM3Min;3", Some(18)),
            (RESOURCE, "Microsoft.Compute/PutVM3Min;0", Some(18)),
            (RESOURCE, "C/PutVM3Min;0, C/PutVM30Min;0", Some(20)),
            (RESOURCE, "C/PutVM3Min;9,C/PutVM30Min;1", Some(20)),
            (RESOURCE, "C/Reads;0", Some(10)),
            (RESOURCE, "C/PutVM0Min;0", Some(10)),
            (RESOURCE, "C/PutVM99999999999Min;0", Some(10)),
            (RESOURCE, "nonsense", None),
            (RESOURCE, "C/PutVM3Min;-1", None),
            (WRITES, "1199", None),
            (WRITES, "3", Some(10)),
            (WRITES, "none", None),
            ("x-ms-ratelimit-remaining-tenant-reads", "0", Some(10)),
            ("x-ms-ratelimit-remaining-other", "0", None),
        ] {
            let found = scarcity(&headers(&[(name, value)]));
            assert_eq!(found, expected.map(Duration::from_secs), "{name}: {value}");
        }
    }
}
