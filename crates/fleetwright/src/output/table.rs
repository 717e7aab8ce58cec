//! Aligned tables without borders. Prose is cut to the width of the screen, names never are.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets,
};
use domain::time::Timestamp;
use serde_json::{Number, Value};

use super::{age, clock};

const GAP: u16 = 2;
/// Minimum width of a column of prose.
const LEAST_WIDTH: u16 = 10;

/// A column of a list, or a line of details: title, field and format.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    /// A JSON pointer to the value in the item, without its first slash.
    field: &'static str,
    kind: Kind,
}

/// The format of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a state: never cut, so that it can be copied.
    Text,
    /// Right-aligned.
    Number,
    Age,
    /// A text of any length: cut if the screen is too narrow.
    Prose,
}

impl Column {
    const fn new(title: &'static str, field: &'static str, kind: Kind) -> Self {
        Self { title, field, kind }
    }

    pub(crate) const fn text(title: &'static str, field: &'static str) -> Self {
        Self::new(title, field, Kind::Text)
    }

    pub(crate) const fn number(title: &'static str, field: &'static str) -> Self {
        Self::new(title, field, Kind::Number)
    }

    pub(crate) const fn age(title: &'static str, field: &'static str) -> Self {
        Self::new(title, field, Kind::Age)
    }

    pub(crate) const fn prose(title: &'static str, field: &'static str) -> Self {
        Self::new(title, field, Kind::Prose)
    }

    fn show(&self, item: &Value, now: Timestamp) -> String {
        let value = item
            .pointer(&format!("/{}", self.field))
            .unwrap_or(&Value::Null);
        let text = match value {
            Value::Null => "-".to_owned(),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Number(number) => decimal(number),
            Value::String(text) => match text.parse() {
                Ok(then) if self.kind == Kind::Age => age(then, now),
                Ok(_) | Err(_) => text.clone(),
            },
            Value::Array(items) => {
                let texts = items.iter().map(|item| match item.as_str() {
                    Some(text) => text.to_owned(),
                    None => item.to_string(),
                });
                texts.collect::<Vec<_>>().join(", ")
            }
            Value::Object(_) => value.to_string(),
        };
        printable(&text)
    }
}

/// The items as a table, one line each. Without a `width` nothing is cut.
pub(crate) fn table(
    items: &[Value],
    columns: &[Column],
    now: Timestamp,
    width: Option<u16>,
) -> String {
    let rows = items
        .iter()
        .map(|item| {
            columns
                .iter()
                .map(|column| column.show(item, now))
                .collect()
        })
        .collect();
    let headings: Vec<_> = columns
        .iter()
        .map(|column| (column.title, column.kind))
        .collect();
    grid(&headings, rows, width)
}

pub(crate) fn grid(
    headings: &[(&str, Kind)],
    rows: Vec<Vec<String>>,
    width: Option<u16>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_truncation_indicator("…")
        .set_content_arrangement(ContentArrangement::Disabled);
    let one_line = |texts: Vec<String>| {
        let cells = texts.into_iter().zip(headings).map(|(text, (_, kind))| {
            Cell::new(text).set_alignment(match kind {
                Kind::Number => CellAlignment::Right,
                Kind::Text | Kind::Age | Kind::Prose => CellAlignment::Left,
            })
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        row
    };
    let titles = headings.iter().map(|(title, _)| (*title).to_owned());
    table.set_header(one_line(titles.collect()));
    for row in rows {
        table.add_row(one_line(row));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    // A terminal of unknown width reports 0.
    if let Some(width) = width.filter(|width| *width > 0) {
        fit(&mut table, headings, width);
    }
    lines_without_trailing_space(&table.to_string())
}

/// Cuts prose to the space that names leave. A table that is still too wide wraps.
fn fit(table: &mut Table, headings: &[(&str, Kind)], screen: u16) {
    let widths = table.column_max_content_widths();
    let columns = widths.iter().zip(headings);
    let names = columns.filter(|(_, (_, kind))| *kind != Kind::Prose);
    let taken: u16 = names.map(|(width, _)| width.saturating_add(GAP)).sum();
    let mut room = screen.saturating_sub(taken);
    let prose = |(_, kind): &&(&str, Kind)| *kind == Kind::Prose;
    let mut n_left = u16::try_from(headings.iter().filter(prose).count()).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::MAX);
    let columns = table.column_iter_mut().zip(widths).zip(headings);
    for ((column, width), (_, kind)) in columns {
        if *kind != Kind::Prose {
            column.set_constraint(ColumnConstraint::ContentWidth);
            continue;
        }
        let share = room / n_left.max(1);
        let width = width.saturating_add(GAP);
        let width = width.min(share.max(LEAST_WIDTH + GAP));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        room = room.saturating_sub(width);
        n_left -= 1;
    }
}

/// One item: a line for each field.
pub(crate) fn details(item: &Value, columns: &[Column], now: Timestamp) -> String {
    let widest = columns
        .iter()
        .map(|column| column.title.len())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for column in columns {
        let value = column.show(item, now);
        let moment = item
            .get(column.field)
            .and_then(Value::as_str)
            .filter(|_| column.kind == Kind::Age)
            .map(|text| match text.parse() {
                Ok(moment) => format!(" ({})", clock(moment)),
                Err(_) => format!(" ({})", printable(text)),
            })
            .unwrap_or_default();
        text.push_str(&format!("{:widest$}  {value}{moment}\n", column.title));
    }
    text
}

/// The width of the screen, if results go to one.
pub(crate) fn screen_width() -> Option<u16> {
    let is_cut = super::to_terminal() && !super::is_wide();
    is_cut.then(|| Table::new().width()).flatten()
}

/// The height of the screen, if results go to one.
pub(crate) fn screen_height() -> Option<u16> {
    let lines = || crossterm::terminal::size().ok().map(|(_, lines)| lines);
    let lines = super::to_terminal().then(lines).flatten();
    lines.filter(|lines| *lines > 0)
}

/// A number without an exponent, and without a fraction that is zero.
fn decimal(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(value) => format!("{value}"),
        None => number.to_string(),
    }
}

/// A time of the API, for people.
pub(crate) fn clock_of(moment: &Value) -> String {
    let text = moment.as_str().unwrap_or_default();
    text.parse().map_or_else(|_| printable(text), clock)
}

/// A text on one line without control characters.
pub(crate) fn printable(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words
        .join(" ")
        .replace(|c: char| c.is_control(), "\u{fffd}")
}

fn lines_without_trailing_space(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLUMNS: &[Column] = &[
        Column::text("POOL", "workerPoolId"),
        Column::number("RUNNING", "runningCount"),
        Column::age("CHANGED", "lastModified"),
        Column::prose("DESCRIPTION", "description"),
    ];

    fn now() -> Timestamp {
        "2026-09-21T14:13:20.000Z".parse().unwrap()
    }

    fn items() -> Vec<Value> {
        vec![
            json!({"workerPoolId": "demo/linux", "runningCount": 7,
                "lastModified": "2026-09-21T14:10:00.000Z",
                "description": "machines for\n\nthe demonstration of everything"}),
            json!({"workerPoolId": "a/b", "runningCount": 12_000, "lastModified": "?"}),
        ]
    }

    #[test]
    fn a_table_is_aligned_and_complete_when_it_is_piped() {
        insta::assert_snapshot!(table(&items(), COLUMNS, now(), None), @r"
        POOL        RUNNING  CHANGED  DESCRIPTION
        demo/linux        7  3m ago   machines for the demonstration of everything
        a/b           12000  ?        -
        ");
    }

    #[test]
    fn on_a_narrow_screen_each_item_still_has_one_line() {
        let text = table(&items(), COLUMNS, now(), Some(50));
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 50),
            "{text}"
        );
        assert!(text.contains("demo/linux ") && text.contains('…'), "{text}");
    }

    #[test]
    fn names_are_never_cut_however_narrow_the_screen() {
        for width in [1, 10, 25, 40] {
            let text = table(&items(), COLUMNS, now(), Some(width));
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(
                text.contains("demo/linux ") && text.contains("3m ago"),
                "{text}"
            );
            assert!(text.contains("machines"), "{text}");
        }
    }

    #[test]
    fn a_screen_of_unknown_width_cuts_nothing() {
        let unknown = table(&items(), COLUMNS, now(), Some(0));
        assert_eq!(unknown, table(&items(), COLUMNS, now(), None));
    }

    #[test]
    fn several_columns_of_prose_share_the_remaining_width() {
        let long = "a b c d e f g h i j k l m n o p q r s t u v w x y z";
        let item =
            json!({"id": "a-name-of-some-length", "one": long, "two": "short", "three": long});
        let columns = [
            Column::text("ID", "id"),
            Column::prose("ONE", "one"),
            Column::prose("TWO", "two"),
            Column::prose("THREE", "three"),
        ];
        let text = table(&[item], &columns, now(), Some(80));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(
            text.contains("short") && text.matches('…').count() == 2,
            "{text}"
        );
    }

    #[test]
    fn details_have_a_line_for_each_field() {
        insta::assert_snapshot!(details(&items()[0], COLUMNS, now()), @r"
        POOL         demo/linux
        RUNNING      7
        CHANGED      3m ago (2026-09-21 14:10:00Z)
        DESCRIPTION  machines for the demonstration of everything
        ");
    }

    #[test]
    fn a_text_cannot_give_orders_to_the_terminal() {
        let item = json!({"description": "\u{1b}[2Jx\u{7}"});
        let column = Column::text("DESCRIPTION", "description");
        let text = table(&[item], &[column], now(), None);
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text:?}"
        );
    }

    #[test]
    fn lists_flags_and_objects_are_shown_in_one_line() {
        let item = json!({"a": ["x", 1], "b": true, "c": {"d": null}});
        let columns = [
            Column::text("A", "a"),
            Column::text("B", "b"),
            Column::text("C", "c"),
            Column::text("D", "c/d"),
        ];
        insta::assert_snapshot!(details(&item, &columns, now()), @r#"
        A  x, 1
        B  yes
        C  {"d":null}
        D  -
        "#);
    }
}
