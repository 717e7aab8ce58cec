//! The charts of the page.

use maud::{Markup, Render};
use page::charts::{Line, LineChart, Row, RowChart, RowShape, Series, TimeRange, Tone, Unit};

use crate::study::{Measure, ScenarioResult, StrategyResult};

const SECOND_MS: f64 = 1_000.0;

/// The difference of J to the first strategy, of each scenario and strategy.
pub(super) fn differences(results: &[ScenarioResult]) -> Markup {
    let mut texts: Vec<(&ScenarioResult, &StrategyResult, RowShape<'_>, String)> = Vec::new();
    for result in results {
        for strategy in result.strategies.iter().skip(1) {
            let difference = strategy.difference.as_ref();
            let percent = difference.and_then(|it| it.percent(Measure::J));
            let Some(percent) = percent else {
                texts.push((result, strategy, RowShape::Nothing, "–".to_owned()));
                continue;
            };
            let mean = percent.mean;
            let text = match percent.margin {
                None => format!("{mean:+.1} %"),
                Some(margin) => format!("{mean:+.1} ± {margin:.1} %"),
            };
            let text = text.replacen('-', "−", 1);
            // More than doubled is at the end: the text has the number.
            let share = |percent: f64| (percent / 100.0).clamp(-1.0, 1.0);
            let margin = percent.margin;
            let interval = margin.map(|margin| (share(mean - margin), share(mean + margin)));
            let shape = RowShape::Dot {
                mean: share(mean),
                interval,
                tone: Tone::Busy,
            };
            texts.push((result, strategy, shape, text));
        }
    }
    let rows = texts.iter_mut().map(|(result, strategy, shape, text)| Row {
        group: &result.scenario,
        name: &strategy.strategy,
        href: None,
        shape: std::mem::replace(shape, RowShape::Nothing),
        text,
    });
    RowChart {
        title: "Difference of J in percent",
        unit: Unit::Percent,
        ends: (-0.05, 0.05),
        rows: &rows.collect::<Vec<_>>(),
    }
    .render()
}

/// J of each strategy, divided into cost and delay.
pub(super) fn costs(result: &ScenarioResult) -> Markup {
    let parts = result.strategies.iter().map(|strategy| {
        let mean = |measure| strategy.mean.get(measure).map_or(0.0, |it| it.mean);
        let (j, cost) = (mean(Measure::J), mean(Measure::Cost));
        [("cost", Tone::Busy, cost), ("delay", Tone::Idle, j - cost)]
    });
    let parts: Vec<_> = parts.collect();
    let rows = result
        .strategies
        .iter()
        .zip(&parts)
        .map(|(strategy, parts)| {
            let j = strategy.mean.get(Measure::J);
            let interval = j.and_then(|it| Some((it.mean - it.margin?, it.mean + it.margin?)));
            let text = Unit::Money.text(j.map_or(0.0, |it| it.mean));
            (strategy, RowShape::Bar { parts, interval }, text)
        });
    rows_of_strategies("J in dollars", Unit::Money, rows.collect())
}

/// The quantiles of the delay of each strategy: p50, p95 and p99.
pub(super) fn delays(result: &ScenarioResult) -> Markup {
    let measures = [Measure::DelayP50, Measure::DelayP95, Measure::DelayP99];
    let rows = result.strategies.iter().map(|strategy| {
        let mean = |measure| strategy.mean.get(measure).map_or(0.0, |it| it.mean);
        let values = measures.map(|measure| mean(measure) * SECOND_MS);
        let tone = Tone::Busy;
        let text = Unit::Duration.text(values[1]);
        (strategy, RowShape::Quantiles { values, tone }, text)
    });
    rows_of_strategies("Delay, p95", Unit::Duration, rows.collect())
}

fn rows_of_strategies(
    title: &str,
    unit: Unit,
    rows: Vec<(&StrategyResult, RowShape<'_>, String)>,
) -> Markup {
    let (texts, shapes): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .map(|(strategy, shape, text)| ((strategy, text), shape))
        .unzip();
    let rows = texts
        .iter()
        .zip(shapes)
        .map(|((strategy, text), shape)| Row {
            group: "",
            name: &strategy.strategy,
            href: None,
            shape,
            text,
        });
    RowChart {
        title,
        unit,
        ends: (0.0, 0.0),
        rows: &rows.collect::<Vec<_>>(),
    }
    .render()
}

/// The machines of each strategy over time, with the load.
pub(super) fn course(result: &ScenarioResult) -> Markup {
    let drawn = |step_ms: i64, values: &[u32]| {
        Series::new(0, step_ms, values.iter().map(|value| f64::from(*value)))
    };
    let strategies = result.strategies.iter().zip(0..);
    let strategies = strategies.map(|(strategy, number)| {
        let name = &strategy.strategy;
        let series = &strategy.series;
        let machines = drawn(series.step_ms, &series.machines);
        let waiting = drawn(series.step_ms, &series.waiting);
        let tone = Tone::Category(number);
        [
            (format!("{name}, machines"), tone, false, machines),
            (format!("{name}, waiting"), tone, true, waiting),
        ]
    });
    let series: Vec<_> = strategies.flatten().collect();
    let lines = series.iter().map(|(name, tone, is_dashed, series)| Line {
        name,
        tone: *tone,
        is_dashed: *is_dashed,
        series,
    });
    let first = result.strategies.first().map(|it| &it.series);
    let load = first.map(|it| drawn(it.step_ms, &it.wanted));
    let ends = result.strategies.iter().map(|strategy| {
        let n_steps = i64::try_from(strategy.series.machines.len()).unwrap_or_default();
        strategy.series.step_ms * n_steps
    });
    // The numbers beside the names are those of the highest load.
    let busiest = first.map_or(0, |it| {
        let loads = it.wanted.iter().zip(0_i64..);
        let highest = loads.max_by_key(|(load, number)| (**load, -number));
        highest.map_or(0, |(_, number)| number * it.step_ms)
    });
    LineChart {
        title: "Machines and waiting tasks over time",
        range: TimeRange::elapsed(ends.max().unwrap_or_default()).at(busiest),
        unit: Unit::Count,
        ground: load
            .as_ref()
            .map(|load| ("tasks that would run if none waited", load)),
        lines: &lines.collect::<Vec<_>>(),
    }
    .render()
}
