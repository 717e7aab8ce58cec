//! A spark line: waiting tasks against capacity, in a cell of a table.

use maud::{Markup, PreEscaped, Render, html};

use super::path::{area, line, units};
use super::series::{Columns, Gather, Series};
use super::time::TimeRange;
use super::unit::Unit;
use super::value_axis::ValueAxis;

/// The columns of a spark line: each has two or three pixels. Thousands stand on a page.
const COLUMNS: usize = 48;
const WIDTH: i32 = 96;
const HEIGHT: i32 = 24;
/// A limit this many times above all values would flatten them, and is only hinted at.
const FAR: f64 = 4.0;

/// Waiting tasks as a line over the capacity as an area.
pub struct SparkLine<'a> {
    pub range: TimeRange,
    pub waiting: &'a Series,
    pub capacity: &'a Series,
    pub limit: Option<f64>,
}

impl Render for SparkLine<'_> {
    fn render(&self) -> Markup {
        let columns = Columns::of(self.range, self.capacity, COLUMNS);
        let waiting = columns.gather(self.waiting, Gather::Peak);
        let capacity = columns.gather(self.capacity, Gather::Peak);
        let all = waiting.iter().chain(&capacity).copied().flatten();
        let highest = all.fold(0.0, f64::max);
        let far = self.limit.is_some_and(|limit| limit > highest * FAR);
        let limit = self.limit.filter(|limit| limit.is_finite());
        let top = if far {
            highest
        } else {
            highest.max(limit.unwrap_or_default())
        };
        let axis = ValueAxis::from_zero([top].into_iter(), Unit::Count, 1.0);
        let steps = |values| columns.steps(self.range, &axis, values, (WIDTH, HEIGHT));
        html! {
            svg class="sp" viewBox={ "0 0 " (WIDTH) " " (HEIGHT + 2) } preserveAspectRatio="none"
                role="img" aria-label=(self.label(&waiting, &capacity)) {
                path class="c-area" d=(PreEscaped(area(steps(&capacity), HEIGHT))) {}
                @if let Some(limit) = limit {
                    @let y = HEIGHT - units(axis.place(limit), HEIGHT);
                    path class=(if far { "far" } else { "lim" }) d={ "M0 " (y) "h" (WIDTH) } {}
                }
                path class="ln" d=(PreEscaped(line(steps(&waiting)))) {}
            }
        }
    }
}

impl SparkLine<'_> {
    fn label(&self, waiting: &[Option<f64>], capacity: &[Option<f64>]) -> String {
        let last = |values: &[Option<f64>]| {
            let value = values.last().copied().flatten();
            value.map_or_else(|| "unknown".to_owned(), |value| Unit::Count.text(value))
        };
        let mut label = format!("{} waiting, {} workers", last(waiting), last(capacity));
        if let Some(limit) = self.limit {
            label += &format!(", limit {}", Unit::Count.text(limit));
        }
        label
    }
}
