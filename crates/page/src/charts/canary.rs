//! The evidence about a new image against the control, with the bounds that decide.

use maud::{Markup, Render, html};

use super::path::{HEIGHT, Percent, Pixels, WIDTH, from_top, units};
use super::plot::label_class;
use super::rows::{Row, RowChart, RowShape};
use super::tone::Tone;
use super::unit::{Unit, drawable};
use super::value_axis::ValueAxis;

/// The height of the shapes in pixels.
const TALL: f64 = 160.0;
/// The height of the labels below, in pixels.
const LABELS: f64 = 20.0;
/// More failures than this are not marked one by one.
const MAX_DIAMONDS: usize = 60;

/// A start of a worker with the new image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The evidence after it: the higher, the worse the image.
    pub evidence: f64,
    pub has_failed: bool,
}

/// How many of the starts failed, with the interval of the true share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureRate {
    pub n_starts: f64,
    pub n_failed: f64,
    pub interval: (f64, f64),
}

/// The comparison of a canary with its control.
pub struct CanaryChart<'a> {
    pub title: &'a str,
    pub starts: &'a [Start],
    /// Evidence at or below it promotes the image.
    pub promote_at: f64,
    /// Evidence at or above it rolls the image back.
    pub roll_back_at: f64,
    pub new: FailureRate,
    pub control: FailureRate,
}

impl Render for CanaryChart<'_> {
    fn render(&self) -> Markup {
        let evidence = self.starts.iter().map(|start| start.evidence);
        let evidence = evidence.filter_map(drawable);
        let bounds = [self.promote_at, self.roll_back_at, 0.0];
        let all = evidence.chain(bounds.into_iter().filter_map(drawable));
        let (low, high) = all.fold((0.0_f64, 0.0_f64), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        let room = (high - low) * 0.12;
        let axis = ValueAxis::between(low - room, high + room, Unit::Plain, 4.0);
        // The next starts have room, so that one sees how far it is to a bound.
        let n = self.starts.len() as f64;
        let starts = ValueAxis::between(0.0, (n * 1.25).max(20.0), Unit::Count, 5.0);
        html! {
            div class="chart" {
                svg class="ch" height=(Pixels(TALL + LABELS)) role="img" aria-label=(self.label()) {
                    svg width="100%" height=(Pixels(TALL))
                        viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                        (level("grid", axis.place(0.0)))
                        (level("bnd b-bad", axis.place(self.roll_back_at)))
                        (level("bnd b-good", axis.place(self.promote_at)))
                        path class="ln" d=(self.line(&axis, &starts)) {}
                    }
                    (self.points(&axis, &starts))
                    (self.texts(&axis))
                    @for (number, tick) in starts.ticks.iter().enumerate() {
                        @let place = starts.place(*tick);
                        text class=(label_class(place, number % 2 == 1)) x=(Percent(place))
                            y=(Pixels(TALL + LABELS - 5.0)) {
                            (Unit::Count.label(*tick)) @if number == 0 { " starts" }
                        }
                    }
                }
                (self.rates())
            }
        }
    }
}

fn level(class: &str, place: f64) -> Markup {
    html! { path class=(class) d={ "M0 " (from_top(place, HEIGHT)) "h" (WIDTH) } {} }
}

impl CanaryChart<'_> {
    fn label(&self) -> String {
        format!(
            "{}. Evidence {} after {}, between {} (promote) and {} (roll back)",
            self.title,
            Unit::Plain.text(self.last_evidence()),
            self.count(),
            Unit::Plain.text(self.promote_at),
            Unit::Plain.text(self.roll_back_at),
        )
    }

    fn last_evidence(&self) -> f64 {
        self.starts.last().map_or(0.0, |start| start.evidence)
    }

    fn count(&self) -> String {
        format!(
            "{} starts, {} failed",
            Unit::Count.text(self.new.n_starts),
            Unit::Count.text(self.new.n_failed)
        )
    }

    /// Evidence moves with each start: this line may be sloped, because a start is a point.
    fn line(&self, axis: &ValueAxis, starts: &ValueAxis) -> String {
        let mut path = format!("M0 {}L", from_top(axis.place(0.0), HEIGHT));
        let mut last = (0, 0);
        for (number, start) in (1_u32..).zip(self.starts) {
            let x = units(starts.place(f64::from(number)), WIDTH);
            let y = from_top(axis.place(start.evidence), HEIGHT);
            if (x, y) != last {
                path.push_str(&format!("{x} {y} "));
            }
            last = (x, y);
        }
        if self.starts.is_empty() {
            path.pop();
        }
        path.trim_end().to_owned()
    }

    fn points(&self, axis: &ValueAxis, starts: &ValueAxis) -> Markup {
        let y = |evidence: f64| Pixels((1.0 - axis.place(evidence)) * TALL);
        let x = |number: u32| Percent(starts.place(f64::from(number)));
        let failed = (1_u32..).zip(self.starts).filter(|(_, it)| it.has_failed);
        let end = u32::try_from(self.starts.len()).unwrap_or(u32::MAX);
        html! {
            @for (number, start) in failed.take(MAX_DIAMONDS) {
                svg x=(x(number)) y=(y(start.evidence)) {
                    path class="c-fail" d="M-4 0L0 -4L4 0L0 4Z" {}
                }
            }
            circle class="dot" cx=(x(end)) cy=(y(self.last_evidence())) r="3.5" {}
            svg x=(x(end)) y=(y(self.last_evidence())) {
                // The line comes from the other side.
                text class=(if end == 0 { "lb sa" } else { "lb ea" })
                    y=(if self.last_evidence() < 0.0 { "17" } else { "-9" }) { (self.count()) }
            }
        }
    }

    fn texts(&self, axis: &ValueAxis) -> Markup {
        let y = |value: f64| (1.0 - axis.place(value)) * TALL;
        html! {
            text class="sa" x="0" y=(Pixels(y(self.roll_back_at) - 5.0)) { "worse: roll back" }
            text class="sa" x="0" y=(Pixels(y(self.promote_at) + 14.0)) { "as good: promote" }
            text class="ea" x="100%" y=(Pixels(y(0.0) - 5.0)) { "no evidence either way" }
        }
    }

    /// The failed shares of both, with their intervals.
    fn rates(&self) -> Markup {
        let rates = [("new", self.new), ("control", self.control)];
        let text = |rate: FailureRate| {
            let share = if rate.n_starts > 0.0 {
                Unit::Percent.text(rate.n_failed / rate.n_starts)
            } else {
                "–".to_owned()
            };
            let (failed, starts) = (rate.n_failed, rate.n_starts);
            format!(
                "{share}, {} of {}",
                Unit::Count.text(failed),
                Unit::Count.text(starts)
            )
        };
        let texts = rates.map(|(_, rate)| text(rate));
        let rows = rates.iter().zip(&texts).map(|((name, rate), text)| Row {
            group: "",
            name,
            href: None,
            shape: if rate.n_starts > 0.0 {
                RowShape::Dot {
                    mean: rate.n_failed / rate.n_starts,
                    interval: Some(rate.interval),
                    tone: if *name == "new" {
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
        let title = format!("{}: failed starts", self.title);
        html! {
            p class="sub" { "Failed starts, with the range of the true share" }
            (RowChart { title: &title, unit: Unit::Percent, ends: (0.0, 0.05), rows: &rows })
        }
    }
}
