//! The plot over time: grid, axes, cursor and the shapes between them.

use std::fmt::Write;

use maud::{Markup, html};

use super::path::{HEIGHT, Percent, Pixels, WIDTH, from_top, units};
use super::time::TimeRange;
use super::value_axis::ValueAxis;

/// The height of the line with the labels of the time axis, in pixels.
const LABELS: f64 = 22.0;
/// The height of the ticks below the axis, in pixels.
const TICKS: f64 = 9.0;
/// Labels this near to an end are aligned with it, so that they stay inside.
const EDGE: f64 = 0.08;

/// A plot with the shapes of a chart.
pub(super) struct Plot<'a> {
    pub(super) range: TimeRange,
    pub(super) axis: &'a ValueAxis,
    /// The height of the shapes in pixels.
    pub(super) height: f64,
    /// The text for screen readers.
    pub(super) label: &'a str,
    /// Shapes that stretch, in units of [`WIDTH`] and [`HEIGHT`].
    pub(super) stretched: Markup,
    /// Shapes that do not stretch, with places in percent and pixels.
    pub(super) fixed: Markup,
    /// The place of the cursor.
    pub(super) cursor: i32,
    pub(super) has_times: bool,
    /// Lead to what is known of a moment.
    pub(super) moments: Option<MomentLinks<'a>>,
}

/// The address of a page about a moment: the milliseconds stand between these two parts.
#[derive(Clone, Copy, Debug)]
pub struct MomentLinks<'a> {
    pub before: &'a str,
    pub after: &'a str,
}

/// The links of a plot. The script finds the exact moment of a click between them.
const LINKS: i64 = 48;

impl Plot<'_> {
    pub(super) fn draw(&self) -> Markup {
        let below = TICKS + if self.has_times { LABELS } else { 0.0 };
        html! {
            div class="plot" {
                svg class="ya" height=(Pixels(self.height + below)) aria-hidden="true" {
                    @for tick in &self.axis.ticks {
                        text x="100%" y=(Pixels(self.y(*tick) + 4.0)) {
                            (self.axis.unit.label(*tick))
                        }
                    }
                    @if self.has_times {
                        text x="100%" y=(Pixels(self.height + below - 5.0)) { (self.range.zone()) }
                    }
                }
                svg class="ch" height=(Pixels(self.height + below)) role="img"
                    aria-label=(self.label) {
                    svg width="100%" height=(Pixels(self.height))
                        viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                        path class="grid" d=(self.grid()) {}
                        (self.stretched)
                    }
                    (self.fixed)
                    svg width="100%" height=(Pixels(self.height))
                        viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                        path class="axis" d={ "M0 " (HEIGHT) "h" (WIDTH) } {}
                        path class="cur" d={ "M" (self.cursor) " 0v" (HEIGHT) } {}
                    }
                    @if self.has_times { (time_labels(self.range, self.height + below - 5.0)) }
                }
                @if let Some(links) = self.moments { (self.links(links)) }
            }
        }
    }

    /// For the pointer, over the shapes. The scrubber does the same for the keyboard.
    fn links(&self, links: MomentLinks<'_>) -> Markup {
        let (from_ms, to_ms) = (self.range.from_ms(), self.range.to_ms());
        // At multiples of their distance, so that they stay as time goes on.
        let step_ms = ((to_ms - from_ms) / LINKS).max(1);
        let first = from_ms.div_euclid(step_ms);
        html! {
            svg class="ch over" height=(Pixels(self.height)) aria-hidden="true"
                viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                @for number in first..=first + LINKS {
                    @let start_ms = (number * step_ms).max(from_ms);
                    @let end_ms = ((number + 1) * step_ms).min(to_ms);
                    @let x = units(self.range.place(start_ms), WIDTH);
                    @let width = units(self.range.place(end_ms), WIDTH) - x;
                    @if width > 0 {
                        a href={ (links.before) (end_ms) (links.after) } tabindex="-1" {
                            rect class="hit" x=(x) width=(width) height=(HEIGHT) {}
                        }
                    }
                }
            }
        }
    }

    fn y(&self, value: f64) -> f64 {
        (1.0 - self.axis.place(value)) * self.height
    }

    fn grid(&self) -> String {
        let mut path = String::new();
        for tick in &self.axis.ticks {
            let y = from_top(self.axis.place(*tick), HEIGHT);
            write!(path, "M0 {y}h{WIDTH}").expect("writing to a string cannot fail");
        }
        for (at_ms, _) in self.range.ticks() {
            let x = units(self.range.place(at_ms), WIDTH);
            write!(path, "M{x} 0v{HEIGHT}").expect("writing to a string cannot fail");
        }
        path
    }
}

/// The labels of the time axis. Where the page is narrow, every second one stays.
pub(super) fn time_labels(range: TimeRange, y: f64) -> Markup {
    let ticks = range.ticks().into_iter();
    let labels = ticks.map(|(at_ms, label)| (range.place(at_ms), label));
    html! {
        @for (number, (place, label)) in labels.enumerate() {
            text class=(label_class(place, number % 2 == 1)) x=(Percent(place)) y=(Pixels(y)) {
                (label)
            }
        }
    }
}

/// The classes of a label by its place, and whether it is left out where there is no room.
pub(super) fn label_class(place: f64, is_left_out: bool) -> &'static str {
    match (place, is_left_out) {
        (place, false) if place < EDGE => "sa",
        (place, true) if place < EDGE => "sa wd",
        (place, false) if place > 1.0 - EDGE => "ea",
        (place, true) if place > 1.0 - EDGE => "ea wd",
        (_, false) => "ma",
        (_, true) => "ma wd",
    }
}
