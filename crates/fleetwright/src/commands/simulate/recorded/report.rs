//! The results of `simulate recorded`: what was recorded beside what was simulated.

use serde_json::{Value, json};
use simulate::page::{Introduction, page_of};
use simulate::recording::{Past, Recording};
use simulate::study::{Measure, ScenarioResult, StrategyResult};

use crate::output::{self, Kind, grid};

pub(super) struct Report<'a> {
    pub(super) recording: &'a Recording,
    pub(super) past: &'a Past,
    /// The present configuration, and perhaps a changed one.
    pub(super) result: &'a ScenarioResult,
    pub(super) seeds: &'a [u64],
    pub(super) remarks: &'a [String],
}

/// The columns: title, measure, decimals.
const COLUMNS: [(&str, Measure, usize); 11] = [
    ("COST $", Measure::Cost, 2),
    ("MEAN S", Measure::Delay, 1),
    ("P50 S", Measure::DelayP50, 0),
    ("P95 S", Measure::DelayP95, 0),
    ("P99 S", Measure::DelayP99, 0),
    ("OVER H", Measure::OverProvisioned, 1),
    ("LAUNCHES", Measure::Launches, 0),
    ("REFUSED", Measure::Refused, 0),
    ("WASTED", Measure::Wasted, 0),
    ("WASTED $", Measure::WastedCost, 2),
    ("UNFINISHED", Measure::Unfinished, 0),
];

/// The recorded time and load.
pub(super) fn about(recording: &Recording, past: &Past) -> String {
    let tasks = output::counted(past.tasks, "task");
    let (since, until) = (recording.header.since, recording.header.until);
    format!("Recorded from {since} to {until}: {tasks}")
}

impl Report<'_> {
    /// By how many percent the simulated present differs from what was recorded. `None`: only
    /// nothing was recorded.
    fn difference(&self, measure: Measure) -> Option<f64> {
        let recorded = self.recorded(measure)?;
        let present = self.result.strategies.first()?;
        let simulated = present.mean.get(measure)?.mean;
        if recorded > 0.0 {
            return Some(100.0 * (simulated - recorded) / recorded);
        }
        (simulated <= 0.0).then_some(0.0)
    }

    fn recorded(&self, measure: Measure) -> Option<f64> {
        let past = self.past;
        match measure {
            Measure::J => Some(past.cost + past.tasks as f64 * past.delay.mean / 3_600.0),
            Measure::Cost => Some(past.cost),
            Measure::Delay => Some(past.delay.mean),
            Measure::DelayP50 => Some(past.delay.p50),
            Measure::DelayP95 => Some(past.delay.p95),
            Measure::DelayP99 => Some(past.delay.p99),
            Measure::OverProvisioned => Some(past.over_provisioned_hours),
            Measure::Launches => Some(past.launches as f64),
            Measure::Refused => Some(past.refused as f64),
            Measure::Interrupted => Some(past.interrupted as f64),
            Measure::Wasted
            | Measure::WastedCost
            | Measure::Recovery
            | Measure::Fairness
            | Measure::Unfinished => None,
        }
    }

    fn difference_text(&self) -> String {
        let percent = |measure| {
            let difference = self.difference(measure);
            difference.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %"))
        };
        format!(
            "The simulated present differs from what was recorded by {} in cost, {} in \
             over-provisioned hours, {} in launches and {} in the mean wait.",
            percent(Measure::Cost),
            percent(Measure::OverProvisioned),
            percent(Measure::Launches),
            percent(Measure::Delay)
        )
    }

    pub(super) fn text(&self) -> String {
        let mut headings = vec![("CONFIGURATION", Kind::Text)];
        headings.extend(COLUMNS.map(|(title, _, _)| (title, Kind::Number)));
        headings.push(("J $", Kind::Number));
        headings.push(("J DIFFERENCE", Kind::Number));
        let mut rows = vec![self.recorded_row()];
        rows.extend(self.result.strategies.iter().map(row));
        let table = grid(&headings, rows, output::screen_width());
        let about = &self.result.about;
        format!("{about}\n\n{table}\n{}\n", self.difference_text())
    }

    fn recorded_row(&self) -> Vec<String> {
        let cell = |measure, decimals: usize| {
            let value = self.recorded(measure);
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let mut cells = vec!["recorded".to_owned()];
        cells.extend(COLUMNS.map(|(_, measure, decimals)| cell(measure, decimals)));
        cells.push(cell(Measure::J, 1));
        cells.push("-".to_owned());
        cells
    }

    pub(super) fn document(&self) -> Value {
        let header = &self.recording.header;
        json!({
            "since": header.since.to_string(),
            "until": header.until.to_string(),
            "notes": self.remarks,
            "recorded": self.past,
            "differencePercent": {
                "cost": self.difference(Measure::Cost),
                "overProvisionedHours": self.difference(Measure::OverProvisioned),
                "launches": self.difference(Measure::Launches),
                "delayMean": self.difference(Measure::Delay),
            },
            "seeds": self.seeds,
            "configurations": self.result.strategies,
        })
    }

    pub(super) fn page(&self) -> String {
        let names = self.result.strategies.iter();
        let names: Vec<&str> = names.map(|result| result.strategy.as_str()).collect();
        let past = self.past;
        let mut paragraphs = vec![
            format!(
                "Recorded: cost {:.2} $, mean delay {:.1} s, p50 {:.0} s, p95 {:.0} s, p99 {:.0} s, \
                 {} launches. {}",
                past.cost,
                past.delay.mean,
                past.delay.p50,
                past.delay.p95,
                past.delay.p99,
                past.launches,
                self.difference_text()
            ),
            "All configurations have the same load and the same luck with the clouds.".to_owned(),
        ];
        paragraphs.extend(self.remarks.iter().map(|remark| format!("Note: {remark}.")));
        let text = Introduction {
            title: "Simulations of a recorded history",
            paragraphs,
        };
        page_of(&text, &names, self.seeds, std::slice::from_ref(self.result))
    }
}

/// The means, each with half the width of its confidence interval.
fn row(result: &StrategyResult) -> Vec<String> {
    let cell = |measure, decimals: usize| match result.mean.get(measure) {
        None => "-".to_owned(),
        Some(estimate) => {
            let margin = estimate.margin.filter(|margin| *margin > 0.0);
            let margin = margin.map(|margin| format!(" ± {margin:.decimals$}"));
            format!(
                "{:.decimals$}{}",
                estimate.mean + 0.0,
                margin.unwrap_or_default()
            )
        }
    };
    let mut cells = vec![result.strategy.clone()];
    cells.extend(COLUMNS.map(|(_, measure, decimals)| cell(measure, decimals)));
    cells.push(cell(Measure::J, 1));
    let difference = result.difference.as_ref();
    let percent = difference.and_then(|difference| difference.percent(Measure::J));
    cells.push(percent.map_or_else(
        || "-".to_owned(),
        |it| match it.margin {
            Some(margin) => format!("{:+.1} ± {margin:.1} %", it.mean),
            None => format!("{:+.1} %", it.mean),
        },
    ));
    cells
}
