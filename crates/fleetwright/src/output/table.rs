//! Tables for people: aligned, without borders, cut to the width of the screen.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, presets};
use domain::time::Timestamp;
use serde_json::Value;

use super::age;

/// Spaces between columns.
const GAP: u16 = 2;
/// A column that has less room than this tells nothing.
const LEAST_WIDTH: u16 = 10;

/// A column of a list, or a line of details: which field, under what title, shown how.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    /// Where the value is, as a JSON pointer below the item without its first slash.
    field: &'static str,
    kind: Kind,
}

/// How a column is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a state: never cut as long as there is room for it.
    Text,
    /// Aligned at the right.
    Number,
    Age,
    /// A text of any length, the first to be cut.
    Prose,
}

impl Column {
    pub(crate) const fn text(title: &'static str, field: &'static str) -> Self {
        Self {
            title,
            field,
            kind: Kind::Text,
        }
    }

    pub(crate) const fn number(title: &'static str, field: &'static str) -> Self {
        Self {
            title,
            field,
            kind: Kind::Number,
        }
    }

    pub(crate) const fn age(title: &'static str, field: &'static str) -> Self {
        Self {
            title,
            field,
            kind: Kind::Age,
        }
    }

    pub(crate) const fn prose(title: &'static str, field: &'static str) -> Self {
        Self {
            title,
            field,
            kind: Kind::Prose,
        }
    }

    fn show(&self, item: &Value, now: Timestamp) -> String {
        let value = item
            .pointer(&format!("/{}", self.field))
            .unwrap_or(&Value::Null);
        let text = match value {
            Value::Null => "-".to_owned(),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => match text.parse() {
                Ok(then) if self.kind == Kind::Age => age(then, now),
                Ok(_) | Err(_) => text.clone(),
            },
            Value::Array(items) => items.iter().map(in_list).collect::<Vec<_>>().join(", "),
            Value::Object(_) => value.to_string(),
        };
        printable(&text)
    }
}

/// The items as a table, one line each. `width` is that of the screen; without one nothing is cut.
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

/// Texts under titles.
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
    if let Some(width) = width {
        fit(&mut table, headings, width);
    }
    lines_without_trailing_space(&table.to_string())
}

/// Cuts what does not fit the screen: prose first, then names, those at the left last.
fn fit(table: &mut Table, headings: &[(&str, Kind)], screen: u16) {
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(screen);
    let widths = table.column_max_content_widths();
    let whole = |width: u16| usize::from(width + GAP);
    let least = |width: u16| usize::from(width.min(LEAST_WIDTH) + GAP);
    // What is left when every column has as little as it can do with.
    let needed: usize = widths.iter().copied().map(least).sum();
    let Some(mut spare) = usize::from(screen).checked_sub(needed) else {
        return;
    };
    let columns = table.column_iter_mut().zip(widths).zip(headings);
    for ((column, width), (_, kind)) in columns {
        let more = whole(width) - least(width);
        if *kind != Kind::Prose && more <= spare {
            column.set_constraint(ColumnConstraint::ContentWidth);
            spare -= more;
        }
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
            .map(|moment| format!(" ({moment})"))
            .unwrap_or_default();
        text.push_str(&format!("{:widest$}  {value}{moment}\n", column.title));
    }
    text
}

/// The width of the screen, if results go to one.
pub(crate) fn screen_width() -> Option<u16> {
    super::to_terminal().then(|| Table::new().width()).flatten()
}

fn in_list(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// A text that keeps to its line, and cannot give orders to the terminal.
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
    fn on_a_very_narrow_screen_names_are_cut_too() {
        let text = table(&items(), COLUMNS, now(), Some(25));
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn details_have_a_line_for_each_field() {
        insta::assert_snapshot!(details(&items()[0], COLUMNS, now()), @r"
        POOL         demo/linux
        RUNNING      7
        CHANGED      3m ago (2026-09-21T14:10:00.000Z)
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
