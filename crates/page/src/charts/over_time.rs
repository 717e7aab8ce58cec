//! The frame of all charts over time: the values at the cursor, the plot, and the numbers.

use maud::{Markup, html};

use super::legend::{Entry, legend, numbers, sentence};
use super::series::Columns;
use super::time::TimeRange;

/// The parts that all charts over time have, whatever their shapes are.
pub(super) struct OverTime<'a> {
    pub(super) title: &'a str,
    pub(super) range: TimeRange,
    pub(super) columns: Columns,
    pub(super) entries: &'a [Entry<'a>],
}

impl OverTime<'_> {
    /// The text for screen readers.
    pub(super) fn label(&self) -> String {
        let values = sentence(self.range, self.columns, self.entries);
        format!("{}. {values}", self.title)
    }

    /// The shapes between the values at the cursor and the table of numbers.
    pub(super) fn around(&self, shapes: &Markup) -> Markup {
        html! {
            div class="chart" data-cursor=(self.columns.for_script(self.range)) {
                (legend(self.range, self.columns, self.entries))
                (shapes)
                (numbers(self.title, self.range, self.columns, self.entries))
            }
        }
    }
}
