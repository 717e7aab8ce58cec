//! Values over time, and their columns in a chart.

use super::path::{Step, WIDTH, from_top, units};
use super::time::TimeRange;
use super::unit::drawable;
use super::value_axis::ValueAxis;

/// Ten thousand years: longer steps cannot be counted with.
const LONGEST_STEP_MS: i64 = 10_000 * 366 * 86_400_000;

/// Values at equal steps of time. `None`: nothing was recorded then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub from_ms: i64,
    pub step_ms: i64,
    pub values: Vec<Option<f64>>,
}

/// How several values become one where a chart has no room for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Amounts, such as the money of an hour.
    Sum,
    /// Levels, such as the waiting tasks: the highest.
    Peak,
}

impl Series {
    /// Values that were all recorded.
    pub fn new(from_ms: i64, step_ms: i64, values: impl IntoIterator<Item = f64>) -> Self {
        Self {
            from_ms,
            step_ms,
            values: values.into_iter().map(Some).collect(),
        }
    }

    /// The value of the step that contains this moment.
    pub(super) fn value_at(&self, at_ms: i64) -> Option<f64> {
        let number = at_ms.saturating_sub(self.from_ms).div_euclid(self.step());
        let place = usize::try_from(number).ok()?;
        self.values.get(place).copied().flatten().and_then(drawable)
    }

    /// The recorded values with their times, within a span.
    fn within(&self, from_ms: i64, to_ms: i64) -> impl Iterator<Item = (i64, f64)> + '_ {
        let place = |at_ms: i64| {
            let steps = at_ms.saturating_sub(self.from_ms).div_euclid(self.step());
            usize::try_from(steps.max(0)).unwrap_or(usize::MAX)
        };
        // A step belongs to the span in which it begins, or to the first one.
        let first = place(from_ms.saturating_add(self.step() - 1)).min(self.values.len());
        let end = place(to_ms.saturating_add(self.step() - 1)).clamp(first, self.values.len());
        let values = self.values[first..end].iter().zip(first..);
        values.filter_map(|(value, number)| {
            let offset = i64::try_from(number).ok()?.saturating_mul(self.step());
            Some((self.from_ms.saturating_add(offset), drawable((*value)?)?))
        })
    }

    pub(super) fn step(&self) -> i64 {
        self.step_ms.clamp(1, LONGEST_STEP_MS)
    }
}

/// Equal spans of a time range: the columns of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) from_ms: i64,
    pub(super) width_ms: i64,
    pub(super) n: usize,
}

impl Columns {
    /// One column for each step of the series, or for several where more than `most` were needed.
    pub(super) fn of(range: TimeRange, series: &Series, most: usize) -> Self {
        let step = series.step();
        let span_ms = range.to_ms() - range.from_ms();
        // One column less than fits, because the first one may begin before the range.
        let most = i64::try_from(most.max(2)).unwrap_or(i64::MAX) - 1;
        let steps = span_ms.div_euclid(most).div_euclid(step) + 1;
        let width_ms = if span_ms.div_euclid(step) < most {
            step
        } else {
            steps.saturating_mul(step)
        };
        // The columns begin at multiples of their width, so that they stay as time goes on.
        let offset_ms = range.from_ms().saturating_sub(series.from_ms);
        let from_ms = range.from_ms() - offset_ms.rem_euclid(width_ms);
        let n = (range.to_ms() - from_ms - 1).div_euclid(width_ms) + 1;
        Self {
            from_ms,
            width_ms,
            n: usize::try_from(n).unwrap_or(1).max(1),
        }
    }

    /// The beginning and the end of each column.
    pub(super) fn spans(self) -> impl Iterator<Item = (i64, i64)> {
        let starts = (0..self.n).map(move |number| {
            self.from_ms + i64::try_from(number).unwrap_or_default() * self.width_ms
        });
        starts.map(move |from_ms| (from_ms, from_ms + self.width_ms))
    }

    /// The column of a moment.
    pub(super) fn of_moment(self, at_ms: i64) -> usize {
        let number = (at_ms - self.from_ms).div_euclid(self.width_ms).max(0);
        usize::try_from(number)
            .unwrap_or_default()
            .min(self.n.saturating_sub(1))
    }

    /// One value for each column.
    pub(super) fn gather(self, series: &Series, gather: Gather) -> Vec<Option<f64>> {
        let column = |(from_ms, to_ms)| {
            let values = series.within(from_ms, to_ms).map(|(_, value)| value);
            let value = match gather {
                Gather::Sum => values.reduce(|sum, value| sum + value),
                Gather::Peak => values.reduce(f64::max),
            };
            // The column is shorter than a step of this series.
            value.or_else(|| match gather {
                Gather::Sum => None,
                Gather::Peak => series.value_at(from_ms),
            })
        };
        self.spans().map(column).collect()
    }

    /// The values of all series at one moment of each column: that with the highest sum.
    pub(super) fn gather_together(self, all: &[&Series]) -> Vec<Vec<Option<f64>>> {
        let mut values: Vec<Vec<Option<f64>>> = vec![Vec::with_capacity(self.n); all.len()];
        for (from_ms, to_ms) in self.spans() {
            let sum_at = |at_ms| {
                let known = all.iter().filter_map(|series| series.value_at(at_ms));
                known.sum::<f64>()
            };
            let moments = all.iter().max_by_key(|series| series.values.len());
            let moments = moments.into_iter().flat_map(|it| it.within(from_ms, to_ms));
            let highest = moments
                .map(|(at_ms, _)| (at_ms, sum_at(at_ms)))
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            let at_ms = highest.map_or(from_ms, |(at_ms, _)| at_ms);
            for (series, values) in all.iter().zip(&mut values) {
                values.push(series.value_at(at_ms));
            }
        }
        values
    }

    /// The steps of a path over these values.
    pub(super) fn steps<'a>(
        self,
        range: TimeRange,
        axis: &'a ValueAxis,
        values: &'a [Option<f64>],
        (width, height): (i32, i32),
    ) -> impl Iterator<Item = Step> + 'a {
        let spans = self.spans().zip(values);
        spans.map(move |((from_ms, to_ms), value)| Step {
            from: units(range.place(from_ms), width),
            to: units(range.place(to_ms), width),
            y: value.map(|value| from_top(axis.place(value), height)),
        })
    }

    /// For the script: the beginning of the first column, the width of each, their number, and the
    /// range.
    pub(super) fn for_script(self, range: TimeRange) -> String {
        format!(
            "{} {} {} {} {}",
            self.from_ms,
            self.width_ms,
            self.n,
            range.from_ms(),
            range.to_ms()
        )
    }

    /// Where the cursor of a chart stands: the middle of the column.
    pub(super) fn cursor(self, range: TimeRange) -> i32 {
        let number = i64::try_from(self.of_moment(range.at_ms())).unwrap_or_default();
        let middle = self.from_ms + number * self.width_ms + self.width_ms / 2;
        units(range.place(middle), WIDTH)
    }
}
