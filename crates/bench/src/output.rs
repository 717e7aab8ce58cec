//! Output: figures on standard output, progress on standard error.

use std::io::Write as _;

use serde_json::Value;

pub(crate) fn out(text: &str) {
    let _reader_has_left = writeln!(std::io::stdout().lock(), "{text}");
}

pub(crate) fn json(document: &Value) {
    out(&format!("{document:#}"));
}

/// Prints figures, as JSON or as text.
pub(crate) fn figures(figures: &Value, as_json: bool, text: impl Fn(&Value) -> String) {
    if as_json {
        json(figures);
    } else {
        out(&text(figures));
    }
}

/// One line for each figure: its JSON pointer and its value.
pub(crate) fn lines(figures: &Value) -> String {
    let mut lines = Vec::new();
    add_lines(figures, "", &mut lines);
    lines.join("\n")
}

fn add_lines(value: &Value, name: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                add_lines(value, format!("{name} {key}").trim(), lines);
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            lines.push(format!("{name:<48}{number:>14.3}"));
        }
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
    }
}

/// Prints which part is being measured.
pub(crate) fn note(text: &str) {
    let _reader_has_left = writeln!(std::io::stderr().lock(), "{text}");
}

/// Rows in columns: the first column is aligned left, the others right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let n_columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.chain(["\n".to_owned()]).collect::<String>()
    });
    lines.collect()
}
