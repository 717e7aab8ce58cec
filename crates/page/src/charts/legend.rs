//! The legend of a chart, which shows the values at the cursor, and the table of its numbers.

use std::fmt::Write;

use maud::{Markup, html};

use super::series::Columns;
use super::time::TimeRange;
use super::unit::Unit;

/// A line of a legend: a name with its values in all columns.
pub(super) struct Entry<'a> {
    pub(super) swatch: Markup,
    pub(super) name: &'a str,
    pub(super) unit: Unit,
    pub(super) values: &'a [Option<f64>],
}

/// The text for a column in which nothing was recorded.
const NOTHING: &str = "–";

impl Entry<'_> {
    pub(super) fn text(&self, column: usize) -> String {
        let value = self.values.get(column).copied().flatten();
        value.map_or_else(|| NOTHING.to_owned(), |value| self.unit.text(value))
    }

    /// All texts for the script: equal neighbours are written once, with their number.
    fn all_texts(&self) -> String {
        let mut texts = String::new();
        let mut runs = self.values.chunk_by(|one, next| one == next).peekable();
        while let Some(run) = runs.next() {
            let text = run[0].map_or_else(|| NOTHING.to_owned(), |value| self.unit.text(value));
            texts.push_str(&text);
            if run.len() > 1 {
                write!(texts, "*{}", run.len()).expect("writing to a string cannot fail");
            }
            if runs.peek().is_some() {
                texts.push('|');
            }
        }
        texts
    }
}

/// The values at the cursor. The script changes them when the cursor moves.
pub(super) fn legend(range: TimeRange, columns: Columns, entries: &[Entry<'_>]) -> Markup {
    let column = columns.of_moment(range.at_ms());
    html! {
        div class="key" {
            b class="when" data-when { (range.text(range.at_ms())) }
            dl {
                @for entry in entries {
                    div {
                        dt { (entry.swatch) (entry.name) }
                        dd data-values=(entry.all_texts()) { (entry.text(column)) }
                    }
                }
            }
        }
    }
}

/// The values at the cursor as a sentence, for screen readers.
pub(super) fn sentence(range: TimeRange, columns: Columns, entries: &[Entry<'_>]) -> String {
    let column = columns.of_moment(range.at_ms());
    let texts = entries.iter();
    let texts = texts.map(|entry| format!("{} {}", entry.text(column), entry.name));
    let texts: Vec<String> = texts.collect();
    format!("{}: {}", range.text(range.at_ms()), texts.join(", "))
}

/// The numbers at the ticks of the time axis.
pub(super) fn numbers(
    title: &str,
    range: TimeRange,
    columns: Columns,
    entries: &[Entry<'_>],
) -> Markup {
    let mut moments: Vec<i64> = range.ticks().into_iter().map(|(at_ms, _)| at_ms).collect();
    moments.push(range.at_ms());
    html! {
        details class="nums" {
            summary { "Numbers" }
            div class="tw" role="region" aria-label={ "Numbers of: " (title) } tabindex="0" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Time" @if !range.zone().is_empty() { ", " (range.zone()) } }
                            @for entry in entries { th scope="col" class="n" { (entry.name) } }
                        }
                    }
                    tbody {
                        @for at_ms in moments {
                            tr {
                                th scope="row" { (range.text(at_ms)) }
                                @for entry in entries {
                                    td class="n" { (entry.text(columns.of_moment(at_ms))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
