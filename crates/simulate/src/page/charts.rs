//! The charts of the page.

use super::svg::{Drawing, Scale, rounded};
use crate::study::{Measure, ScenarioResult, StrategyResult};
use crate::units::to_hours;

const WIDTH: f64 = 560.0;
const WIDE: f64 = 1_100.0;
/// The space for names on the left.
const NAMES: f64 = 130.0;
/// The space for values on the right.
const VALUES: f64 = 70.0;
const ROW: f64 = 22.0;
/// The space for the axis below a chart.
const AXIS: f64 = 24.0;

/// Colours repeat after this many strategies.
fn colour(index: usize) -> usize {
    index % 8
}

/// The difference of J to the first strategy, of each scenario and strategy.
pub(super) fn differences(results: &[ScenarioResult]) -> String {
    let others = |result: &'_ ScenarioResult| result.strategies.len().saturating_sub(1);
    let n_rows: usize = results.iter().map(others).sum();
    let points = results.iter().flat_map(|result| &result.strategies);
    let points = points.filter_map(|it| it.difference.as_ref()?.percent(Measure::J));
    let ends = points.flat_map(|point| {
        let margin = point.margin.unwrap_or(0.0);
        [point.mean - margin, point.mean + margin]
    });
    let (low, high) = ends.fold((-5.0_f64, 5.0_f64), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    let scale = Scale {
        low: low.max(-100.0),
        high: high.min(100.0),
        from: NAMES + 10.0,
        to: WIDE - VALUES - 30.0,
    };
    let height = n_rows as f64 * ROW;
    let mut drawing = Drawing::new(WIDE, height + AXIS);
    drawing.horizontal_axis(&scale, (0.0, height), " %");
    let zero = scale.place(0.0);
    drawing.line((zero, 0.0), (zero, height), "zero");
    let mut y = ROW / 2.0;
    for result in results {
        drawing.text((0.0, y + 4.0), "", result.scenario.as_str());
        for (index, strategy) in result.strategies.iter().enumerate().skip(1) {
            difference_row(&mut drawing, &scale, y, index, strategy);
            y += ROW;
        }
    }
    drawing.finish()
}

fn difference_row(
    drawing: &mut Drawing,
    scale: &Scale,
    y: f64,
    index: usize,
    strategy: &StrategyResult,
) {
    let difference = strategy.difference.as_ref();
    let Some(percent) = difference.and_then(|it| it.percent(Measure::J)) else {
        return;
    };
    // One seed has no margin.
    let text = match percent.margin {
        None => format!("{:+.1} %", percent.mean),
        Some(margin) => {
            let (low, high) = (percent.mean - margin, percent.mean + margin);
            drawing.line((scale.place(low), y), (scale.place(high), y), "whisker");
            format!("{:+.1} ± {margin:.1} %", percent.mean)
        }
    };
    let title = format!("{}: {text}", strategy.strategy);
    let class = format!("fill c{}", colour(index));
    drawing.dot((scale.place(percent.mean), y), &class, &title);
    drawing.text((WIDE, y + 4.0), "end", &text);
}

/// J of each strategy, divided into cost and delay.
pub(super) fn costs(result: &ScenarioResult) -> String {
    let mean = |strategy: &StrategyResult, measure| {
        strategy
            .mean
            .get(measure)
            .map_or(0.0, |estimate| estimate.mean)
    };
    let highest = result.strategies.iter().map(|it| {
        let estimate = it.mean.get(Measure::J);
        estimate.map_or(0.0, |estimate| {
            estimate.mean + estimate.margin.unwrap_or(0.0)
        })
    });
    let (mut drawing, scale) = rows(result, highest.fold(0.0, f64::max));
    for (index, strategy) in result.strategies.iter().enumerate() {
        let top = index as f64 * ROW + 3.0;
        let (j, cost) = (mean(strategy, Measure::J), mean(strategy, Measure::Cost));
        let (start, middle, end) = (scale.place(0.0), scale.place(cost), scale.place(j));
        let class = format!("fill c{}", colour(index));
        let title = format!("{}: cost {cost:.1} $", strategy.strategy);
        drawing.bar((start, top), (middle - start, ROW - 6.0), &class, &title);
        let title = format!("{}: delay {:.1} $", strategy.strategy, j - cost);
        let light = format!("{class} light");
        drawing.bar((middle, top), (end - middle, ROW - 6.0), &light, &title);
        if let Some(margin) = strategy.mean.get(Measure::J).and_then(|it| it.margin) {
            let y = top + (ROW - 6.0) / 2.0;
            let ends = (scale.place(j - margin), scale.place(j + margin));
            drawing.line((ends.0, y), (ends.1, y), "whisker");
        }
        name_and_value(
            &mut drawing,
            top,
            strategy,
            &rounded((j * 10.0).round() / 10.0),
        );
    }
    drawing.finish()
}

/// An empty drawing with a row for each strategy, and a scale from 0 to `high`.
fn rows(result: &ScenarioResult, high: f64) -> (Drawing, Scale) {
    let scale = Scale {
        low: 0.0,
        high,
        from: NAMES,
        to: WIDTH - VALUES,
    };
    let height = result.strategies.len() as f64 * ROW;
    let mut drawing = Drawing::new(WIDTH, height + AXIS);
    drawing.horizontal_axis(&scale, (0.0, height), "");
    (drawing, scale)
}

/// The quantiles of the delay of each strategy: the bar is p95, the marks are p50 and p99.
pub(super) fn delays(result: &ScenarioResult) -> String {
    let measures = [Measure::DelayP50, Measure::DelayP95, Measure::DelayP99];
    let of = |strategy: &StrategyResult| {
        measures.map(|measure| strategy.mean.get(measure).map_or(0.0, |it| it.mean))
    };
    let highest = result.strategies.iter().map(|strategy| of(strategy)[2]);
    let (mut drawing, scale) = rows(result, highest.fold(1.0, f64::max));
    for (index, strategy) in result.strategies.iter().enumerate() {
        let top = index as f64 * ROW + 3.0;
        let [p50, p95, p99] = of(strategy);
        let start = scale.place(0.0);
        let class = format!("fill c{}", colour(index));
        let title = format!(
            "{}: p50 {p50:.0}, p95 {p95:.0}, p99 {p99:.0} s",
            strategy.strategy
        );
        let light = format!("{class} light");
        let width = |value| (scale.place(value) - start, ROW - 6.0);
        drawing.bar((start, top), width(p99), &light, &title);
        drawing.bar((start, top), width(p95), &light, &title);
        drawing.bar((start, top), width(p50), &class, &title);
        name_and_value(&mut drawing, top, strategy, &format!("{p95:.0}"));
    }
    drawing.finish()
}

fn name_and_value(drawing: &mut Drawing, top: f64, strategy: &StrategyResult, value: &str) {
    let y = top + 12.0;
    drawing.text((0.0, y), "", strategy.strategy.as_str());
    drawing.text((WIDTH, y), "end", value);
}

/// The machines of each strategy over time, with the load.
pub(super) fn course(result: &ScenarioResult) -> String {
    const HEIGHT: f64 = 220.0;
    let series = || result.strategies.iter().map(|strategy| &strategy.series);
    let ends = series().map(|it| it.step_ms * i64::try_from(it.machines.len()).unwrap_or(0));
    let highest = series().flat_map(|it| {
        let counts = it.wanted.iter().chain(&it.machines).chain(&it.waiting);
        counts.copied()
    });
    let hours = Scale {
        low: 0.0,
        high: to_hours(ends.max().unwrap_or(0)),
        from: 40.0,
        to: WIDE - 10.0,
    };
    let counts = Scale {
        low: 0.0,
        high: f64::from(highest.max().unwrap_or(0).max(1)),
        from: HEIGHT,
        to: 6.0,
    };
    let mut drawing = Drawing::new(WIDE, HEIGHT + AXIS);
    let points = |step_ms: i64, values: &[u32]| {
        let points = values.iter().zip(0..).map(|(value, number)| {
            let x = hours.place(to_hours(number * step_ms));
            (x, counts.place(f64::from(*value)))
        });
        points.collect::<Vec<_>>()
    };
    if let Some(first) = series().next() {
        let mut area = points(first.step_ms, &first.wanted);
        let last = area.last().map_or(hours.from, |(x, _)| *x);
        area.push((last, HEIGHT));
        area.insert(0, (hours.from, HEIGHT));
        drawing.curve(area.into_iter(), "area");
    }
    drawing.horizontal_axis(&hours, (6.0, HEIGHT), " h");
    drawing.vertical_axis(&counts, (hours.from, hours.to));
    for (index, series) in series().enumerate() {
        let colour = colour(index);
        let waiting = points(series.step_ms, &series.waiting);
        let class = format!("curve stroke dashed c{colour}");
        drawing.curve(waiting.into_iter(), &class);
        let machines = points(series.step_ms, &series.machines);
        let class = format!("curve stroke c{colour}");
        drawing.curve(machines.into_iter(), &class);
    }
    drawing.finish()
}
