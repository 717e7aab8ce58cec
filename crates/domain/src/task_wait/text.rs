//! Words for answers about waits.

use crate::text::one_line;
use crate::time::Timestamp;

/// Characters of others that an answer repeats.
const MAX_QUOTED_CHARS: usize = 300;

/// `2026-11-21 12:03:10Z`
pub(super) fn clock(moment: Timestamp) -> String {
    let text = moment.to_string().replace('T', " ");
    format!("{}Z", text.get(..19).unwrap_or(&text))
}

/// The words of a cloud or program, as one short line.
pub(super) fn quoted(text: &str) -> String {
    format!("\u{201c}{}\u{201d}", one_line(text, MAX_QUOTED_CHARS))
}

/// `a task`, `3 tasks`
pub(super) fn plural(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => one.to_owned(),
        count => format!("{count} {many}"),
    }
}

/// The first names, and how many more of all there are.
pub(super) fn listed(named: impl Iterator<Item = String>, n_all: usize) -> String {
    let named: Vec<String> = named.collect();
    let n_more = n_all.saturating_sub(named.len());
    let mut text = named.join(", ");
    if n_more > 0 {
        text.push_str(&format!(" and {n_more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_short() {
        assert_eq!(plural(1, "a task", "tasks"), "a task");
        assert_eq!(plural(3, "a task", "tasks"), "3 tasks");
        let two = || ["a", "b"].into_iter().map(str::to_owned);
        assert_eq!(listed(two(), 2), "a, b");
        assert_eq!(listed(two(), 4), "a, b and 2 more");
    }
}
