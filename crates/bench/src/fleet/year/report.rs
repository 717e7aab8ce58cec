//! The figures of each kind of request, of each statement, and of each transaction.

use serde_json::{Map, Value, json};
use store::Counts;

use crate::figures::median;
use crate::output;

/// A kind of request or work, and the effort that it took.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) seconds: Vec<f64>,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Report {
    steps: Vec<Step>,
    all: Counts,
}

impl Report {
    pub(super) fn add(&mut self, step: Step) {
        self.all += step.counts.clone();
        self.steps.push(step);
    }

    pub(super) fn steps(&self) -> Value {
        let steps = self.steps.iter().map(|step| {
            let n_done = count(step.seconds.len());
            let per = |sum: u64| count(usize::try_from(sum).unwrap_or(usize::MAX)) / n_done;
            let mut figures = durations(&step.seconds);
            figures["name"] = step.name.into();
            figures["transactions"] = per(step.counts.all_transactions()).into();
            figures["statements"] = per(step.counts.all_statements()).into();
            figures["rows"] = per(step.counts.all_rows()).into();
            figures
        });
        steps.collect()
    }

    pub(super) fn statements(&self) -> Value {
        let seconds = self.all.statement_seconds();
        let mut figures = table(seconds);
        for (name, figures) in &mut figures {
            figures["count"] = self.all.statements(name).into();
            figures["rows"] = self.all.rows(name).into();
        }
        Value::Object(figures)
    }

    pub(super) fn transactions(&self) -> Value {
        let mut figures = table(self.all.transaction_seconds());
        for (name, figures) in &mut figures {
            figures["count"] = self.all.transactions(name).into();
        }
        Value::Object(figures)
    }
}

fn table<'a>(seconds: impl Iterator<Item = (&'static str, &'a [f64])>) -> Map<String, Value> {
    let figures = seconds.map(|(name, seconds)| (name.to_owned(), durations(seconds)));
    figures.collect()
}

fn durations(seconds: &[f64]) -> Value {
    let most = seconds.iter().copied().fold(0.0, f64::max);
    json!({
        "count": seconds.len(),
        "medianMs": median(seconds.iter().copied()) * 1_000.0,
        "mostMs": most * 1_000.0,
    })
}

fn count(items: usize) -> f64 {
    f64::from(u32::try_from(items).unwrap_or(u32::MAX))
}

pub(super) fn text(figures: &Value) -> String {
    let fill = figures["fillSeconds"].as_f64().unwrap_or_default();
    let of = |value: &Value, key: &str| value[key].as_f64().unwrap_or_default();
    let headings = [
        "STEP",
        "TIMES",
        "TRANSACTIONS",
        "STATEMENTS",
        "ROWS",
        "MEDIAN",
        "MOST",
    ];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for step in figures["steps"].as_array().into_iter().flatten() {
        rows.push(vec![
            step["name"].as_str().unwrap_or_default().to_owned(),
            step["count"].to_string(),
            format!("{:.1}", of(step, "transactions")),
            format!("{:.1}", of(step, "statements")),
            format!("{:.1}", of(step, "rows")),
            format!("{:.2}", of(step, "medianMs")),
            format!("{:.2}", of(step, "mostMs")),
        ]);
    }
    let steps = output::table(&rows);
    let statements = slowest_first("STATEMENT", &figures["statements"]);
    let transactions = slowest_first("TRANSACTION", &figures["transactions"]);
    format!(
        "\
{}, filled in {fill:.1} s; counts for each step, and times in ms

{steps}
{statements}
{transactions}",
        figures["database"].as_str().unwrap_or_default()
    )
}

/// By the longest time: the median is that of small pools.
fn slowest_first(heading: &str, figures: &Value) -> String {
    let most = |value: &Value| value["mostMs"].as_f64().unwrap_or_default();
    let mut sorted: Vec<_> = figures.as_object().into_iter().flatten().collect();
    sorted.sort_by(|(_, one), (_, other)| most(other).total_cmp(&most(one)));
    let headings = [heading, "TIMES", "MEDIAN", "MOST"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for (name, value) in sorted {
        let median = value["medianMs"].as_f64().unwrap_or_default();
        rows.push(vec![
            name.to_owned(),
            value["count"].to_string(),
            format!("{median:.3}"),
            format!("{:.3}", most(value)),
        ]);
    }
    output::table(&rows)
}
