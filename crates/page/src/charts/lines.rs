//! Lines over time in one chart, over an area for comparison.

use maud::{Markup, Render, html};

use super::legend::Entry;
use super::over_time::OverTime;
use super::path::{HEIGHT, WIDTH, area, line};
use super::plot::Plot;
use super::series::{Columns, Gather, Series};
use super::time::TimeRange;
use super::tone::{Tone, line_swatch, swatch};
use super::unit::Unit;
use super::value_axis::ValueAxis;

/// More columns than this are narrower than a pixel.
const COLUMNS: usize = 480;
/// The height of the shapes in pixels.
const TALL: f64 = 220.0;

/// A line of a chart.
pub struct Line<'a> {
    pub name: &'a str,
    pub tone: Tone,
    pub is_dashed: bool,
    pub series: &'a Series,
}

impl Line<'_> {
    fn class(&self) -> String {
        let dash = if self.is_dashed { " dash" } else { "" };
        format!("{}{dash}", self.tone.stroke())
    }
}

/// Levels over time.
pub struct LineChart<'a> {
    pub title: &'a str,
    pub range: TimeRange,
    pub unit: Unit,
    /// Behind the lines.
    pub ground: Option<(&'a str, &'a Series)>,
    pub lines: &'a [Line<'a>],
}

impl Render for LineChart<'_> {
    fn render(&self) -> Markup {
        let first = self.lines.first().map(|line| line.series);
        let Some(first) = first.or(self.ground.map(|(_, series)| series)) else {
            return html! { p class="empty" { (self.title) ": nothing was recorded." } };
        };
        let columns = Columns::of(self.range, first, COLUMNS);
        let gather = |series: &Series| columns.gather(series, Gather::Peak);
        let ground = self.ground.map(|(name, series)| (name, gather(series)));
        let lines = self.lines.iter();
        let lines: Vec<_> = lines.map(|line| (line, gather(line.series))).collect();
        let all = lines.iter().map(|(_, values)| values);
        let all = all.chain(ground.iter().map(|(_, values)| values));
        let axis = ValueAxis::from_zero(all.flatten().copied().flatten(), self.unit, 4.0);
        let size = (WIDTH, HEIGHT);
        let entries: Vec<Entry<'_>> = self.entries(&ground, &lines);
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
            stretched: html! {
                @if let Some((_, values)) = &ground {
                    path class="c-area" d=(area(columns.steps(self.range, &axis, values, size), HEIGHT)) {}
                }
                @for (of, values) in &lines {
                    path class=(of.class())
                        d=(line(columns.steps(self.range, &axis, values, size))) {}
                }
            },
            fixed: html! {},
            cursor: columns.cursor(self.range),
            has_times: true,
            moments: None,
        };
        frame.around(&plot.draw())
    }
}

type Gathered<'a> = (&'a Line<'a>, Vec<Option<f64>>);

impl LineChart<'_> {
    fn entries<'b>(
        &'b self,
        ground: &'b Option<(&str, Vec<Option<f64>>)>,
        lines: &'b [Gathered<'_>],
    ) -> Vec<Entry<'b>> {
        let ground = ground.iter().map(|(name, values)| Entry {
            swatch: swatch(Tone::Ground),
            name,
            unit: self.unit,
            values,
        });
        let lines = lines.iter().map(|(line, values)| Entry {
            swatch: line_swatch(&line.class()),
            name: line.name,
            unit: self.unit,
            values,
        });
        ground.chain(lines).collect()
    }
}
