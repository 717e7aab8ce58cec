//! Suggests configuration lines for providers that the target lacks.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fleet::Fleet;

/// The comment above the lines if they have a fake provider.
const ABOUT_FAKE: &str =
    "# fake: simulates a cloud that accepts these configs; it launches no real machines\n";

/// The cloud that a pool's config is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Static,
    Aws,
    Azure,
    Google,
    Unclear,
}

/// TOML lines for each provider of the pools that the target lacks.
pub(super) fn lines_for_missing(source: &Fleet, known: &[&str]) -> Option<String> {
    let mut missing: BTreeMap<&str, Shape> = BTreeMap::new();
    for pool in source.pools.values() {
        if known.contains(&pool.provider_id.as_str()) {
            continue;
        }
        let shape = missing.entry(&pool.provider_id).or_insert(Shape::Unclear);
        if *shape == Shape::Unclear {
            *shape = shape_of(&pool.config);
        }
    }
    let about = if missing.values().all(|shape| *shape == Shape::Static) {
        ""
    } else {
        ABOUT_FAKE
    };
    let sections: Vec<_> = missing
        .iter()
        .map(|(id, shape)| format!("[providers.{id}]\n{}", shape.lines()))
        .collect();
    (!sections.is_empty()).then(|| format!("{about}{}", sections.join("\n")))
}

fn shape_of(config: &Value) -> Shape {
    let Some(launch_configs) = config.get("launchConfigs").and_then(Value::as_array) else {
        return match config.get("maxCapacity") {
            Some(_) => Shape::Unclear,
            None => Shape::Static,
        };
    };
    let has = |key: &str| launch_configs.iter().any(|entry| entry.get(key).is_some());
    if has("launchConfig") {
        Shape::Aws
    } else if has("armDeployment") || has("hardwareProfile") || has("location") {
        Shape::Azure
    } else if has("machineType") || has("zone") {
        Shape::Google
    } else {
        Shape::Unclear
    }
}

impl Shape {
    fn lines(self) -> &'static str {
        match self {
            Self::Static => "kind = \"static\"\n",
            Self::Aws => {
                "kind = \"fake\"\naccepts = \"aws\"  # instead of both, kind = \"aws\" launches \
                 real machines\n"
            }
            Self::Azure => {
                "kind = \"fake\"\naccepts = \"azure\"  # instead of both, kind = \"azure\" and its \
                 keys launch real machines\n"
            }
            Self::Google => {
                "kind = \"fake\"\naccepts = \"google\"  # instead of both, kind = \"google\" and its \
                 keys launch real machines\n"
            }
            Self::Unclear => {
                "kind = \"fake\"\naccepts = \"google\"  # a guess: the pools do not name the \
                 cloud\n"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet(pools: &[(&str, Value)]) -> Fleet {
        let pools: Vec<_> = pools
            .iter()
            .enumerate()
            .map(|(n, (provider, config))| {
                json!({"workerPoolId": format!("a/b{n}"), "providerId": provider, "owner": "o",
                    "config": config})
            })
            .collect();
        Fleet::parse(json!({ "workerPools": pools })).unwrap()
    }

    #[test]
    fn the_cloud_is_guessed_by_the_launch_configs() {
        let with = |entry: Value| json!({"maxCapacity": 1, "launchConfigs": [entry]});
        let fleet = fleet(&[
            ("a", with(json!({"launchConfig": {}, "region": "x"}))),
            ("g", json!({"maxCapacity": 1, "launchConfigs": []})),
            ("g", with(json!({"machineType": "x", "zone": "y"}))),
            ("s", json!({"lifecycle": {}})),
            ("there", json!({})),
            ("z", with(json!({"armDeployment": {}}))),
        ]);
        insta::assert_snapshot!(lines_for_missing(&fleet, &["there"]).unwrap(), @r#"
        # fake: simulates a cloud that accepts these configs; it launches no real machines
        [providers.a]
        kind = "fake"
        accepts = "aws"  # instead of both, kind = "aws" launches real machines

        [providers.g]
        kind = "fake"
        accepts = "google"  # instead of both, kind = "google" and its keys launch real machines

        [providers.s]
        kind = "static"

        [providers.z]
        kind = "fake"
        accepts = "azure"  # instead of both, kind = "azure" and its keys launch real machines
        "#);
    }

    #[test]
    fn a_guess_without_ground_says_so_and_nothing_missing_is_nothing() {
        let fleet = fleet(&[("x", json!({"maxCapacity": 1}))]);
        assert!(
            lines_for_missing(&fleet, &[])
                .unwrap()
                .contains("# a guess")
        );
        assert_eq!(lines_for_missing(&fleet, &["x"]), None);
    }
}
