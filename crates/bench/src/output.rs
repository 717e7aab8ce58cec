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
