//! Refuses configurations of Taskcluster's worker that need an object service.
//!
//! The queue of this server has none, and the worker ends at its first artifact. Another
//! deployment's queue may have one.

use contract::{Invalid, Problem};
use serde_json::Value;

/// Where a worker of Taskcluster reads this setting, in the content that a worker gets.
const SETTING: &str = "/workerConfig/genericWorker/config/createObjectArtifacts";
const SCHEMA: &str = "worker-manager/v1/create-worker-pool-request.json";
const WHY: &str = "must not be true: the queue of this server has no object service, so the \
    worker would fail at its first artifact. Omit it, and the worker uploads its artifacts as `s3`";

/// At most this many places are reported.
const MAX_REPORTED: usize = 10;

/// Checks a config with its launch configs.
pub(super) fn check(config: &Value) -> Result<(), Invalid> {
    let launch_configs = config.get("launchConfigs").and_then(Value::as_array);
    let launch_configs = launch_configs.into_iter().flatten().enumerate();
    let launch_configs =
        launch_configs.map(|(index, config)| (format!("/launchConfigs/{index}"), config));
    let problems: Vec<Problem> = std::iter::once((String::new(), config))
        .chain(launch_configs)
        .filter(|(_, config)| config.pointer(SETTING) == Some(&Value::Bool(true)))
        .take(MAX_REPORTED)
        .map(|(place, _)| Problem {
            pointer: format!("{place}{SETTING}"),
            message: WHY.to_owned(),
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    let schema = SCHEMA.to_owned();
    Err(Invalid { schema, problems })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn content(setting: &Value) -> Value {
        json!({"workerConfig": {"genericWorker": {"config": {"createObjectArtifacts": setting}}}})
    }

    fn places(config: &Value) -> Vec<String> {
        let found = check(config).err().map(|invalid| invalid.problems);
        let found = found.into_iter().flatten();
        found.map(|problem| problem.pointer).collect()
    }

    #[test]
    fn only_true_is_refused_wherever_a_worker_reads_it() {
        for harmless in [json!(false), json!(null), json!("true"), json!(1)] {
            assert!(check(&content(&harmless)).is_ok(), "{harmless}");
        }
        for config in [json!({}), json!(null), json!({"launchConfigs": 3})] {
            assert!(check(&config).is_ok(), "{config}");
        }
        assert_eq!(places(&content(&json!(true))), [SETTING]);
        let config = json!({"launchConfigs": [{}, content(&json!(true))]});
        assert_eq!(places(&config), [format!("/launchConfigs/1{SETTING}")]);
    }

    #[test]
    fn a_limited_number_of_places_is_reported() {
        for size in sizes_around(
            "engine::pools::object_artifacts::MAX_REPORTED",
            MAX_REPORTED,
        ) {
            let config = json!({"launchConfigs": vec![content(&json!(true)); size]});
            assert_eq!(places(&config).len(), size.min(MAX_REPORTED));
        }
    }
}
