//! Conditional and partial requests: entity tags and ranges of bytes, as RFC 9110 defines them.

use std::ops::Range;

use http::header::{ACCEPT_ENCODING, AsHeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method};

use super::request_head::RequestHead;

/// Which part of a reply the client needs, and in which encodings.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    if_none_match: String,
    range: Option<String>,
    if_range: Option<String>,
    /// The client names its encodings, and gzip is none of them.
    pub refuses_gzip: bool,
}

/// The answer to a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    Bytes(Range<u64>),
    /// The content ends before the range begins.
    Beyond,
}

impl Conditions {
    pub(super) fn of(head: &RequestHead) -> Self {
        let headers = &head.headers;
        let names_encodings = headers.contains_key(ACCEPT_ENCODING);
        Self {
            if_none_match: single(headers, IF_NONE_MATCH).unwrap_or_default(),
            range: single(headers, RANGE).filter(|_| head.method == Method::GET),
            if_range: single(headers, IF_RANGE),
            refuses_gzip: names_encodings && !accepts_gzip(headers),
        }
    }

    /// Whether the client has the content with this entity tag.
    pub fn know(&self, tag: &HeaderValue) -> bool {
        self.if_none_match.split(',').map(str::trim).any(|given| {
            let given = given.strip_prefix("W/").unwrap_or(given);
            given == "*" || given.as_bytes() == tag.as_bytes()
        })
    }

    /// The part of the content with this entity tag that the client asks for. Anything but a single
    /// range of bytes is answered with all of it, as is a client that has a part of other content.
    pub fn part(&self, tag: &HeaderValue, length: u64) -> Part {
        let continues = match &self.if_range {
            Some(given) => given.as_bytes() == tag.as_bytes(),
            None => true,
        };
        let range = self.range.as_deref().filter(|_| continues);
        range
            .and_then(|range| part(range, length))
            .unwrap_or(Part::All)
    }
}

/// A header that was sent twice is ignored: which one counts is unknown.
fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    value.to_str().ok().map(str::to_owned)
}

/// `None`: this is not a single range of bytes.
fn part(range: &str, length: u64) -> Option<Part> {
    let (unit, range) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let bytes = match (first, last) {
        ("", suffix) => length.saturating_sub(number(suffix)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..length.min(last.saturating_add(1))
        }
    };
    Some(match bytes.is_empty() {
        true => Part::Beyond,
        false => Part::Bytes(bytes),
    })
}

/// Digits alone. A number above every length means the end of the content.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether the client names gzip, or all encodings, and does not exclude it.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let codings: Vec<(String, bool)> = texts.flat_map(|text| text.split(',')).map(coding).collect();
    let named = |name: &str| codings.iter().find(|(other, _)| other == name);
    let gzip = named("gzip").or_else(|| named("x-gzip"));
    gzip.or_else(|| named("*"))
        .is_some_and(|(_, is_accepted)| *is_accepted)
}

/// A coding in lower case, and whether its weight is above zero.
fn coding(part: &str) -> (String, bool) {
    let mut parts = part.split(';');
    let name = parts.next().unwrap_or_default().trim();
    let excluded = parts.any(|parameter| {
        let value = parameter.trim().strip_prefix("q=");
        value.is_some_and(|weight| weight.trim().parse() == Ok(0.0))
    });
    (name.to_ascii_lowercase(), !excluded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: HeaderValue = HeaderValue::from_static("\"a\"");

    fn asked(range: &str, if_range: Option<&str>) -> Conditions {
        Conditions {
            range: Some(range.to_owned()),
            if_range: if_range.map(str::to_owned),
            ..Conditions::default()
        }
    }

    #[test]
    fn single_ranges_are_parts_and_others_are_ignored() {
        for (range, expected) in [
            ("bytes=0-0", Part::Bytes(0..1)),
            ("bytes=3-5", Part::Bytes(3..6)),
            ("bytes=3-", Part::Bytes(3..10)),
            ("bytes=9-", Part::Bytes(9..10)),
            ("bytes=9-9", Part::Bytes(9..10)),
            ("bytes=10-", Part::Beyond),
            ("bytes=11-20", Part::Beyond),
            ("bytes=0-99", Part::Bytes(0..10)),
            ("Bytes = 0-1", Part::Bytes(0..2)),
            ("bytes=-1", Part::Bytes(9..10)),
            ("bytes=-10", Part::Bytes(0..10)),
            ("bytes=-11", Part::Bytes(0..10)),
            ("bytes=-0", Part::Beyond),
            ("bytes=99999999999999999999-", Part::Beyond),
            ("bytes=0-18446744073709551615", Part::Bytes(0..10)),
            ("bytes=-99999999999999999999", Part::Bytes(0..10)),
            ("bytes=5-3", Part::All),
            ("bytes=0-1,3-4", Part::All),
            ("bytes=", Part::All),
            ("bytes=-", Part::All),
            ("bytes=+1-2", Part::All),
            ("bytes=0x1-", Part::All),
            ("lines=0-1", Part::All),
            ("0-1", Part::All),
            ("", Part::All),
        ] {
            assert_eq!(asked(range, None).part(&TAG, 10), expected, "{range}");
        }
    }

    #[test]
    fn no_range_begins_in_empty_content() {
        for range in ["bytes=0-", "bytes=0-0", "bytes=-0", "bytes=-1"] {
            assert_eq!(asked(range, None).part(&TAG, 0), Part::Beyond, "{range}");
        }
    }

    #[test]
    fn a_part_of_other_content_is_not_continued() {
        for (if_range, continues) in [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            ("*", false),
            ("a", false),
            ("", false),
            ("Sun, 29 Nov 2026 20:00:00 GMT", false),
        ] {
            let part = asked("bytes=1-", Some(if_range)).part(&TAG, 10);
            assert_eq!(part == Part::Bytes(1..10), continues, "{if_range}");
            assert_eq!(part == Part::All, !continues, "{if_range}");
        }
    }

    #[test]
    fn known_content_has_one_of_the_tags_whether_weak_or_not() {
        for (given, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            let conditions = Conditions {
                if_none_match: given.to_owned(),
                ..Conditions::default()
            };
            assert_eq!(conditions.know(&TAG), expected, "{given}");
        }
    }

    #[test]
    fn headers_that_were_sent_twice_are_ignored() {
        let mut headers = HeaderMap::new();
        assert_eq!(single(&headers, RANGE), None);
        headers.append(RANGE, HeaderValue::from_static("bytes=0-1"));
        assert_eq!(single(&headers, RANGE).as_deref(), Some("bytes=0-1"));
        headers.append(RANGE, HeaderValue::from_static("bytes=3-4"));
        assert_eq!(single(&headers, RANGE), None);
    }

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("GZip", true),
            ("deflate, gzip;q=0.5", true),
            ("x-gzip", true),
            ("*", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000, *", false),
            ("*;q=0", false),
            ("br;q=1, deflate", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(accepts_gzip(&headers), expected, "{accepted}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
