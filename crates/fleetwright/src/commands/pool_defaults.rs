//! The config of a new pool that was given none, as far as its provider has a usual one.

use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::commands::first_pool::IDLE_SECONDS;
use crate::commands::provider;
use crate::failure::{Exit, Failure};

/// Completes the config for the first provider of a pool.
pub(super) async fn complete(
    fields: &mut Map<String, Value>,
    client: &Client,
) -> Result<(), Failure> {
    let provider = fields.get("providerId").and_then(Value::as_str);
    let provider = provider.unwrap_or_default().to_owned();
    let reply = match client.call(&provider::list()).await {
        Ok(reply) => reply,
        // The server checks the pool, too.
        Err(failure) if failure.exit == Exit::NotAllowed => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let listed = reply["providers"].as_array().map_or(&[][..], Vec::as_slice);
    let found = listed
        .iter()
        .find(|it| it["providerId"] == provider.as_str());
    let Some(found) = found else {
        let names = listed.iter().filter_map(|it| it["providerId"].as_str());
        let near = rules::did_you_mean(&provider, names);
        let text = format!("no pool was created: provider {provider} does not exist{near}");
        return Err(Failure::new(Exit::NotFound, text)
            .with_hint("`fleetwright provider list` lists what exists"));
    };
    let kind = found["providerType"].as_str().unwrap_or_default();
    let config = fields.entry("config").or_insert_with(|| json!({}));
    if let Value::Object(config) = config {
        complete_config(config, kind, &provider)?;
    }
    Ok(())
}

fn complete_config(
    config: &mut Map<String, Value>,
    kind: &str,
    provider: &str,
) -> Result<(), Failure> {
    let (most, launch_config) = match kind {
        "local" => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let worker = json!({"fleetwright": {"idleTimeoutSeconds": IDLE_SECONDS}});
            (cores, json!({"workerConfig": worker}))
        }
        "exec" | "external" => (1, json!({"workerConfig": {}})),
        "aws" => {
            return Err(missing(
                provider,
                "region and launchConfig, with ImageId",
                "aws",
            ));
        }
        "google" => {
            let keys = "region, zone, machineType, disks, networkInterfaces, scheduling and \
                        workerConfig";
            return Err(missing(provider, keys, "google"));
        }
        "azure" => {
            let keys = "location, subnetId, hardwareProfile, storageProfile and workerConfig";
            return Err(missing(provider, keys, "azure"));
        }
        "fake" => {
            let keys = "workerConfig and those of the cloud that it plays, such as region";
            return Err(missing(provider, keys, "fake"));
        }
        // Declared hosts need no config.
        _ => return Ok(()),
    };
    config.entry("minCapacity").or_insert(json!(0));
    config.entry("maxCapacity").or_insert(json!(most));
    config
        .entry("launchConfigs")
        .or_insert(json!([launch_config]));
    Ok(())
}

fn missing(provider: &str, keys: &str, page: &str) -> Failure {
    Failure::usage(format!(
        "provider {provider} needs a config with minCapacity, maxCapacity and launchConfigs, and \
         none was given"
    ))
    .with_hint(format!(
        "pass it with --config or --file; each launch config has {keys}: see \
         docs/providers/{page}.md"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(config: Value, kind: &str) -> Result<Value, Failure> {
        let mut config: Map<String, Value> = serde_json::from_value(config).unwrap();
        complete_config(&mut config, kind, "p").map(|()| Value::Object(config))
    }

    #[test]
    fn a_provider_with_a_usual_config_needs_none() {
        let local = completed(json!({"maxCapacity": 4}), "local").unwrap();
        let worker = json!({"fleetwright": {"idleTimeoutSeconds": IDLE_SECONDS}});
        let expected = json!({"minCapacity": 0, "maxCapacity": 4,
            "launchConfigs": [{"workerConfig": worker}]});
        assert_eq!(local, expected);
        let exec = completed(json!({}), "exec").unwrap();
        assert_eq!(exec["maxCapacity"], 1);
        assert_eq!(completed(json!({}), "static").unwrap(), json!({}));
    }

    #[test]
    fn the_error_of_a_cloud_names_its_keys_and_its_page() {
        for (kind, key) in [
            ("aws", "ImageId"),
            ("google", "machineType"),
            ("azure", "hardwareProfile"),
            ("fake", "region"),
        ] {
            let failure = completed(json!({}), kind).unwrap_err();
            let hint = failure.hint.unwrap();
            assert!(
                failure.message.starts_with("provider p needs"),
                "{}",
                failure.message
            );
            assert!(hint.contains(key), "{hint}");
            assert!(
                hint.contains(&format!("docs/providers/{kind}.md")),
                "{hint}"
            );
        }
    }
}
