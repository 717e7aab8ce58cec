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
    fn times_are_relative_with_the_exact_one_on_hover() {
        let now = Timestamp::from_millis(1_000_000_000);
        let shown = ago(Some(now.plus_millis(-3 * MINUTE_MS)), now).into_string();
        let exact = "1970-01-12T13:43:40.000Z";
        let wanted = format!("<time datetime=\"{exact}\" title=\"{exact} (UTC)\">3 min ago</time>");
        assert_eq!(shown, wanted);
        assert_eq!(relative(now.plus_millis(2 * DAY_MS), now), "in 2 d");
    }
}
