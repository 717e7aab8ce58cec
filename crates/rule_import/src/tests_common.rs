//! Pools for tests.

use std::collections::BTreeMap;

use domain::id::PoolId;
use serde_json::{Value, json};

use super::configuration_file::{ConfigurationFile, configurations};
use super::pool::Pool;
use super::{FilesBy, PoolSelection};

pub(super) fn read_pools(documents: Vec<Value>) -> BTreeMap<PoolId, Pool> {
    let pools = documents
        .into_iter()
        .map(|document| Pool::parse(document).unwrap());
    pools.collect()
}

pub(super) fn select(pools: Vec<Value>) -> PoolSelection {
    PoolSelection::new(&read_pools(pools))
}

pub(super) fn pool(id: &str, provider: &str, config: Value) -> Value {
    json!({"workerPoolId": id, "providerId": provider, "owner": "o@example.com",
        "description": format!("about {}", id.split('/').next().unwrap()), "config": config})
}

pub(super) fn google(zone: &str, machine: &str, more: Value) -> Value {
    let region = zone.rsplit_once('-').unwrap().0;
    let mut config = json!({
        "region": region, "zone": zone, "machineType": format!("zones/{zone}/machineTypes/{machine}"),
        "disks": [{"size": 60}], "workerConfig": {"idle": 15},
        "workerManager": {"capacityPerInstance": 1},
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

pub(super) fn launching(launch_configs: &[Value]) -> Value {
    json!({"minCapacity": 0, "maxCapacity": 5, "launchConfigs": launch_configs})
}

/// One configuration of all these pools, verified.
pub(super) fn written(pools: Vec<Value>) -> ConfigurationFile {
    let written = written_by(pools, None);
    assert_eq!(written.parts.len(), 0);
    written
}

/// The same, with the rules of each project or owner in a file of their own.
pub(super) fn written_by(pools: Vec<Value>, files_by: Option<FilesBy>) -> ConfigurationFile {
    let selection = select(pools);
    assert_eq!(selection.refused, []);
    let mut written = configurations("fleet", "d", &selection.sources, files_by).unwrap();
    // Otherwise the plain rules were written, because the others compile to something else.
    assert!(written[0].is_refined);
    written.remove(0)
}

/// Pools of several projects in several zones, by a seed.
pub(super) fn made_fleet(seed: u64, n_projects: u64, n_pools: u64) -> Vec<Value> {
    let mut state = seed;
    let mut chance = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(seed | 1);
        (state >> 33) % below
    };
    let machines = ["n2-standard-4", "n2-standard-8", "c4-highmem-16"];
    let mut pools = Vec::new();
    for project in 0..n_projects {
        for name in 0..n_pools {
            let machine = machines[usize::try_from(chance(3)).unwrap()];
            let size = [60, 60, 60, 200][usize::try_from(chance(4)).unwrap()];
            let n_zones = 2 + usize::try_from(chance(2)).unwrap();
            let idle = [15, 15, 300][usize::try_from(chance(3)).unwrap()];
            let zones = ["us-east1-b", "us-east1-c", "europe-west1-d"];
            let configs: Vec<Value> = zones[..n_zones]
                .iter()
                .map(|zone| {
                    let disk = json!({"boot": true, "initializeParams": {"diskSizeGb": size,
                        "diskType": format!("zones/{zone}/diskTypes/pd-ssd"),
                        "sourceImage": "projects/ours/global/images/generic-worker-ubuntu"}});
                    google(zone, machine, json!({"disks": [disk], "workerConfig": {"idle": idle, "script": "echo ${HOME}"},
                        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}]}))
                })
                .collect();
            let id = format!("proj-{project}/worker-{name}");
            pools.push(pool(&id, "gcp", launching(&configs)));
        }
    }
    pools
}

/// The texts of all files, by name.
pub(super) fn files_of(written: &ConfigurationFile) -> BTreeMap<&str, &str> {
    let parts = written.parts.iter();
    let parts = parts.map(|part| (part.name.as_str(), part.text.as_str()));
    parts.chain([("", written.text.as_str())]).collect()
}
