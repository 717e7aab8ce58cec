//! The results of a study as a page of HTML.
//!
//! It has charts, and neither scripts nor resources.

mod charts;
mod svg;

use std::fmt::Write;

use crate::statistics::Estimate;
use crate::study::{Measure, ScenarioResult, StrategyResult, Study};
use charts::{costs, course, delays, differences};
use svg::escaped;

const STYLE: &str = include_str!("page/style.css");

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

/// A page about any results, with a section for each. The texts are escaped.
pub fn page_of(
    text: &Introduction,
    strategies: &[&str],
    seeds: &[u64],
    results: &[ScenarioResult],
) -> String {
    let mut body = String::new();
    let title = text.title;
    push(&mut body, format_args!("<h1>{title}</h1>"));
    let seed_names: Vec<String> = seeds.iter().map(u64::to_string).collect();
    push(
        &mut body,
        format_args!(
            "<p>Means over the seeds {}. J is the cost, and a dollar for each hour that a task is \
             delayed.</p>",
            seed_names.join(", ")
        ),
    );
    for paragraph in &text.paragraphs {
        push(&mut body, format_args!("<p>{}</p>", escaped(paragraph)));
    }
    push(&mut body, legend(strategies));
    if let [first, _, ..] = strategies {
        push(
            &mut body,
            format_args!(
                "<h2>J compared with {}</h2><p>In percent, with 95 % confidence intervals of \
                 the paired differences. Less is better.</p>{}",
                escaped(first),
                differences(results)
            ),
        );
    }
    for result in results {
        push(&mut body, section(result, seeds.first()));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    )
}

fn push(text: &mut String, part: impl std::fmt::Display) {
    writeln!(text, "{part}").expect("writing to a string cannot fail");
}

/// The colours of the strategies.
fn legend(strategies: &[&str]) -> String {
    let entries = strategies.iter().enumerate().map(|(index, strategy)| {
        let strategy = escaped(strategy);
        format!("<span class=\"mark c{index}\"></span>{strategy}")
    });
    let entries: Vec<String> = entries.collect();
    format!("<p class=\"legend\">{}</p>", entries.join(" "))
}

fn section(result: &ScenarioResult, seed: Option<&u64>) -> String {
    let mut text = String::new();
    let (name, about) = (escaped(&result.scenario), escaped(&result.about));
    push(&mut text, format_args!("<h2 id=\"{name}\">{name}</h2>"));
    push(&mut text, format_args!("<p>{about}</p>"));
    push(&mut text, "<div class=\"charts\">");
    push(
        &mut text,
        figure("Cost and delay: together they are J, in $", &costs(result)),
    );
    push(
        &mut text,
        figure("Delay p50, p95 and p99, in seconds", &delays(result)),
    );
    push(&mut text, "</div>");
    if let Some(seed) = seed {
        let caption = format!(
            "Machines with seed {seed}; grey: tasks that would run if none waited; dashed: \
             waiting tasks"
        );
        push(&mut text, figure(&caption, &course(result)));
    }
    push(&mut text, table(result));
    push(&mut text, pools_table(result));
    text
}

fn figure(caption: &str, chart: &str) -> String {
    let caption = escaped(caption);
    format!("<figure><figcaption>{caption}</figcaption>{chart}</figure>")
}

fn table(result: &ScenarioResult) -> String {
    let titles = COLUMNS.map(|(title, _, _)| format!("<th>{title}</th>"));
    let mut text = format!(
        "<table><thead><tr><th>strategy</th>{}<th>J difference</th></tr></thead><tbody>",
        titles.concat()
    );
    for strategy in &result.strategies {
        let cells = COLUMNS.map(|(_, measure, decimals)| {
            let estimate = strategy.mean.get(measure);
            format!(
                "<td>{}</td>",
                estimate.map_or("–".to_owned(), |it| amount(it, decimals))
            )
        });
        let difference = strategy.difference.as_ref();
        let difference = difference.and_then(|it| it.percent(Measure::J));
        let difference = difference.map_or("–".to_owned(), |it| format!("{} %", amount(it, 1)));
        text.push_str(&format!(
            "<tr><th>{}</th>{}<td>{difference}</td></tr>",
            escaped(&strategy.strategy),
            cells.concat()
        ));
    }
    text.push_str("</tbody></table>");
    text
}

/// The mean delay of each pool, if there are several.
fn pools_table(result: &ScenarioResult) -> String {
    let pools = pool_delays(&result.strategies);
    let Some((_, first)) = pools.first().filter(|(_, pools)| pools.len() > 1) else {
        return String::new();
    };
    let titles = first
        .iter()
        .map(|(pool, _)| format!("<th>{}</th>", escaped(pool)));
    let mut text = format!(
        "<table><thead><tr><th>mean delay s</th>{}</tr></thead><tbody>",
        titles.collect::<String>()
    );
    for (strategy, delays) in &pools {
        let cells = delays
            .iter()
            .map(|(_, delay)| format!("<td>{delay:.0}</td>"));
        let cells: String = cells.collect();
        text.push_str(&format!("<tr><th>{}</th>{cells}</tr>", escaped(strategy)));
    }
    text.push_str("</tbody></table>");
    text
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
fn amount(estimate: Estimate, decimals: usize) -> String {
    let mean = format!("{:.decimals$}", estimate.mean);
    match estimate.margin {
        Some(margin) => format!("{mean} <small>± {margin:.decimals$}</small>"),
        None => mean,
    }
}
