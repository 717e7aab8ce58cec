//! Lists of charts at their limits.

use maud::Render;
use testing::sizes_around;

use super::drawn::capacity;
use super::{MINUTE_MS, MORNING_MS, minutes, range};
use crate::charts::{Mark, MarkKind};

#[test]
fn the_newest_marks_are_listed_and_the_others_counted() {
    let series = minutes([1.0; 360]);
    for size in sizes_around("page::charts::capacity::MAX_MARKS_LISTED", 12) {
        let marks: Vec<Mark<'_>> = (0..size)
            .map(|number| Mark {
                at_ms: MORNING_MS + i64::try_from(number).unwrap() * MINUTE_MS,
                kind: MarkKind::Decision,
                text: "launched",
                href: "/decision",
            })
            .collect();
        let markup = capacity(range(), &series, &marks).render().into_string();
        let listed = markup.matches("<li><span").count();
        assert_eq!(listed, size.min(12));
        let more = format!("{} more in this time", size.saturating_sub(12));
        assert_eq!(markup.contains(&more), size > 12, "{size}");
    }
}
