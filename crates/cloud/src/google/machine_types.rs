//! The machine types of a launch config. If it lists several, each gets a bid of its own.

use std::collections::BTreeSet;

use contract::Problem;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use serde_json::{Map, Value, json};

use super::row::last_part;
use crate::LaunchOrder;

/// The key of a launch config that lists several.
pub(super) const SEVERAL: &str = "machineTypes";
/// The member of a bid's data that names the type.
const CHOSEN: &str = "machineType";
/// Types of one launch config at most.
const MAX_TYPES: usize = 40;

/// One of several machine types.
pub(super) struct MachineType<'a> {
    pub(super) name: &'a str,
    capacity: Option<u32>,
}

impl MachineType<'_> {
    /// The bid with its capacity, and with its name for the launch.
    pub(super) fn complete(&self, bid: Bid) -> Bid {
        Bid {
            capacity_each: self.capacity,
            data: Map::from_iter([(CHOSEN.to_owned(), json!(self.name))]),
            ..bid
        }
    }
}

/// The machine types that a launch config lists; empty: `machineType` names the only one.
pub(super) fn several(config: &LaunchConfig) -> Vec<MachineType<'_>> {
    let types = config.configuration.get(SEVERAL).and_then(Value::as_array);
    let types = types.into_iter().flatten().take(MAX_TYPES);
    let read = types.filter_map(|one| {
        let units = one.get("capacityPerInstance").and_then(Value::as_u64);
        Some(MachineType {
            name: last_part(one.get("machineType")?.as_str()?),
            capacity: units.and_then(|units| units.try_into().ok()),
        })
    });
    read.collect()
}

/// The only type of a launch config.
pub(super) fn only(config: &LaunchConfig) -> Option<&str> {
    let kind = config.configuration.get("machineType")?.as_str()?;
    Some(last_part(kind))
}

/// The type to launch. `Err`: the launch has no bid for one of several types.
pub(super) fn chosen<'a>(order: &LaunchOrder<'a>) -> Result<&'a str, String> {
    let types = several(order.launch_config);
    if types.is_empty() {
        return only(order.launch_config)
            .ok_or_else(|| "the launch config has no machineType".to_owned());
    }
    let chosen = order.bid_data.get(CHOSEN).and_then(Value::as_str);
    let known = types.into_iter().find(|kind| Some(kind.name) == chosen);
    known.map(|kind| kind.name).ok_or_else(|| {
        let chosen = chosen.unwrap_or("none");
        format!(
            "the launch has no bid for one of the launch config's machineTypes, but for {chosen}"
        )
    })
}

/// The problems of the machine types in the launch config at this index.
pub(super) fn problems(index: usize, launch_config: &Value) -> Vec<Problem> {
    let at = format!("/launchConfigs/{index}/{SEVERAL}");
    let problem = |pointer: String, message: String| Problem { pointer, message };
    let Some(given) = launch_config.get(SEVERAL) else {
        return Vec::new();
    };
    let types = given.as_array();
    let Some(types) = types.filter(|types| (1..=MAX_TYPES).contains(&types.len())) else {
        let message = format!("must list from 1 to {MAX_TYPES} machine types");
        return vec![problem(at, message)];
    };
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for (number, one) in types.iter().enumerate() {
        let name = one["machineType"]
            .as_str()
            .map(last_part)
            .unwrap_or_default();
        if name.is_empty() {
            let message = "must be the name of a machine type".to_owned();
            problems.push(problem(format!("{at}/{number}/machineType"), message));
        } else if !names.insert(name) {
            let message = format!("must not name {name} again");
            problems.push(problem(format!("{at}/{number}/machineType"), message));
        }
        let units = &one["capacityPerInstance"];
        if !units.is_null() && units.as_u64().is_none_or(|units| units == 0) {
            let message = "must be a whole number from 1 on".to_owned();
            problems.push(problem(
                format!("{at}/{number}/capacityPerInstance"),
                message,
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    fn texts(types: Value) -> Vec<String> {
        let problems = problems(3, &json!({"machineTypes": types})).into_iter();
        let texts = problems.map(|it| format!("{} {}", it.pointer, it.message));
        texts.collect()
    }

    #[test]
    fn types_are_named_once() {
        assert!(problems(0, &json!({})).is_empty());
        let good = json!([{"machineType": "e2-medium"}, {"machineType": "n2-standard-4",
            "capacityPerInstance": 4}]);
        assert_eq!(texts(good), Vec::<String>::new());
        let bad = json!([{"machineType": "e2-medium"}, {"capacityPerInstance": 0},
            {"machineType": "zones/z/machineTypes/e2-medium"}]);
        let at = "/launchConfigs/3/machineTypes";
        assert_eq!(
            texts(bad),
            [
                format!("{at}/1/machineType must be the name of a machine type"),
                format!("{at}/1/capacityPerInstance must be a whole number from 1 on"),
                format!("{at}/2/machineType must not name e2-medium again"),
            ]
        );
    }

    #[test]
    fn a_limited_number_of_types_is_permitted() {
        for size in sizes_around("cloud::google::machine_types::MAX_TYPES", MAX_TYPES) {
            let one = |number: usize| json!({"machineType": format!("t{number}")});
            let types: Vec<Value> = (0..size).map(one).collect();
            let is_permitted = texts(json!(types)).is_empty();
            assert_eq!(is_permitted, (1..=MAX_TYPES).contains(&size), "{size}");
        }
    }
}
