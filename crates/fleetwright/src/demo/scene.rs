//! The data of the demo, as `scene.yaml` has them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use cloud::FakeSettings;
use domain::launch::Cause;
use domain::task::Priority;
use domain::time::{HOUR_MS, SECOND_MS, Timestamp};
use domain::waits::WaitCause;
use rand::{Rng, RngExt as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

const TEXT: &str = include_str!("scene.yaml");
/// Begins a text that stands for a time.
const MOMENT: &str = "@+";

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scene {
    pub(super) people: BTreeMap<String, String>,
    pub(super) clouds: BTreeMap<String, CloudScene>,
    pub(super) hosts: Vec<Hosts>,
    pub(super) acts: Vec<Act>,
    pub(super) canaries: Vec<CanaryScene>,
    pub(super) load: Vec<Push>,
    pub(super) worker_errors: Vec<WorkerError>,
    pub(super) interruptions: Interruptions,
    pub(super) quarantine: Quarantine,
    pub(super) week: Vec<PoolWeek>,
    pub(super) errors: Vec<ErrorSeries>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloudScene {
    /// Its part of all machines.
    pub(super) share: f64,
    pub(super) settings: FakeSettings,
    pub(super) failures: Vec<Failure>,
}

/// Launches that fail: those of the pool or launch config, if one is named.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Failure {
    pub(super) pool: Option<String>,
    pub(super) launch_config: Option<String>,
    /// This many launches succeed first.
    #[serde(default)]
    pub(super) after: u32,
    /// It fails for `for_seconds` in every period of this length; without it, always.
    pub(super) every_seconds: Option<i64>,
    #[serde(default)]
    pub(super) for_seconds: i64,
    #[serde(default, deserialize_with = "named_if_any")]
    pub(super) refuses: Option<Cause>,
    #[serde(default)]
    pub(super) saying: String,
    #[serde(default)]
    pub(super) never_registers: bool,
}

/// Declared hosts with names that end in a number.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hosts {
    pub(super) pool: String,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) count: u32,
}

/// A call of the API by a person in the past.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Act {
    pub(super) hours_ago: f64,
    pub(super) by: String,
    /// The method, the service and the segments of the path.
    pub(super) call: Vec<String>,
    pub(super) body: Value,
}

/// The machines of a canary and of its control group.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CanaryScene {
    pub(super) image: String,
    pub(super) pool: String,
    pub(super) over_hours: f64,
    pub(super) machines: ByGroup<u32>,
    pub(super) boot_seconds: ByGroup<i64>,
    /// The share of the canary's machines that never register.
    pub(super) failed: f64,
}

/// A value for each group of a canary.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByGroup<T> {
    pub(super) canary: T,
    pub(super) control: T,
}

/// Tasks that are created together, as one group.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Push {
    /// How often, compared with the others.
    pub(super) share: f64,
    pub(super) name: String,
    pub(super) tasks: Vec<TaskScene>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskScene {
    pub(super) queue: String,
    pub(super) name: String,
    pub(super) owner: String,
    #[serde(deserialize_with = "named")]
    pub(super) priority: Priority,
    pub(super) seconds: Range,
    /// The place of the task in the list that must complete first.
    pub(super) after: Option<usize>,
    #[serde(default = "one")]
    pub(super) count: u32,
    /// How likely it is part of the push.
    #[serde(default = "always")]
    pub(super) chance: f64,
    #[serde(default)]
    pub(super) failed: f64,
    /// The share that breaks its worker: an exception with an error report.
    #[serde(default)]
    pub(super) broken: f64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkerError {
    pub(super) title: String,
    pub(super) code: String,
    pub(super) text: String,
}

/// Running machines that their cloud takes back, one at a time.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Interruptions {
    pub(super) every_seconds: i64,
    pub(super) pools: Vec<String>,
}

/// The first worker of a pool that a person keeps from working.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Quarantine {
    pub(super) pool: String,
    pub(super) by: String,
    pub(super) reason: String,
    pub(super) for_hours: i64,
}

/// The last seven days of a pool.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PoolWeek {
    pub(super) pool: String,
    /// Runs an hour, at noon of a working day.
    pub(super) per_hour: f64,
    pub(super) seconds: Range,
    #[serde(default)]
    pub(super) failed: f64,
    #[serde(default)]
    pub(super) broken: f64,
    /// The share that is lost with its worker.
    #[serde(default)]
    pub(super) lost: f64,
    pub(super) limit: usize,
    /// The same at night and on Sundays.
    #[serde(default)]
    pub(super) steady: bool,
    #[serde(default)]
    pub(super) incidents: Vec<Incident>,
}

/// A time in which a pool got no machines, or bad ones. From and to are in hours ago.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Incident {
    pub(super) from: f64,
    pub(super) to: f64,
    #[serde(default, deserialize_with = "named_if_any")]
    pub(super) cause: Option<WaitCause>,
    /// The share of launches whose machine never registers.
    #[serde(default)]
    pub(super) never_registers: f64,
}

/// Errors of one kind in a time of the past. From and to are in hours ago.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ErrorSeries {
    pub(super) pool: String,
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) code: String,
    pub(super) text: String,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) per_day: f64,
    #[serde(default)]
    pub(super) by_worker: bool,
}

/// The lowest and the highest number of seconds.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct Range(i64, i64);

impl Scene {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let value = files::parse("scene.yaml", TEXT, files::Format::Yaml)
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        serde_json::from_value(value).context("the scene of the demo is damaged")
    }
}

impl Range {
    pub(super) fn draw_ms(self, random: &mut dyn Rng) -> i64 {
        random.random_range(self.0 * SECOND_MS..=self.1 * SECOND_MS)
    }
}

/// The moment that is some hours before another.
pub(super) fn before(now: Timestamp, hours: f64) -> Timestamp {
    now.plus_millis(-whole(hours * HOUR_MS as f64))
}

/// The next whole number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of the scene are small"
)]
pub(super) fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// The same with times in place of texts such as `@+6h`.
pub(super) fn with_moments(value: &Value, now: Timestamp) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix(MOMENT) {
            Some(hours) => {
                let hours = hours.trim_end_matches('h').parse().unwrap_or(1.0);
                before(now, -hours).to_string().into()
            }
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| with_moments(item, now)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, member)| (name.clone(), with_moments(member, now)))
                .collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn one() -> u32 {
    1
}

fn always() -> f64 {
    1.0
}

fn named<'de, T: std::str::FromStr, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    let text = String::deserialize(input)?;
    text.parse()
        .map_err(|_| serde::de::Error::custom(format!("{text} is not known")))
}

fn named_if_any<'de, T: std::str::FromStr, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    named(input).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scene_names_only_people_and_pools_that_it_has() {
        let scene = Scene::read().unwrap();
        let acts = scene.acts.iter().map(|act| &act.by);
        let tasks = scene.load.iter().flat_map(|push| &push.tasks);
        for person in acts.chain(tasks.map(|task| &task.owner)) {
            assert!(scene.people.contains_key(person), "{person}");
        }
        let text =
            serde_json::to_string(&scene.acts.iter().map(|act| &act.body).collect::<Vec<_>>());
        let made: Vec<&String> = scene
            .acts
            .iter()
            .filter_map(|act| act.call.last())
            .collect();
        let is_pool = |pool: &String| made.contains(&pool) || text.as_ref().unwrap().contains(pool);
        for week in &scene.week {
            assert!(is_pool(&week.pool), "{}", week.pool);
        }
        for task in scene.load.iter().flat_map(|push| &push.tasks) {
            assert!(is_pool(&task.queue), "{}", task.queue);
        }
    }

    #[test]
    fn texts_that_stand_for_times_become_times() {
        let now = Timestamp::from_millis(0);
        let body = serde_json::json!({"until": "@+2h", "reason": ["@home", 1]});
        assert_eq!(
            with_moments(&body, now),
            serde_json::json!({"until": "1970-01-01T02:00:00.000Z", "reason": ["@home", 1]})
        );
    }
}
