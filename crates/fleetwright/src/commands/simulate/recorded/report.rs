//! The results of `simulate recorded`: what was recorded beside what was simulated.

use simulate::page::{Introduction, page_of};
use simulate::recording::Report;
use simulate::study::{Measure, StrategyResult};

use crate::output::{self, Kind, grid};

/// The columns: title, measure, decimals.
const COLUMNS: [(&str, Measure, usize); 12] = [
    ("COST $", Measure::Cost, 2),
    ("MEAN S", Measure::Delay, 1),
    ("P50 S", Measure::DelayP50, 0),
    ("P95 S", Measure::DelayP95, 0),
    ("P99 S", Measure::DelayP99, 0),
    ("WORST S", Measure::DelayWorst, 0),
    ("OVER H", Measure::OverProvisioned, 1),
    ("LAUNCHES", Measure::Launches, 0),
    ("REFUSED", Measure::Refused, 0),
    ("WASTED", Measure::Wasted, 0),
    ("WASTED $", Measure::WastedCost, 2),
    ("UNFINISHED", Measure::Unfinished, 0),
];

pub(super) fn text(report: &Report) -> String {
    let mut headings = vec![("CONFIGURATION", Kind::Text)];
    headings.extend(COLUMNS.map(|(title, _, _)| (title, Kind::Number)));
    headings.push(("J $", Kind::Number));
    headings.push(("J DIFFERENCE", Kind::Number));
    let mut rows = vec![recorded_row(report)];
    rows.extend(report.result.strategies.iter().map(row));
    let table = grid(&headings, rows, output::screen_width());
    let (about, accuracy) = (&report.result.about, report.accuracy());
    format!("{about}\n\n{}\n\n{table}\n{accuracy}\n", report.sentence)
}

fn recorded_row(report: &Report) -> Vec<String> {
    let cell = |measure, decimals: usize| {
        let value = report.recorded(measure);
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
    };
    let mut cells = vec!["recorded".to_owned()];
    cells.extend(COLUMNS.map(|(_, measure, decimals)| cell(measure, decimals)));
    cells.push(cell(Measure::J, 1));
    cells.push("-".to_owned());
    cells
}

pub(super) fn page(report: &Report) -> String {
    let names = report.result.strategies.iter();
    let names: Vec<&str> = names.map(|result| result.strategy.as_str()).collect();
    let past = &report.past;
    let mut paragraphs = vec![
        report.sentence.clone(),
        format!(
            "Recorded: cost {:.2} $, mean delay {:.1} s, p50 {:.0} s, p95 {:.0} s, p99 {:.0} s, {} \
             launches. {}",
            past.cost,
            past.delay.mean,
            past.delay.p50,
            past.delay.p95,
            past.delay.p99,
            past.launches,
            report.accuracy()
        ),
        "All configurations have the same load and the same luck with the clouds.".to_owned(),
    ];
    paragraphs.extend(
        report
            .remarks
            .iter()
            .map(|remark| format!("Note: {remark}.")),
    );
    let text = Introduction {
        title: "Simulations of a recorded history",
        paragraphs,
    };
    let results = std::slice::from_ref(&report.result);
    page_of(&text, &names, &report.seeds, results)
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
