//! The answer to a question: what was recorded beside what was simulated.

use domain::time::{SECOND_MS, Timestamp};
use serde_json::{Map, Value, json};

use super::Past;
use super::change::Change;
use super::configuration::Configuration;
use super::remarks::duration;
use crate::statistics::Estimate;
use crate::study::{Measure, ScenarioResult, Series, StrategyResult};

/// The names of the configurations in results.
pub(super) const PRESENT: &str = "present";
pub(super) const CHANGED: &str = "changed";

/// The recorded fleet, the simulated present configuration, and perhaps a changed one.
#[derive(Clone, Debug)]
pub struct Report {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The answer in a sentence or two.
    pub sentence: String,
    /// The recorded fleet over time.
    pub series: Series,
    pub past: Past,
    pub result: ScenarioResult,
    pub seeds: Vec<u64>,
    /// Gaps of the recording, and assumptions.
    pub remarks: Vec<String>,
}

impl Report {
    /// By how many percent the simulated present differs from what was recorded. `None`: only
    /// nothing was recorded.
    pub fn difference(&self, measure: Measure) -> Option<f64> {
        let recorded = self.recorded(measure)?;
        let present = self.result.strategies.first()?;
        let simulated = present.mean.get(measure)?.mean;
        if recorded > 0.0 {
            return Some(100.0 * (simulated - recorded) / recorded);
        }
        (simulated <= 0.0).then_some(0.0)
    }

    /// `None`: the recording does not say.
    pub fn recorded(&self, measure: Measure) -> Option<f64> {
        let past = &self.past;
        match measure {
            Measure::J => Some(past.cost + past.tasks as f64 * past.delay.mean / 3_600.0),
            Measure::Cost => Some(past.cost),
            Measure::Delay => Some(past.delay.mean),
            Measure::DelayP50 => Some(past.delay.p50),
            Measure::DelayP95 => Some(past.delay.p95),
            Measure::DelayP99 => Some(past.delay.p99),
            Measure::DelayWorst => Some(past.delay.worst),
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

    /// How far the simulated present is from what was recorded: the changed configuration is no
    /// better known.
    pub fn accuracy(&self) -> String {
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

    pub fn document(&self) -> Value {
        let mut series = Map::from_iter([("recorded".to_owned(), json!(self.series))]);
        for strategy in &self.result.strategies {
            series.insert(strategy.strategy.clone(), json!(strategy.series));
        }
        json!({
            "since": self.since.to_string(),
            "until": self.until.to_string(),
            "sentence": self.sentence,
            "accuracy": self.accuracy(),
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
            "series": series,
        })
    }
}

/// The answer in words: for most tasks, and in money.
pub(super) fn sentence(
    change: &Change,
    present: &Configuration,
    past: &Past,
    result: &ScenarioResult,
) -> String {
    if past.tasks == 0 {
        return "No task ran in this time, so a change would have made no task faster.".to_owned();
    }
    let find = |name: &str| result.strategies.iter().find(|it| it.strategy == name);
    let Some(before) = find(PRESENT) else {
        return String::new();
    };
    let Some(after) = find(CHANGED) else {
        return format!(
            "As pools are configured now, 95 of 100 tasks wait at most {} in a simulation; {} were \
             recorded.",
            wait(before),
            seconds(past.delay.p95)
        );
    };
    format!(
        "With {}, {}{}.{}",
        changes(change, present).join(" and "),
        waits(before, after),
        cost(before, after),
        unfinished(before, after)
    )
}

fn waits(before: &StrategyResult, after: &StrategyResult) -> String {
    match is_certain(after, Measure::DelayP95) {
        true => format!(
            "95 of 100 tasks would have waited at most {} instead of {}",
            wait(after),
            wait(before)
        ),
        false => format!(
            "95 of 100 tasks would have waited about as long: at most {}",
            wait(after)
        ),
    }
}

fn cost(before: &StrategyResult, after: &StrategyResult) -> String {
    let total = mean(after, Measure::Cost);
    let more = total - mean(before, Measure::Cost);
    match is_certain(after, Measure::Cost) {
        true if more < 0.0 => format!(", for ${:.2} less (${total:.2})", -more),
        true => format!(", for ${more:.2} more (${total:.2})"),
        false => format!(", for about the same cost (${total:.2})"),
    }
}

/// Tasks that do not end would look like a saving.
fn unfinished(before: &StrategyResult, after: &StrategyResult) -> String {
    let [n_before, n_after] =
        [before, after].map(|result| mean(result, Measure::Unfinished).round() + 0.0);
    if n_after > n_before {
        return format!(
            " {n_after:.0} tasks would not have ended in this time; as now, {n_before:.0}."
        );
    }
    String::new()
}

fn mean(result: &StrategyResult, measure: Measure) -> f64 {
    result.mean.get(measure).map_or(0.0, |it| it.mean)
}

/// Whether chance does not explain the difference.
fn is_certain(after: &StrategyResult, measure: Measure) -> bool {
    let difference = after.difference.as_ref();
    let difference = difference.and_then(|difference| difference.get(measure));
    difference.is_some_and(|difference: Estimate| difference.is_certain())
}

fn wait(result: &StrategyResult) -> String {
    seconds(mean(result, Measure::DelayP95))
}

fn seconds(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a recording has days")]
    let ms = (seconds.round() as i64).saturating_mul(SECOND_MS);
    duration(ms)
}

/// The parts of a change, after "with".
fn changes(change: &Change, present: &Configuration) -> Vec<String> {
    let limit = |key: &'static str, name: &str, value: f64| {
        let mut values = present.0.values().map(|pool| {
            let value = pool.config.get(key).and_then(Value::as_f64);
            value.unwrap_or_default()
        });
        let first = values.next();
        let is_same = values.all(|other| Some(other) == first);
        match first.filter(|_| is_same) {
            Some(first) => format!("{name} of {value} instead of {first}"),
            None => format!("{name} of {value} in each pool"),
        }
    };
    let mut parts = Vec::new();
    if let Some(capacity) = change.max_capacity {
        parts.push(limit("maxCapacity", "a maximum", f64::from(capacity)));
    }
    if let Some(factor) = change.max_capacity_factor {
        parts.push(format!("{factor} times the maximum of each pool"));
    }
    if let Some(capacity) = change.min_capacity {
        parts.push(limit("minCapacity", "a minimum", f64::from(capacity)));
    }
    parts.extend(
        change
            .max_price
            .map(|it| format!("a maximum price of ${it}")),
    );
    if let Some(idle) = change.idle_seconds {
        parts.push(format!("an idle time of {}", seconds(f64::from(idle))));
    }
    parts.extend(change.strategy.map(|it| format!("the strategy {it}")));
    let without = change.without_providers.iter();
    parts.extend(without.map(|id| format!("nothing launched at {id}")));
    let without = change.without_launch_configs.iter();
    parts.extend(without.map(|id| format!("nothing launched from {id}")));
    if parts.is_empty() || !change.worker_pools.is_empty() {
        parts.push("the changed definitions".to_owned());
    }
    parts
}
