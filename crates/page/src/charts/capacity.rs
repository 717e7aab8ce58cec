//! The workers of a pool by state over time, against waiting tasks and limits.

use maud::{Markup, Render, html};

use super::legend::Entry;
use super::over_time::OverTime;
use super::path::{HEIGHT, Percent, WIDTH, area, line, ticks, units};
use super::plot::{MomentLinks, Plot};
use super::series::{Columns, Gather, Series};
use super::time::TimeRange;
use super::tone::{Tone, line_swatch, swatch};
use super::unit::Unit;
use super::value_axis::ValueAxis;

/// More columns than this are narrower than a pixel.
const COLUMNS: usize = 480;
/// The height of the workers in pixels.
const TALL: f64 = 250.0;
/// The height of a strip for waiting tasks in pixels.
const STRIP: f64 = 64.0;
/// If one of workers and tasks are this many times the other, each has its own axis.
const APART: f64 = 10.0;
/// The newest marks are listed, the others only drawn.
const MAX_MARKS_LISTED: usize = 12;

/// The counts of workers in each state.
pub struct WorkerStates<'a> {
    pub busy: &'a Series,
    pub idle: &'a Series,
    pub booting: &'a Series,
    pub requested: &'a Series,
    pub leaving: &'a Series,
}

/// The kind of event that a mark shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A decision of the planner.
    Decision,
    /// A change by a person or a rule: an edit, a pause, an image.
    Change,
}

/// Something that happened at a moment, with the page that explains it.
pub struct Mark<'a> {
    pub at_ms: i64,
    pub kind: MarkKind,
    pub text: &'a str,
    pub href: &'a str,
}

/// Workers by state against waiting tasks.
pub struct CapacityChart<'a> {
    pub title: &'a str,
    pub range: TimeRange,
    pub states: WorkerStates<'a>,
    pub waiting: &'a Series,
    pub max: Option<&'a Series>,
    /// How many launches were refused in each step.
    pub refused: &'a Series,
    pub marks: &'a [Mark<'a>],
    /// Where a click in the chart leads.
    pub moments: Option<MomentLinks<'a>>,
}

/// The values of all columns.
struct Gathered {
    columns: Columns,
    /// Busy, idle, booting, requested, leaving.
    states: Vec<Vec<Option<f64>>>,
    /// Busy; busy and idle; and so on.
    sums: Vec<Vec<Option<f64>>>,
    waiting: Vec<Option<f64>>,
    max: Option<Vec<Option<f64>>>,
    refused: Vec<Option<f64>>,
}

const NAMES: [(&str, Tone); 5] = [
    ("busy", Tone::Busy),
    ("idle", Tone::Idle),
    ("booting", Tone::Booting),
    ("requested", Tone::Requested),
    ("leaving", Tone::Leaving),
];

impl Render for CapacityChart<'_> {
    fn render(&self) -> Markup {
        let gathered = self.gather();
        let columns = gathered.columns;
        let entries = gathered.entries();
        let highest = |values: &[Option<f64>]| {
            let values = values.iter().copied().flatten();
            values.fold(0.0, f64::max)
        };
        let workers = gathered.sums.last().map_or(0.0, |sums| highest(sums));
        let limit = gathered.max.as_deref().map_or(0.0, highest);
        let waiting = highest(&gathered.waiting);
        let is_apart = waiting > 0.0
            && workers > 0.0
            && (workers > waiting * APART || waiting > workers * APART);
        let shared = if is_apart { 0.0 } else { waiting };
        // A limit far above would hide the workers: then it is only in the legend.
        let is_far = limit > workers.max(shared) * APART;
        let limit = if is_far { 0.0 } else { limit };
        let axis = ValueAxis::from_zero([workers, limit, shared].into_iter(), Unit::Count, 4.0);
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
            stretched: self.shapes(&gathered, &axis, (!is_apart, !is_far)),
            fixed: html! {},
            cursor: columns.cursor(self.range),
            has_times: true,
            moments: self.moments,
        };
        frame.around(&html! {
            @if is_apart { (self.strip(&gathered)) }
            (self.marks())
            (plot.draw())
            (self.listed_marks())
        })
    }
}

impl CapacityChart<'_> {
    fn gather(&self) -> Gathered {
        let states = &self.states;
        let all = [
            states.busy,
            states.idle,
            states.booting,
            states.requested,
            states.leaving,
        ];
        let columns = Columns::of(self.range, states.busy, COLUMNS);
        let states = columns.gather_together(&all);
        let mut sums: Vec<Vec<Option<f64>>> = Vec::with_capacity(states.len());
        for values in &states {
            let sum = match sums.last() {
                None => values.clone(),
                Some(below) => {
                    let pairs = below.iter().zip(values);
                    pairs.map(|(below, value)| add(*below, *value)).collect()
                }
            };
            sums.push(sum);
        }
        let peak = |series: &Series| columns.gather(series, Gather::Peak);
        Gathered {
            columns,
            states,
            sums,
            waiting: peak(self.waiting),
            max: self.max.map(peak),
            refused: columns.gather(self.refused, Gather::Sum),
        }
    }

    /// The largest sum is drawn first, and the smaller ones over it.
    fn shapes(
        &self,
        gathered: &Gathered,
        axis: &ValueAxis,
        (has_waiting, has_limit): (bool, bool),
    ) -> Markup {
        let columns = gathered.columns;
        let steps = |values| columns.steps(self.range, axis, values, (WIDTH, HEIGHT));
        let layers: Vec<_> = NAMES.iter().zip(&gathered.sums).rev().collect();
        let refused = gathered.refused.iter().zip(columns.spans());
        let refused = refused.filter(|(n, _)| n.is_some_and(|n| n > 0.0));
        let refused = refused.map(|(_, (from_ms, to_ms))| self.range.place((from_ms + to_ms) / 2));
        let refused = ticks(refused.map(|place| units(place, WIDTH)), HEIGHT, 14);
        html! {
            @for ((_, tone), sums) in layers {
                path class=(stacked(*tone)) d=(area(steps(sums), HEIGHT)) {}
                @if let Tone::Idle | Tone::Requested = tone {
                    path class=(tone.stroke()) d=(line(steps(sums))) {}
                }
            }
            @if let Some(limits) = gathered.max.as_ref().filter(|_| has_limit) {
                path class="lim" d=(line(steps(limits))) {}
            }
            @if has_waiting { path class="ln" d=(line(steps(&gathered.waiting))) {} }
            @if !refused.is_empty() { path class="tick" d=(refused) {} }
        }
    }

    fn strip(&self, gathered: &Gathered) -> Markup {
        let columns = gathered.columns;
        let values = gathered.waiting.iter().copied().flatten();
        let axis = ValueAxis::from_zero(values, Unit::Count, 2.0);
        let steps = columns.steps(self.range, &axis, &gathered.waiting, (WIDTH, HEIGHT));
        let plot = Plot {
            range: self.range,
            axis: &axis,
            height: STRIP,
            label: &format!("{}: waiting tasks on a scale of their own", self.title),
            stretched: html! { path class="ln" d=(line(steps)) {} },
            fixed: html! {},
            cursor: columns.cursor(self.range),
            has_times: false,
            moments: self.moments,
        };
        html! {
            p class="sub" { "Waiting tasks" }
            (plot.draw())
            p class="sub" { "Workers" }
        }
    }

    fn visible_marks(&self) -> impl Iterator<Item = &Mark<'_>> {
        let range = self.range;
        self.marks
            .iter()
            .filter(move |mark| range.contains(mark.at_ms))
    }

    /// For the pointer. The same links are listed below for the keyboard and for screen readers.
    fn marks(&self) -> Markup {
        let mut drawn: Vec<(i32, MarkKind)> = Vec::new();
        let mut marks: Vec<&Mark<'_>> = Vec::new();
        for mark in self.visible_marks() {
            // One in each place: decisions can come every few seconds.
            let place = (units(self.range.place(mark.at_ms), WIDTH / 8), mark.kind);
            if !drawn.contains(&place) {
                drawn.push(place);
                marks.push(mark);
            }
        }
        html! {
            @if !marks.is_empty() {
                div class="plot" aria-hidden="true" {
                    svg class="ya" height="14" aria-hidden="true" {}
                    svg class="ch mks" height="14" aria-hidden="true" {
                        @for mark in marks {
                            svg x=(Percent(self.range.place(mark.at_ms))) y="7" {
                                a href=(mark.href) tabindex="-1" {
                                    title { (self.range.text(mark.at_ms)) ": " (mark.text) }
                                    rect class="hit" x="-6" y="-7" width="12" height="14" {}
                                    @match mark.kind {
                                        MarkKind::Decision => path class="dec" d="M-3 1L0 6L3 1Z" {},
                                        MarkKind::Change => path class="chg" d="M-4 0L0 -4L4 0L0 4Z" {},
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Changes are few and explain much, so only decisions have to be opened.
    fn listed_marks(&self) -> Markup {
        let of_kind = |kind| {
            let mut marks: Vec<&Mark<'_>> = self.visible_marks().collect();
            marks.retain(|mark| mark.kind == kind);
            marks.sort_by_key(|mark| -mark.at_ms);
            marks
        };
        let (changes, decisions) = (of_kind(MarkKind::Change), of_kind(MarkKind::Decision));
        html! {
            @if !changes.is_empty() {
                p class="sub" { "Changes" }
                (self.list(&changes))
            }
            @if !decisions.is_empty() {
                details class="nums" {
                    summary { "Decisions" }
                    (self.list(&decisions))
                }
            }
        }
    }

    fn list(&self, marks: &[&Mark<'_>]) -> Markup {
        let n_more = marks.len().saturating_sub(MAX_MARKS_LISTED);
        html! {
            ul class="marks" {
                @for mark in marks.iter().take(MAX_MARKS_LISTED) {
                    li {
                        span class="dim" { (self.range.text(mark.at_ms)) } " "
                        a href=(mark.href) { (mark.text) }
                    }
                }
                @if n_more > 0 { li class="dim" { (n_more) " more in this time" } }
            }
        }
    }
}

impl Gathered {
    fn entries(&self) -> Vec<Entry<'_>> {
        let count = |swatch, name, values| Entry {
            swatch,
            name,
            unit: Unit::Count,
            values,
        };
        let mut entries = vec![count(line_swatch("ln"), "waiting", &self.waiting)];
        for ((name, tone), values) in NAMES.iter().zip(&self.states).rev() {
            entries.push(count(swatch(*tone), name, values));
        }
        if let Some(values) = &self.max {
            entries.push(count(line_swatch("lim"), "limit", values));
        }
        if self.refused.iter().flatten().any(|refused| *refused > 0.0) {
            entries.push(count(line_swatch("tick"), "refused", &self.refused));
        }
        entries
    }
}

/// The class of an area that stretches: its hatch would stretch, too.
fn stacked(tone: Tone) -> &'static str {
    if tone == Tone::Requested {
        "c-req"
    } else {
        tone.fill()
    }
}

/// The sum of what was recorded.
fn add(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or_default() + other.unwrap_or_default()),
    }
}
