//! Stacked bars over time, and one bar of shares.

use maud::{Markup, Render, html};

use super::legend::Entry;
use super::over_time::OverTime;
use super::path::{Percent, Pixels, WIDTH, units};
use super::plot::Plot;
use super::series::{Columns, Gather, Series};
use super::time::TimeRange;
use super::tone::{Tone, swatch};
use super::unit::{Unit, drawable};
use super::value_axis::ValueAxis;

/// The most bars of a chart. On a narrow page each has three pixels.
const MAX_BARS: usize = 96;
/// The height of the shapes in pixels.
const TALL: f64 = 180.0;
/// The part of its place that a bar takes.
const BAR: f64 = 0.8;

/// A part of all bars.
pub struct BarPart<'a> {
    pub name: &'a str,
    pub tone: Tone,
    pub series: &'a Series,
}

/// Bars over time, each divided into parts: cost by use, waiting tasks by cause, errors.
pub struct TimeBars<'a> {
    pub title: &'a str,
    pub range: TimeRange,
    pub unit: Unit,
    pub gather: Gather,
    /// From the bottom up.
    pub parts: &'a [BarPart<'a>],
}

/// A part with its values by column.
type Gathered<'a> = (&'a BarPart<'a>, Vec<Option<f64>>);

impl Render for TimeBars<'_> {
    fn render(&self) -> Markup {
        let Some(first) = self.parts.iter().max_by_key(|it| it.series.values.len()) else {
            return html! { p class="empty" { (self.title) ": nothing was recorded." } };
        };
        let columns = Columns::of(self.range, first.series, MAX_BARS);
        let parts = self.gathered(columns);
        let totals: Vec<Option<f64>> = (0..columns.n)
            .map(|column| {
                let known = parts.iter().filter_map(|(_, values)| values[column]);
                known.map(|value| value.max(0.0)).reduce(|sum, it| sum + it)
            })
            .collect();
        let axis = ValueAxis::from_zero(totals.iter().copied().flatten(), self.unit, 4.0);
        let entry = |swatch, name, values| Entry {
            swatch,
            name,
            unit: self.unit,
            values,
        };
        let mut entries = vec![entry(html! {}, "in all", &totals)];
        for (part, values) in parts.iter().rev() {
            entries.push(entry(swatch(part.tone), part.name, values));
        }
        let frame = OverTime {
            title: self.title,
            range: self.range,
            columns,
            entries: &entries,
        };
        let plot = Plot {
            range: self.range,
            axis: &axis,
            height: TALL,
            label: &frame.label(),
            stretched: html! {},
            fixed: self.bars(columns, &parts, &axis),
            cursor: columns.cursor(self.range),
            has_times: true,
            moments: None,
        };
        frame.around(&html! {
            (plot.draw())
            p class="dim" { "A bar: " (Unit::Duration.text(columns.width_ms as f64)) }
        })
    }
}

impl TimeBars<'_> {
    fn gathered(&self, columns: Columns) -> Vec<Gathered<'_>> {
        let parts = self.parts.iter();
        match self.gather {
            Gather::Sum => parts
                .map(|part| (part, columns.gather(part.series, Gather::Sum)))
                .collect(),
            // The parts of a bar are of one moment, else their sum never was.
            Gather::Peak => {
                let all: Vec<&Series> = self.parts.iter().map(|part| part.series).collect();
                parts.zip(columns.gather_together(&all)).collect()
            }
        }
    }

    fn bars(&self, columns: Columns, parts: &[Gathered<'_>], axis: &ValueAxis) -> Markup {
        html! {
            @for (column, (from_ms, to_ms)) in columns.spans().enumerate() {
                @let pieces = pieces(parts, column, axis);
                @if !pieces.is_empty() {
                    @let from = self.range.place(from_ms);
                    @let width = (self.range.place(to_ms) - from) * BAR;
                    g {
                        title { (self.range.text(from_ms)) ": " (self.text(parts, column)) }
                        @for (class, y, height) in pieces {
                            rect class=(class) x=(Percent(from)) width=(Percent(width))
                                y=(Pixels(y)) height=(Pixels(height)) {}
                        }
                    }
                }
            }
        }
    }

    fn text(&self, parts: &[Gathered<'_>], column: usize) -> String {
        let known = parts.iter().rev();
        let known = known.filter_map(|(part, values)| {
            let value = values[column].filter(|value| *value > 0.0)?;
            Some(format!("{} {}", part.name, self.unit.text(value)))
        });
        known.collect::<Vec<_>>().join(", ")
    }
}

/// The pieces of a bar with their places. They touch each other, whatever is rounded.
fn pieces(
    parts: &[Gathered<'_>],
    column: usize,
    axis: &ValueAxis,
) -> Vec<(&'static str, f64, f64)> {
    let round = |height: f64| (height * 10.0).round() / 10.0;
    let mut pieces = Vec::new();
    let mut sum = 0.0;
    let mut top = TALL;
    for (part, values) in parts {
        sum += values[column].unwrap_or_default().max(0.0);
        let next = round((1.0 - axis.place(sum)) * TALL);
        if next < top {
            pieces.push((part.tone.fill(), next, top - next));
        }
        top = next;
    }
    pieces
}

/// Shares of a sum as one bar of 100 %.
pub struct ShareBar<'a> {
    pub label: &'a str,
    pub unit: Unit,
    pub parts: &'a [(&'a str, Tone, f64)],
}

impl Render for ShareBar<'_> {
    fn render(&self) -> Markup {
        let size = |value: f64| drawable(value).unwrap_or_default().max(0.0);
        let sum: f64 = self.parts.iter().map(|(_, _, value)| size(*value)).sum();
        let texts = self.parts.iter().filter(|(_, _, value)| size(*value) > 0.0);
        let texts = texts.map(|(name, _, value)| {
            let share = Unit::Percent.text(size(*value) / sum);
            format!("{name} {} ({share})", self.unit.text(*value))
        });
        let texts: Vec<String> = texts.collect();
        let text = if texts.is_empty() {
            "nothing".to_owned()
        } else {
            texts.join(", ")
        };
        let mut from = 0.0;
        let mut next = |value: f64| {
            let start = from / sum;
            from += size(value);
            (start, size(value) / sum)
        };
        html! {
            svg class="bar" role="img" aria-label={ (self.label) ": " (text) } {
                title { (text) }
                rect class="track" width="100%" height="100%" {}
                @if sum > 0.0 {
                    @for (_, tone, value) in self.parts {
                        @let (start, share) = next(*value);
                        @if units(share, WIDTH) > 0 {
                            rect class=(tone.fill()) x=(Percent(start)) width=(Percent(share))
                                height="100%" {}
                        }
                    }
                }
            }
        }
    }
}
