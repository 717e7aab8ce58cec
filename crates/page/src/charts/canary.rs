//! The evidence about a new image over time, between the bounds that decide, and the failures of
//! both groups.

use maud::{Markup, Render, html};

use super::path::{HEIGHT, Pixels, Step, WIDTH, area, from_top, line, units};
use super::plot::Plot;
use super::rows::{Row, RowChart, RowShape};
use super::time::TimeRange;
use super::tone::Tone;
use super::unit::{Unit, drawable};
use super::value_axis::ValueAxis;

/// The height of the shapes in pixels.
const TALL: f64 = 170.0;
/// The room beyond the bounds, as a share of their distance from the middle.
const ROOM: f64 = 0.3;

/// The evidence from a moment on, as shares of the bounds: 1 decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanaryPoint {
    pub at_ms: i64,
    pub worse: f64,
    pub as_good: f64,
}

/// How many machines or tasks of a group failed, with the interval of the true share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureRate<'a> {
    /// Of what, such as `starts`.
    pub of: &'a str,
    pub is_new: bool,
    pub n: f64,
    pub n_failed: f64,
    pub interval: (f64, f64),
}

/// The comparison of a canary with its control.
pub struct CanaryChart<'a> {
    pub title: &'a str,
    pub range: TimeRange,
    /// Oldest first.
    pub points: &'a [CanaryPoint],
    pub rates: &'a [FailureRate<'a>],
}

impl Render for CanaryChart<'_> {
    fn render(&self) -> Markup {
        let axis = ValueAxis {
            ticks: Vec::new(),
            ..ValueAxis::between(-1.0 - ROOM, 1.0 + ROOM, Unit::Percent, 2.0)
        };
        let middle = from_top(axis.place(0.0), HEIGHT);
        let good = |point: &CanaryPoint| point.as_good;
        let bad = |point: &CanaryPoint| -point.worse;
        let plot = Plot {
            range: self.range,
            axis: &axis,
            height: TALL,
            label: &self.label(),
            stretched: html! {
                path class="c-good" d=(area(self.steps(&axis, good), middle)) {}
                path class="l-good" d=(line(self.steps(&axis, good))) {}
                path class="c-bad" d=(area(self.steps(&axis, bad), middle)) {}
                path class="l-fail" d=(line(self.steps(&axis, bad))) {}
                (level("grid", middle))
                (level("bnd b-good", from_top(axis.place(1.0), HEIGHT)))
                (level("bnd b-bad", from_top(axis.place(-1.0), HEIGHT)))
            },
            fixed: texts(&axis),
            cursor: units(self.range.place(self.range.at_ms()), WIDTH),
            has_times: true,
            moments: None,
        };
        html! {
            div class="chart canary" {
                (plot.draw())
                (self.numbers())
                (self.failures())
            }
        }
    }
}

fn level(class: &str, y: i32) -> Markup {
    html! { path class=(class) d={ "M0 " (y) "h" (WIDTH) } {} }
}

fn texts(axis: &ValueAxis) -> Markup {
    let y = |value: f64, below: f64| Pixels((1.0 - axis.place(value)) * TALL + below);
    html! {
        text class="sa lb" x="0" y=(y(1.0, -4.0)) { "as good: it is promoted" }
        text class="sa lb" x="0" y=(y(-1.0, 14.0)) { "worse: it is rolled back" }
    }
}

impl CanaryChart<'_> {
    fn label(&self) -> String {
        let last = self.points.last();
        let [good, worse] = [
            last.map_or(0.0, |it| it.as_good),
            last.map_or(0.0, |it| it.worse),
        ]
        .map(|value| Unit::Percent.text(value));
        let title = self.title;
        format!("{title}. {good} of the way to a promotion, {worse} of the way to a roll back")
    }

    /// Each point lasts until the next one.
    fn steps(
        &self,
        axis: &ValueAxis,
        value: impl Fn(&CanaryPoint) -> f64,
    ) -> impl Iterator<Item = Step> {
        let place = |at_ms| units(self.range.place(at_ms), WIDTH);
        let end = |number: usize| {
            let next = self.points.get(number + 1);
            next.map_or(self.range.to_ms(), |next| next.at_ms)
        };
        let steps = self.points.iter().enumerate().map(|(number, point)| Step {
            from: place(point.at_ms),
            to: place(end(number)),
            y: drawable(value(point)).map(|value| from_top(axis.place(value), HEIGHT)),
        });
        steps.collect::<Vec<_>>().into_iter()
    }

    fn numbers(&self) -> Markup {
        html! {
            @if !self.points.is_empty() {
                details class="nums" {
                    summary { "Numbers" }
                    div class="tw" role="region" aria-label={ "Numbers of: " (self.title) } tabindex="0" {
                        table {
                            thead {
                                tr {
                                    th scope="col" { "Time, " (self.range.zone()) }
                                    th scope="col" class="n" { "Worse" }
                                    th scope="col" class="n" { "As good" }
                                }
                            }
                            tbody {
                                @for point in self.points {
                                    tr {
                                        th scope="row" { (self.range.text(point.at_ms)) }
                                        td class="n" { (Unit::Percent.text(point.worse)) }
                                        td class="n" { (Unit::Percent.text(point.as_good)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The failed shares of both groups, with their intervals.
    fn failures(&self) -> Markup {
        let texts = self.rates.iter().map(|rate| {
            let failed = Unit::Count.text(rate.n_failed);
            let of = format!("{failed} of {}", Unit::Count.text(rate.n));
            if rate.n > 0.0 {
                format!("{}, {of}", Unit::Percent.text(rate.n_failed / rate.n))
            } else {
                of
            }
        });
        let texts: Vec<String> = texts.collect();
        let rows = self.rates.iter().zip(&texts).map(|(rate, text)| Row {
            group: rate.of,
            name: if rate.is_new { "new" } else { "control" },
            href: None,
            shape: if rate.n > 0.0 {
                RowShape::Dot {
                    mean: rate.n_failed / rate.n,
                    interval: Some(rate.interval),
                    tone: if rate.is_new {
                        Tone::Busy
                    } else {
                        Tone::Leaving
                    },
                }
            } else {
                RowShape::Nothing
            },
            text,
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let title = format!("{}: failures", self.title);
        html! {
            p class="sub" { "Failures of both groups, with the range in which the true share is" }
            (RowChart { title: &title, unit: Unit::Percent, ends: (0.0, 0.05), rows: &rows })
        }
    }
}

/// The range of the true share when this many of `n` failed, with a certainty of 95 %, by Wilson.
#[must_use]
pub fn interval_of(n_failed: f64, n: f64) -> (f64, f64) {
    const Z: f64 = 1.96;
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let share = (n_failed / n).clamp(0.0, 1.0);
    let scale = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / scale;
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    ((middle - half).max(0.0), (middle + half).min(1.0))
}
