//! Numbers, times and money in words.

use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use maud::{Markup, html};

/// A count with separators: 8,419.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A cell of a count; zero is quiet.
pub(crate) fn count_cell(number: u64) -> Markup {
    html! { td .n .z[number == 0] { (count(number)) } }
}

/// A duration in its two largest units: 3 h 20 min.
pub(crate) fn duration(milliseconds: i64) -> String {
    let milliseconds = milliseconds.max(0);
    let pair = |large: i64, name: &str, small: i64, small_name: &str| {
        let (number, rest) = (milliseconds / large, milliseconds % large / small);
        match rest {
            0 => format!("{number} {name}"),
            _ => format!("{number} {name} {rest} {small_name}"),
        }
    };
    if milliseconds == 0 {
        "0 s".to_owned()
    } else if milliseconds < SECOND_MS {
        format!("{milliseconds} ms")
    } else if milliseconds < MINUTE_MS {
        format!("{} s", milliseconds / SECOND_MS)
    } else if milliseconds < HOUR_MS {
        pair(MINUTE_MS, "min", SECOND_MS, "s")
    } else if milliseconds < DAY_MS {
        pair(HOUR_MS, "h", MINUTE_MS, "min")
    } else {
        pair(DAY_MS, "d", HOUR_MS, "h")
    }
}

/// Money, from millionths: $0.034, $2,913.
pub(crate) fn money(millionths: f64) -> String {
    let dollars = millionths / 1_000_000.0;
    let sign = if dollars < 0.0 { "−" } else { "" };
    let size = dollars.abs();
    if size >= 100.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "larger sums of money do not exist"
        )]
        let whole = size.round() as u64;
        return format!("{sign}${}", count(whole));
    }
    match size {
        0.0 => "$0".to_owned(),
        1.0.. => format!("{sign}${size:.2}"),
        0.001.. => format!("{sign}${size:.3}"),
        _ => format!("{sign}< $0.001"),
    }
}

/// A share of a total in percent, without decimals.
pub(crate) fn percent(part: f64, total: f64) -> String {
    if total <= 0.0 {
        return "–".to_owned();
    }
    let percent = part / total * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        ..1.0 => "< 1 %".to_owned(),
        _ => format!("{percent:.0} %"),
    }
}

/// How long ago, or in how long; the exact time is shown on hover. The script keeps it current.
pub(crate) fn ago(moment: Option<Timestamp>, now: Timestamp) -> Markup {
    let Some(moment) = moment else {
        return html! { span .z { "–" } };
    };
    let text = moment.to_string();
    html! { time datetime=(text) title=(format!("{text} (UTC)")) { (relative(moment, now)) } }
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
    fn durations_have_two_units() {
        let texts: Vec<_> = [
            -5, 0, 999, 1_000, 59_999, 60_000, 61_000, 3_600_000, 12_000_000, 90_000_000,
        ]
        .map(duration)
        .into();
        let wanted = [
            "0 s",
            "0 s",
            "999 ms",
            "1 s",
            "59 s",
            "1 min",
            "1 min 1 s",
            "1 h",
            "3 h 20 min",
            "1 d 1 h",
        ];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn money_has_as_many_digits_as_people_read() {
        let texts: Vec<_> = [
            0.0,
            5.0,
            34_000.0,
            2_500_000.0,
            2_913_000_000.0,
            -3_000_000.0,
        ]
        .map(money)
        .into();
        let wanted = ["$0", "< $0.001", "$0.034", "$2.50", "$2,913", "−$3.00"];
        assert_eq!(texts, wanted);
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
