//! The instance types of a launch config with several: each gets a bid of its own.

use std::collections::BTreeSet;

use contract::Problem;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use serde_json::{Map, Value, json};

use crate::LaunchOrder;

/// The member of a bid's data that names the type.
const CHOSEN: &str = "instanceType";

/// One of several instance types.
pub(super) struct InstanceType<'a> {
    pub(super) name: &'a str,
    capacity: Option<u32>,
}

impl InstanceType<'_> {
    /// The bid with its capacity, and with its name for the launch.
    pub(super) fn complete(&self, bid: Bid) -> Bid {
        Bid {
            capacity_each: self.capacity,
            data: Map::from_iter([(CHOSEN.to_owned(), json!(self.name))]),
            ..bid
        }
    }
}

/// The instance types of a launch config; empty: its `launchConfig` names the only one.
pub(super) fn of(config: &LaunchConfig) -> Vec<InstanceType<'_>> {
    let types = config
        .configuration
        .get("instanceTypes")
        .and_then(Value::as_array);
    let types = types.into_iter().flatten();
    let read = types.filter_map(|one| {
        let units = one.get("capacityPerInstance").and_then(Value::as_u64);
        Some(InstanceType {
            name: one.get("instanceType")?.as_str()?,
            capacity: units.and_then(|units| units.try_into().ok()),
        })
    });
    read.collect()
}

/// The type of the bid that won. `Ok(None)`: the launch config has only one type. `Err`: the launch
/// has no bid for one of the types.
pub(super) fn chosen<'a>(order: &LaunchOrder<'a>) -> Result<Option<&'a str>, String> {
    let types = of(order.launch_config);
    if types.is_empty() {
        return Ok(None);
    }
    let chosen = order.bid_data.get(CHOSEN).and_then(Value::as_str);
    let known = types.into_iter().find(|kind| Some(kind.name) == chosen);
    match known {
        Some(kind) => Ok(Some(kind.name)),
        None => Err(format!(
            "the launch has no bid for one of the launch config's instanceTypes, but for {}",
            chosen.unwrap_or("none")
        )),
    }
}

/// The problems of the instance types in the launch config at this index.
pub(super) fn problems(index: usize, launch_config: &Value) -> Vec<Problem> {
    let types = launch_config["instanceTypes"].as_array();
    let mut problems = Vec::new();
    if types.is_some()
        && launch_config
            .pointer("/launchConfig/InstanceType")
            .is_some()
    {
        problems.push(Problem {
            pointer: format!("/launchConfigs/{index}/launchConfig/InstanceType"),
            message: "must be left out, since instanceTypes lists the types".to_owned(),
        });
    }
    let mut names = BTreeSet::new();
    for (number, one) in types.into_iter().flatten().enumerate() {
        let name = one["instanceType"].as_str().unwrap_or_default();
        if !names.insert(name) {
            problems.push(Problem {
                pointer: format!("/launchConfigs/{index}/instanceTypes/{number}/instanceType"),
                message: format!("must not name {name} again"),
            });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_once_and_only_in_the_list() {
        let texts = |config: Value| {
            let problems = problems(3, &config).into_iter();
            let texts = problems.map(|it| format!("{} {}", it.pointer, it.message));
            texts.collect::<Vec<_>>()
        };
        let types = json!([{"instanceType": "m5.large"}, {"instanceType": "m5.xlarge"}]);
        let good = json!({"launchConfig": {"ImageId": "ami-1"}, "instanceTypes": types});
        assert_eq!(texts(good), Vec::<String>::new());
        let alone = json!({"launchConfig": {"InstanceType": "m5.large"}});
        assert_eq!(texts(alone), Vec::<String>::new());
        let types = json!([{"instanceType": "m5.large"}, {"instanceType": "m5.large"}]);
        let bad = json!({"launchConfig": {"InstanceType": "m5.large"}, "instanceTypes": types});
        assert_eq!(
            texts(bad),
            [
                "/launchConfigs/3/launchConfig/InstanceType must be left out, since instanceTypes \
                 lists the types",
                "/launchConfigs/3/instanceTypes/1/instanceType must not name m5.large again",
            ]
        );
    }
}
