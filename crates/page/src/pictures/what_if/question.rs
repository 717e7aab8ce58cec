//! The question of an address: its form, the body of the call, and the command that asks the same.

use std::fmt::Write as _;

use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::json::Json as _;
use crate::parts::field;
use crate::view::Visit;

/// How long a page waits for an answer before it shows how far it is.
const WAIT_SECONDS: u64 = 1;
/// Reloads within this time ask the same, so that they join one run.
const SAME_MS: i64 = 10 * MINUTE_MS;

const RANGES: [(&str, &str, i64); 4] = [
    ("6h", "6 hours", 6 * HOUR_MS),
    ("1d", "a day", DAY_MS),
    ("3d", "3 days", 3 * DAY_MS),
    ("7d", "a week", 7 * DAY_MS),
];
const USUAL_RANGE: (&str, &str, i64) = RANGES[1];
const STRATEGIES: [&str; 3] = ["weighted", "aws-provisioner", "balanced"];

/// A setting: its parameter, its key in the change, its flag, and its label.
type Setting = (&'static str, &'static str, &'static str, &'static str);

const NUMBERS: [Setting; 5] = [
    ("max", "maxCapacity", "--max-capacity", "Maximum"),
    (
        "factor",
        "maxCapacityFactor",
        "--max-capacity-factor",
        "Times the maximum",
    ),
    ("min", "minCapacity", "--min-capacity", "Minimum"),
    ("price", "maxPrice", "--max-price", "Maximum price, $/h"),
    ("idle", "idleSeconds", "--idle", "Idle time, seconds"),
];
const LISTS: [Setting; 2] = [
    (
        "provider",
        "withoutProviders",
        "--without-provider",
        "Without the provider",
    ),
    (
        "config",
        "withoutLaunchConfigs",
        "--without-launch-config",
        "Without the launch config",
    ),
];

/// The parameters of the address.
pub(super) struct Question<'a> {
    pool: &'a str,
    range: (&'static str, &'static str, i64),
    strategy: &'a str,
    /// With their texts, as far as they are given.
    numbers: Vec<(Setting, &'a str)>,
    lists: Vec<(Setting, &'a str)>,
}

impl<'a> Question<'a> {
    pub(super) fn of(visit: &'a Visit<'_>) -> Self {
        let given = |settings: &[Setting]| {
            let texts = settings
                .iter()
                .map(|setting| (*setting, visit.query(setting.0).trim()));
            texts.filter(|(_, text)| !text.is_empty()).collect()
        };
        Self {
            pool: visit.query("pool").trim(),
            range: range(visit),
            strategy: visit.query("strategy"),
            numbers: given(&NUMBERS),
            lists: given(&LISTS),
        }
    }

    /// The body of the call, or what is wrong with the form. `None`: nothing is asked yet.
    pub(super) fn body(&self, now: Timestamp) -> Option<Result<Value, String>> {
        if self.numbers.is_empty() && self.lists.is_empty() && self.strategy.is_empty() {
            return None;
        }
        let until = now.start_of(SAME_MS);
        let mut change = Map::new();
        for ((_, key, _, label), text) in &self.numbers {
            match number(text) {
                Some(number) => drop(change.insert((*key).to_owned(), number)),
                None => return Some(Err(format!("{label}: {text:?} is not a number."))),
            }
        }
        for ((_, key, _, _), text) in &self.lists {
            change.insert((*key).to_owned(), names(text).collect());
        }
        if !self.strategy.is_empty() {
            change.insert("strategy".to_owned(), json!(self.strategy));
        }
        Some(Ok(json!({
            "workerPools": names(self.pool).collect::<Value>(),
            "since": until.plus_millis(-self.range.2).to_string(),
            "until": until.to_string(),
            "waitSeconds": WAIT_SECONDS,
            "change": change,
        })))
    }

    /// The command that asks the same.
    pub(super) fn command(&self) -> String {
        let mut command = format!("fleetwright simulate recorded --last {}", self.range.0);
        let mut add = |flag: &str, value: &str| {
            let _ = write!(command, " {flag} {}", quoted(value));
        };
        for pool in self.pool.split(',').filter(|pool| !pool.is_empty()) {
            add("--pool", pool.trim());
        }
        for ((_, _, flag, _), text) in &self.numbers {
            add(flag, text);
        }
        for ((_, _, flag, _), text) in &self.lists {
            for name in text.split(',') {
                add(flag, name.trim());
            }
        }
        if !self.strategy.is_empty() {
            add("--strategy", self.strategy);
        }
        command
    }
}

fn range(visit: &Visit<'_>) -> (&'static str, &'static str, i64) {
    let named = RANGES
        .into_iter()
        .find(|(value, _, _)| *value == visit.query("range"));
    named.unwrap_or(USUAL_RANGE)
}

/// Integers stay integers.
fn number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<u64>() {
        return Some(json!(whole));
    }
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite())?;
    Some(json!(number))
}

/// Names with commas between them.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// The text as a word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/*%-".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

pub(super) fn form(visit: &Visit<'_>, pools: &[Value], providers: &[Value]) -> Markup {
    let (range, _, _) = range(visit);
    let chosen = visit.query("strategy");
    html! {
        form .ask method="get" action="/what-if" aria-label="A change" {
            label { span { "Pool" }
                input name="pool" value=(visit.query("pool")) list="pools" placeholder="all"
                    autocomplete="off";
            }
            datalist #pools {
                @for pool in pools { option value=(pool.text("workerPoolId")) {} }
            }
            label { span { "Recorded time" }
                select name="range" {
                    @for (value, text, _) in RANGES {
                        option value=(value) selected[value == range] { (text) }
                    }
                }
            }
            @for (name, _, _, label) in NUMBERS {
                label { span { (label) }
                    input name=(name) value=(visit.query(name)) inputmode="decimal"
                        autocomplete="off";
                }
            }
            label { span { "Strategy" }
                select name="strategy" {
                    option value="" { "as now" }
                    @for name in STRATEGIES {
                        option value=(name) selected[name == chosen] { (name) }
                    }
                }
            }
            label { span { (LISTS[0].3) }
                input name=(LISTS[0].0) value=(visit.query(LISTS[0].0)) list="providers"
                    autocomplete="off";
            }
            datalist #providers {
                @for provider in providers { option value=(provider.text("providerId")) {} }
            }
            (field(LISTS[1].3, LISTS[1].0, visit.query(LISTS[1].0), false))
            div { button .btn.go { "Simulate" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_are_quoted() {
        assert_eq!(quoted("a/b"), "a/b");
        assert_eq!(quoted("a'b; rm"), "'a'\\''b; rm'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(number("40"), Some(json!(40)));
        assert_eq!(number("1.5"), Some(json!(1.5)));
        for bad in ["", "x", "inf", "NaN", "1e999", "4 0"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
