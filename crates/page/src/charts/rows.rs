//! Rows with a name, a shape on a common scale, and a value: bars, quantiles, dots with whiskers.

use maud::{Markup, Render, html};

use super::path::Percent;
use super::plot::label_class;
use super::tone::Tone;
use super::unit::Unit;
use super::value_axis::ValueAxis;

/// The shape of a row.
pub enum RowShape<'a> {
    /// A mean with its interval, if that is known.
    Dot {
        mean: f64,
        interval: Option<(f64, f64)>,
        tone: Tone,
    },
    /// A bar of parts, with the interval of its end.
    Bar {
        parts: &'a [(&'a str, Tone, f64)],
        interval: Option<(f64, f64)>,
    },
    /// A bar up to the middle of three quantiles; the two others are steps of its shade.
    Quantiles { values: [f64; 3], tone: Tone },
    /// Nothing is known.
    Nothing,
}

/// A row of a chart.
pub struct Row<'a> {
    /// Stands before the first row of a group.
    pub group: &'a str,
    pub name: &'a str,
    pub href: Option<&'a str>,
    pub shape: RowShape<'a>,
    /// The value for readers.
    pub text: &'a str,
}

/// Rows on one scale.
pub struct RowChart<'a> {
    pub title: &'a str,
    pub unit: Unit,
    /// The scale has at least these ends.
    pub ends: (f64, f64),
    pub rows: &'a [Row<'a>],
}

impl RowShape<'_> {
    fn ends(&self) -> Vec<f64> {
        let (mut ends, interval) = match self {
            Self::Dot { mean, interval, .. } => (vec![*mean], *interval),
            Self::Bar { parts, interval } => {
                let sum = parts.iter().map(|(_, _, value)| value.max(0.0)).sum();
                (vec![0.0, sum], *interval)
            }
            Self::Quantiles { values, .. } => (values.to_vec(), None),
            Self::Nothing => (Vec::new(), None),
        };
        ends.extend(interval.into_iter().flat_map(|(low, high)| [low, high]));
        ends.retain(|end| end.is_finite());
        ends
    }

    fn draw(&self, axis: &ValueAxis, unit: Unit) -> Markup {
        let place = |value: f64| axis.place(value);
        let from_zero = |value: f64| Percent(place(value) - place(0.0));
        html! {
            @match self {
                Self::Dot { mean, interval, tone } => {
                    (whisker(axis, *interval))
                    circle class=(tone.fill()) cx=(Percent(place(*mean))) cy="50%" r="4" {}
                }
                Self::Bar { parts, interval } => {
                    @let mut sum = 0.0;
                    @for (name, tone, value) in *parts {
                        @let start = sum;
                        @let () = sum += value.max(0.0);
                        rect class=(tone.fill()) x=(Percent(place(start))) y="3" height="15"
                            width=(Percent(place(sum) - place(start))) {
                            title { (name) " " (unit.text(*value)) }
                        }
                    }
                    (whisker(axis, *interval))
                }
                Self::Quantiles { values, tone } => {
                    @for (value, class) in values.iter().zip(["q1", "q2", "q3"]).rev() {
                        rect class={ (tone.fill()) " " (class) } x=(Percent(place(0.0))) y="3"
                            width=(from_zero(*value)) height="15" {}
                    }
                }
                Self::Nothing => {}
            }
        }
    }
}

fn whisker(axis: &ValueAxis, interval: Option<(f64, f64)>) -> Markup {
    html! {
        @if let Some((low, high)) = interval {
            line class="ci" x1=(Percent(axis.place(low))) x2=(Percent(axis.place(high)))
                y1="50%" y2="50%" {}
        }
    }
}

impl Render for RowChart<'_> {
    fn render(&self) -> Markup {
        let ends = self.rows.iter().flat_map(|row| row.shape.ends());
        let (low, high) = ends.fold(self.ends, |(low, high), end| (low.min(end), high.max(end)));
        let axis = ValueAxis::between(low, high, self.unit, 5.0);
        let mut group = "";
        html! {
            div class="tw" role="region" aria-label=(self.title) tabindex="0" {
                table class="rows" {
                    tbody {
                        @for row in self.rows {
                            @let is_first = group != row.group;
                            @let () = group = row.group;
                            @if is_first {
                                tr class="gh" { th scope="rowgroup" colspan="3" { (row.group) } }
                            }
                            tr {
                                th scope="row" {
                                    @match row.href {
                                        Some(href) => a href=(href) { (row.name) },
                                        None => (row.name),
                                    }
                                }
                                td class="g" {
                                    svg class="row" height="22" aria-hidden="true" {
                                        (grid(&axis))
                                        (row.shape.draw(&axis, self.unit))
                                    }
                                }
                                td class="n" { (row.text) }
                            }
                        }
                    }
                    tfoot aria-hidden="true" {
                        tr {
                            td {}
                            td class="g" {
                                svg class="row" height="18" aria-hidden="true" { (labels(&axis)) }
                            }
                            td {}
                        }
                    }
                }
            }
        }
    }
}

fn grid(axis: &ValueAxis) -> Markup {
    html! {
        @for tick in &axis.ticks {
            line class=(if *tick == 0.0 { "axis" } else { "grid" }) x1=(Percent(axis.place(*tick)))
                x2=(Percent(axis.place(*tick))) y1="0" y2="100%" {}
        }
    }
}

fn labels(axis: &ValueAxis) -> Markup {
    html! {
        @for (number, tick) in axis.ticks.iter().enumerate() {
            @let place = axis.place(*tick);
            text class=(label_class(place, number % 2 == 1)) x=(Percent(place)) y="13" {
                (axis.unit.label(*tick))
            }
        }
    }
}
