//! Numbers, times and money in words.

use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use maud::{Markup, html};

use crate::numbers;

/// A count with separators: 8,419.
pub(crate) fn count(number: u64) -> String {
    numbers::thousands(&number.to_string())
}

/// A cell of a count; zero is quiet.
pub(crate) fn count_cell(number: u64) -> Markup {
    html! { td .n .z[number == 0] { (count(number)) } }
}

/// A duration in milliseconds, in its two largest units: 3 h 20 min.
pub(crate) fn duration(milliseconds: i64) -> String {
    numbers::duration(milliseconds.max(0) as f64)
}

/// The same of a member of a reply; nothing if it is missing.
pub(crate) fn time_taken(milliseconds: Option<f64>) -> String {
    milliseconds.map_or_else(|| "–".to_owned(), numbers::duration)
}

/// Money, from millionths: $0.034, $2,913.
pub(crate) fn money(millionths: f64) -> String {
    numbers::dollars(millionths / 1_000_000.0)
}

/// A share of a total in percent.
pub(crate) fn percent(part: f64, total: f64) -> String {
    if total <= 0.0 {
        return "–".to_owned();
    }
    numbers::share(part / total)
}

/// How long ago, or in how long; the exact time is shown on hover. The script keeps it current.
pub(crate) fn ago(moment: Option<Timestamp>, now: Timestamp) -> Markup {
    let Some(moment) = moment else {
        return html! { span .z { "–" } };
    };
    let text = moment.to_string();
    html! { time datetime=(text) title=(format!("{text} (UTC)")) { (relative(moment, now)) } }
}

/// A text of the API with its times as people read them: `until 2026-11-30T13:00:00.000Z` becomes
/// `until 5 h from now`, with the exact time on hover.
pub(crate) fn timed(text: &str, now: Timestamp) -> Markup {
    let mut rest = text;
    html! {
        @while let Some((before, time, after)) = next_time(rest) {
            @let () = rest = after;
            @let exact = time.to_string();
            // A duration follows other words than a time does.
            @if let Some(before) = before.strip_suffix("at ").filter(|it| ends_a_word(it)) {
                (before) (ago(Some(time), now))
            } @else if before.ends_with("until ") && time > now {
                (before) time datetime=(exact) title={ (exact) " (UTC)" } data-from {
                    (largest_unit(time.millis_since(now))) " from now"
                }
            } @else {
                (before) (ago(Some(time), now))
            }
        }
        (rest)
    }
}

fn ends_a_word(text: &str) -> bool {
    text.is_empty() || text.ends_with(' ')
}

/// The first time in a text, with what is before and behind it.
fn next_time(text: &str) -> Option<(&str, Timestamp, &str)> {
    let is_of_time = |byte: u8| byte.is_ascii_digit() || b"-:.TZ".contains(&byte);
    let bytes = text.as_bytes();
    let starts = (0..bytes.len()).filter(|at| {
        // `2026-`: the rest is checked when it is read.
        bytes[*at].is_ascii_digit()
            && bytes.get(at + 4) == Some(&b'-')
            && !at
                .checked_sub(1)
                .is_some_and(|before| bytes[before].is_ascii_alphanumeric())
    });
    starts.into_iter().find_map(|start| {
        let length = bytes[start..].iter().take_while(|byte| is_of_time(**byte));
        let end = start + length.count();
        // A full stop may end the sentence.
        let end = start + text.get(start..end)?.trim_end_matches('.').len();
        let time: Timestamp = text.get(start..end)?.parse().ok()?;
        Some((text.get(..start)?, time, text.get(end..)?))
    })
}

pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    let past = now.millis_since(moment);
    let size = largest_unit(past.abs());
    if past < 0 {
        format!("in {size}")
    } else {
        format!("{size} ago")
    }
}

fn largest_unit(milliseconds: i64) -> String {
    let units = [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min")];
    let found = units.into_iter().find(|(unit, _)| milliseconds >= *unit);
    let (unit, name) = found.unwrap_or((SECOND_MS, "s"));
    format!("{} {name}", milliseconds / unit)
}

/// `1 worker`, `2 workers`.
pub(crate) fn counted(number: u64, singular: &str) -> String {
    match number {
        1 => format!("1 {singular}"),
        _ => format!("{} {singular}s", count(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        let texts: Vec<_> = [0, 999, 1_000, 12_345, 1_234_567].map(count).into();
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn times_in_a_text_are_relative_and_the_rest_stays() {
        let now: Timestamp = "2026-11-30T08:00:00.000Z".parse().unwrap();
        let plain = |text: &str| {
            let html = timed(text, now).into_string();
            let mut inside = true;
            let keep = |letter: &char| {
                let was_inside = inside;
                inside = match letter {
                    '<' => false,
                    '>' => true,
                    _ => inside,
                };
                was_inside && inside
            };
            html.chars().filter(keep).collect::<String>()
        };
        let cases = [
            (
                "paused until 2026-11-30T13:32:29.030Z by ana",
                "paused until 5 h from now by ana",
            ),
            (
                "the next period begins at 2026-12-01T00:00:00.000Z.",
                "the next period begins in 16 h.",
            ),
            (
                "since 2026-11-30T06:00:00.000Z, and 2026-11-30T07:00:00Z",
                "since 2 h ago, and 1 h ago",
            ),
            ("that 2026-11-30T07:00:00.000Z", "that 1 h ago"),
            ("build 2026-11 of 1234-56", "build 2026-11 of 1234-56"),
            ("<b>", "&lt;b&gt;"),
            ("", ""),
        ];
        for (text, wanted) in cases {
            assert_eq!(plain(text), wanted);
        }
    }

    #[test]
    fn times_are_relative_with_the_exact_one_on_hover() {
        let now = Timestamp::from_millis(1_000_000_000);
        let shown = ago(Some(now.plus_millis(-3 * MINUTE_MS)), now).into_string();
        let exact = "1970-01-12T13:43:40.000Z";
        let wanted = format!("<time datetime=\"{exact}\" title=\"{exact} (UTC)\">3 min ago</time>");
        assert_eq!(shown, wanted);
        assert_eq!(relative(now.plus_millis(2 * DAY_MS), now), "in 2 d");
    }
}
