//! The lives of tasks and workers as segments on one line of time.

use maud::{Markup, Render, html};

use super::path::{HEIGHT, Percent, Pixels, WIDTH, units};
use super::plot::time_labels;
use super::time::TimeRange;
use super::tone::{Tone, swatch};
use super::unit::Unit;

/// A segment is at least this part of the line: on a narrow page two pixels.
const SHORTEST: f64 = 0.006;
/// The height of a line in pixels.
const ROW: f64 = 42.0;
/// The distance of a segment from the top of its line, in pixels: there is the name.
const BELOW: f64 = 18.0;
/// The height of a segment in pixels.
const BAR: f64 = 18.0;
/// The height of the labels of the time axis, in pixels.
const LABELS: f64 = 24.0;

/// A part of a life. Segments of one life are in the order of their times.
pub struct Segment<'a> {
    pub from_ms: i64,
    /// `None`: it goes on.
    pub to_ms: Option<i64>,
    pub tone: Tone,
    pub name: &'a str,
    /// The reason, or where it happened.
    pub text: &'a str,
    pub href: Option<&'a str>,
}

/// A line: a run of a task, or a worker.
pub struct Life<'a> {
    pub name: &'a str,
    pub segments: &'a [Segment<'a>],
}

/// Lives below each other on one line of time, with a table of their segments.
pub struct LifeLine<'a> {
    pub title: &'a str,
    pub range: TimeRange,
    pub lives: &'a [Life<'a>],
}

impl Render for LifeLine<'_> {
    fn render(&self) -> Markup {
        let height = ROW * self.lives.len() as f64;
        html! {
            div class="chart" data-cursor=(self.for_script()) {
                svg class="ch life" height=(Pixels(height + LABELS)) role="img"
                    aria-label=(self.label()) {
                    @for (at_ms, _) in self.range.ticks() {
                        @let place = self.range.place(at_ms);
                        line class="grid" x1=(Percent(place)) x2=(Percent(place))
                            y2=(Pixels(height)) {}
                    }
                    @for (number, life) in self.lives.iter().enumerate() {
                        @let top = number as f64 * ROW;
                        text class="sa" x="0" y=(Pixels(top + 13.0)) { (life.name) }
                        (self.line(life, top + BELOW))
                    }
                    line class="axis" x2="100%" y1=(Pixels(height)) y2=(Pixels(height)) {}
                    svg width="100%" height=(Pixels(height))
                        viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                        @let cursor = units(self.range.place(self.range.at_ms()), WIDTH);
                        path class="cur" d={ "M" (cursor) " 0v" (HEIGHT) } {}
                    }
                    (time_labels(self.range, height + LABELS - 8.0))
                }
                (self.table())
            }
        }
    }
}

impl LifeLine<'_> {
    /// One column: the cursor stands at any moment.
    fn for_script(&self) -> String {
        let (from_ms, to_ms) = (self.range.from_ms(), self.range.to_ms());
        format!("{from_ms} {} 1 {from_ms} {to_ms}", to_ms - from_ms)
    }

    fn label(&self) -> String {
        let lives = self.lives.iter().map(|life| {
            let segments = life.segments.iter();
            let segments = segments.map(|it| format!("{} {}", it.name, self.lasted(it)));
            let segments: Vec<String> = segments.collect();
            format!("{}: {}", life.name, segments.join(", "))
        });
        let lives: Vec<String> = lives.collect();
        format!("{}. {}", self.title, lives.join("; "))
    }

    fn end_ms(&self, segment: &Segment<'_>) -> i64 {
        segment.to_ms.unwrap_or(self.range.to_ms())
    }

    fn lasted(&self, segment: &Segment<'_>) -> String {
        let lasted_ms = self.end_ms(segment).saturating_sub(segment.from_ms);
        let text = Unit::Duration.text(lasted_ms.max(0) as f64);
        match segment.to_ms {
            Some(_) => text,
            None => format!("{text} so far"),
        }
    }

    fn line(&self, life: &Life<'_>, y: f64) -> Markup {
        let is_visible = |segment: &&Segment<'_>| {
            self.end_ms(segment) >= self.range.from_ms() && segment.from_ms <= self.range.to_ms()
        };
        let segments: Vec<&Segment<'_>> = life.segments.iter().filter(is_visible).collect();
        let spans = segments.iter().map(|segment| {
            let place = |at_ms| self.range.place(at_ms);
            (place(segment.from_ms), place(self.end_ms(segment)))
        });
        let spans = widen(&spans.collect::<Vec<_>>());
        html! {
            @for (segment, (from, to)) in segments.iter().zip(spans) {
                rect class=(segment.tone.fill()) x=(Percent(from)) width=(Percent(to - from))
                    y=(Pixels(y)) height=(Pixels(BAR)) {
                    title {
                        (segment.name) " " (self.lasted(segment))
                        @if !segment.text.is_empty() { ": " (segment.text) }
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        html! {
            div class="tw" role="region" aria-label={ "Times of: " (self.title) } tabindex="0" {
                table class="lives" {
                    thead {
                        tr {
                            th scope="col" { "From" }
                            th scope="col" { "State" }
                            th scope="col" class="n" { "Time" }
                            th scope="col" { "Reason" }
                        }
                    }
                    @for life in self.lives {
                        tbody {
                            @if self.lives.len() > 1 {
                                tr class="gh" { th scope="rowgroup" colspan="4" { (life.name) } }
                            }
                            @for segment in life.segments {
                                tr {
                                    td { (self.range.text(segment.from_ms)) }
                                    th scope="row" { (swatch(segment.tone)) " " (segment.name) }
                                    td class="n" { (self.lasted(segment)) }
                                    td class="wrap" {
                                        @match segment.href {
                                            Some(href) => a href=(href) { (segment.text) },
                                            None => (segment.text),
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The spans with a width that can be seen. A short span pushes those behind it, or, at the end of
/// the line, those before it.
pub(super) fn widen(spans: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let shortest = SHORTEST.min(1.0 / spans.len().max(1) as f64);
    let mut wide = Vec::with_capacity(spans.len());
    let mut end = 0.0_f64;
    for (from, to) in spans {
        let from = from.max(end);
        end = to.max(from + shortest);
        wide.push((from, end));
    }
    let mut limit = 1.0_f64;
    for (from, to) in wide.iter_mut().rev() {
        *to = to.min(limit);
        *from = from.min(*to - shortest).max(0.0);
        limit = *from;
    }
    wide
}
