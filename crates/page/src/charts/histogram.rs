//! How often values were in which span, with quantiles.

use maud::{Markup, Render, html};

use super::path::{Percent, Pixels};
use super::plot::label_class;
use super::tone::Tone;
use super::unit::{Unit, drawable};
use super::value_axis::ValueAxis;

/// The height of the shapes in pixels.
const TALL: f64 = 140.0;
/// The height of the labels above and below, in pixels.
const LABELS: f64 = 20.0;

/// A span of values, and how many were in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    pub from: f64,
    pub to: f64,
    pub count: f64,
}

/// A histogram. The spans are drawn equally wide, so that they may grow like 1, 2, 5, 10.
pub struct Histogram<'a> {
    pub title: &'a str,
    /// Of the values, not of their counts.
    pub unit: Unit,
    pub tone: Tone,
    pub bins: &'a [Bin],
    /// Names and values of quantiles, such as `median`.
    pub quantiles: &'a [(&'a str, f64)],
}

impl Render for Histogram<'_> {
    fn render(&self) -> Markup {
        let total: f64 = self.bins.iter().map(count).sum();
        let axis = ValueAxis::from_zero(self.bins.iter().map(count), Unit::Count, 3.0);
        let known = self.quantiles.iter();
        let texts = known.map(|(name, value)| format!("{name} {}", self.unit.text(*value)));
        let texts = texts.collect::<Vec<_>>().join(", ");
        let width = 1.0 / self.bins.len().max(1) as f64;
        let left_out = self.bins.len().div_ceil(12).max(1);
        html! {
            div class="chart" {
                p class="sub" { (Unit::Count.text(total)) " in all" @if !texts.is_empty() { "; " (texts) } }
                div class="plot" {
                    svg class="ya" height=(Pixels(TALL + LABELS)) aria-hidden="true" {
                        @for tick in &axis.ticks {
                            text x="100%" y=(Pixels((1.0 - axis.place(*tick)) * TALL + 4.0)) {
                                (axis.unit.label(*tick))
                            }
                        }
                    }
                    svg class="ch" height=(Pixels(TALL + LABELS)) role="img"
                        aria-label={ (self.title) ". " (Unit::Count.text(total)) " in all; " (texts) } {
                        @for tick in &axis.ticks {
                            @let y = (1.0 - axis.place(*tick)) * TALL;
                            line class="grid" x2="100%" y1=(Pixels(y)) y2=(Pixels(y)) {}
                        }
                        @for (number, bin) in self.bins.iter().enumerate() {
                            (self.bar(bin, number as f64 * width, width, &axis))
                            @if number % left_out == 0 {
                                @let place = number as f64 * width;
                                text class=(label_class(place, number / left_out % 2 == 1))
                                    x=(Percent(place)) y=(Pixels(TALL + LABELS - 5.0)) {
                                    (self.unit.label(bin.from))
                                }
                            }
                        }
                        @for (name, value) in self.quantiles {
                            @if let Some(place) = self.place(*value) {
                                line class="cur" x1=(Percent(place)) x2=(Percent(place)) y2=(Pixels(TALL)) {
                                    title { (name) " " (self.unit.text(*value)) }
                                }
                            }
                        }
                        line class="axis" x2="100%" y1=(Pixels(TALL)) y2=(Pixels(TALL)) {}
                    }
                }
            }
        }
    }
}

fn count(bin: &Bin) -> f64 {
    drawable(bin.count).unwrap_or_default().max(0.0)
}

impl Histogram<'_> {
    fn bar(&self, bin: &Bin, from: f64, width: f64, axis: &ValueAxis) -> Markup {
        let height = axis.place(count(bin)) * TALL;
        // A single value must be seen beside thousands.
        let height = if count(bin) > 0.0 {
            height.max(1.5)
        } else {
            0.0
        };
        html! {
            @if height > 0.0 {
                rect class=(self.tone.fill()) x=(Percent(from)) width=(Percent(width * 0.92))
                    y=(Pixels(TALL - height)) height=(Pixels(height)) {
                    title {
                        (self.unit.text(bin.from)) " to " (self.unit.text(bin.to)) ": "
                        (Unit::Count.text(bin.count))
                    }
                }
            }
        }
    }

    /// Where a value stands among the spans. `None`: it is in none.
    fn place(&self, value: f64) -> Option<f64> {
        let width = 1.0 / self.bins.len().max(1) as f64;
        let number = self
            .bins
            .iter()
            .position(|bin| bin.from <= value && value <= bin.to)?;
        let bin = self.bins[number];
        let inside = if bin.to > bin.from && bin.to.is_finite() {
            (value - bin.from) / (bin.to - bin.from)
        } else {
            0.5
        };
        Some((number as f64 + inside) * width)
    }
}
