//! A spark line: waiting tasks against capacity, in a cell of a table.

use maud::{Markup, PreEscaped, Render, html};

use super::path::{area, line, ticks, units};
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

/// The highest value of a spark line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SparkScale {
    /// The shape of one pool: up to its own highest value or its limit.
    Own,
    /// The heights of several pools can be compared: the highest value of all.
    Common(f64),
}

/// Waiting tasks as a line over the capacity as an area.
pub struct SparkLine<'a> {
    pub range: TimeRange,
    pub waiting: &'a Series,
    pub capacity: &'a Series,
    pub limit: Option<f64>,
    /// When launches were refused.
    pub refused_ms: &'a [i64],
    pub scale: SparkScale,
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
        let top = match self.scale {
            SparkScale::Common(top) => top,
            SparkScale::Own if far => highest,
            SparkScale::Own => highest.max(limit.unwrap_or_default()),
        };
        let axis = ValueAxis::from_zero([top].into_iter(), Unit::Count, 1.0);
        let steps = |values| columns.steps(self.range, &axis, values, (WIDTH, HEIGHT));
        let refused = self.refused_ms.iter();
        let refused = refused.filter(|at_ms| self.range.contains(**at_ms));
        let refused = refused.map(|at_ms| units(self.range.place(*at_ms), WIDTH));
        let refused = ticks(refused, HEIGHT, 3);
        html! {
            svg class="sp" viewBox={ "0 0 " (WIDTH) " " (HEIGHT + 2) } preserveAspectRatio="none"
                role="img" aria-label=(self.label(&waiting, &capacity)) {
                path class="c-area" d=(PreEscaped(area(steps(&capacity), HEIGHT))) {}
                @if let Some(limit) = limit {
                    @let y = HEIGHT - units(axis.place(limit), HEIGHT);
                    path class=(if far { "far" } else { "lim" }) d={ "M0 " (y) "h" (WIDTH) } {}
                }
                path class="ln" d=(PreEscaped(line(steps(&waiting)))) {}
                @if !refused.is_empty() { path class="tick" d=(refused) {} }
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
