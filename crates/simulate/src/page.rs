//! The results of a study as a page of HTML.
//!
//! It has charts, and neither scripts nor resources.

mod charts;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use page::charts::{PALETTE, STYLE, hatches};

use crate::statistics::Estimate;
use crate::study::{Measure, ScenarioResult, StrategyResult, Study};
use charts::{costs, course, delays, differences};

const OWN_STYLE: &str = include_str!("page/style.css");

/// The columns of the tables: title, measure, decimals.
const COLUMNS: [(&str, Measure, usize); 12] = [
    ("J $", Measure::J, 1),
    ("cost $", Measure::Cost, 1),
    ("mean delay s", Measure::Delay, 1),
    ("p50 s", Measure::DelayP50, 0),
    ("p95 s", Measure::DelayP95, 0),
    ("p99 s", Measure::DelayP99, 0),
    ("over-provisioned h", Measure::OverProvisioned, 1),
    ("launches", Measure::Launches, 0),
    ("refused", Measure::Refused, 0),
    ("wasted", Measure::Wasted, 0),
    ("wasted $", Measure::WastedCost, 2),
    ("recovery s", Measure::Recovery, 0),
];

/// Writes the page. The same results give the same bytes.
pub fn page(study: &Study, results: &[ScenarioResult]) -> String {
    let strategies = study.strategies.iter().map(|strategy| strategy.as_str());
    let text = Introduction {
        title: "Strategies in simulated scenarios",
        paragraphs: vec![
            "All strategies have the same load and the same luck with the clouds.".to_owned(),
        ],
    };
    page_of(
        &text,
        &strategies.collect::<Vec<_>>(),
        &study.seeds,
        results,
    )
}

/// The beginning of a page.
pub struct Introduction {
    pub title: &'static str,
    pub paragraphs: Vec<String>,
}

/// A page about any results, with a section for each.
pub fn page_of(
    text: &Introduction,
    strategies: &[&str],
    seeds: &[u64],
    results: &[ScenarioResult],
) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { (text.title) }
                style { (PreEscaped(PALETTE)) (PreEscaped(OWN_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                (hatches())
                main { (content(text, strategies, seeds, results)) }
            }
        }
    };
    page.into_string()
}

fn content(
    text: &Introduction,
    strategies: &[&str],
    seeds: &[u64],
    results: &[ScenarioResult],
) -> Markup {
    let seed_names: Vec<String> = seeds.iter().map(u64::to_string).collect();
    html! {
        h1 { (text.title) }
        p {
            "Means over the seeds " (seed_names.join(", ")) ". J is the cost, and a dollar for each "
            "hour that a task is delayed."
        }
        @for paragraph in &text.paragraphs { p { (paragraph) } }
        @if let [first, _, ..] = strategies {
            h2 { "J compared with " (first) }
            p {
                "In percent, with 95 % confidence intervals of the paired differences. "
                "Less is better."
            }
            (differences(results))
        }
        @for result in results { (section(result, seeds.first())) }
    }
}

fn section(result: &ScenarioResult, seed: Option<&u64>) -> Markup {
    html! {
        h2 id=(result.scenario) { (result.scenario) }
        p { (result.about) }
        div class="two" {
            (figure("Cost, then delay: together they are J", &costs(result)))
            (figure("Delay: p50, p95 and, lightest, p99", &delays(result)))
        }
        @if let Some(seed) = seed {
            (figure(&format!("Machines and waiting tasks with seed {seed}"), &course(result)))
        }
        (table(result))
        (pools_table(result))
    }
}

fn figure(caption: &str, chart: &Markup) -> Markup {
    html! { figure { figcaption { (caption) } (chart) } }
}

fn table(result: &ScenarioResult) -> Markup {
    html! {
        div class="tw" role="region" aria-label={ "Measures of " (result.scenario) } tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "strategy" }
                        @for (title, _, _) in COLUMNS { th scope="col" class="n" { (title) } }
                        th scope="col" class="n" { "J difference" }
                    }
                }
                tbody {
                    @for strategy in &result.strategies {
                        tr {
                            th scope="row" { (strategy.strategy) }
                            @for (_, measure, decimals) in COLUMNS {
                                td class="n" { (amount(strategy.mean.get(measure), decimals, "")) }
                            }
                            @let difference = strategy.difference.as_ref();
                            @let difference = difference.and_then(|it| it.percent(Measure::J));
                            td class="n" { (amount(difference, 1, " %")) }
                        }
                    }
                }
            }
        }
    }
}

/// The mean delay of each pool, if there are several.
fn pools_table(result: &ScenarioResult) -> Markup {
    let pools = pool_delays(&result.strategies);
    let Some((_, first)) = pools.first().filter(|(_, pools)| pools.len() > 1) else {
        return html! {};
    };
    html! {
        div class="tw" role="region" aria-label={ "Delays of pools, " (result.scenario) }
            tabindex="0" {
            table {
                thead {
                    tr {
                        th scope="col" { "mean delay s" }
                        @for (pool, _) in first { th scope="col" class="n" { (pool) } }
                    }
                }
                tbody {
                    @for (strategy, delays) in &pools {
                        tr {
                            th scope="row" { (strategy) }
                            @for (_, delay) in delays { td class="n" { (format!("{delay:.0}")) } }
                        }
                    }
                }
            }
        }
    }
}

/// By strategy: the pools with their mean delays over the seeds, in seconds.
pub fn pool_delays(strategies: &[StrategyResult]) -> Vec<(&str, Vec<(String, f64)>)> {
    fn of_strategy(strategy: &StrategyResult) -> (&str, Vec<(String, f64)>) {
        let mut pools: Vec<(String, f64)> = Vec::new();
        for seed in &strategy.seeds {
            for (place, pool) in seed.metrics.pools.iter().enumerate() {
                if pools.len() == place {
                    pools.push((pool.pool.clone(), 0.0));
                }
                pools[place].1 += pool.delay.mean / strategy.seeds.len() as f64;
            }
        }
        (strategy.strategy.as_str(), pools)
    }
    strategies.iter().map(of_strategy).collect()
}

/// `12.3 ± 0.4`
fn amount(estimate: Option<Estimate>, decimals: usize, unit: &str) -> Markup {
    html! {
        @match estimate {
            None => "–",
            Some(estimate) => {
                (format!("{:.decimals$}", estimate.mean))
                @if let Some(margin) = estimate.margin {
                    " " small { "± " (format!("{margin:.decimals$}")) }
                }
                (unit)
            }
        }
    }
}
