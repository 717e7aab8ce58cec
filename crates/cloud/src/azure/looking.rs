//! Finds machines: a list of all that carries our tags, and looks at single machines.

use std::collections::BTreeMap;

use domain::id::WorkerKey;
use domain::worker::{Worker, WorkerState};
use serde_json::Value;

use super::ending::{end, end_deployment, find_parts, is_deploying, remove_parts};
use super::error::{AZURE, AzureError};
use super::names::MachineNames;
use super::paths::{MACHINES, group_in};
use super::records;
use super::row::Row;
use super::site::{Site, provisioning_state};
use super::status::{InstanceView, ended};
use super::tags::FoundTags;
use crate::several_calls::{run_together, successes};
use crate::vendor::VendorError;
use crate::{CloudError, LaunchedMachine, MachineEnd, OwnedMachine, OwnedPage, Sighting};

/// More machines than this are looked at by one list instead of a call for each.
pub(super) const MAX_SINGLE_LOOKS: usize = 3;
/// Operations of a failed deployment whose messages are reported at most.
const MAX_REASONS: usize = 10;

/// A page of our machines in a location. `after` is the address of the page.
pub(super) async fn owned_page(
    site: &Site,
    location: &str,
    after: Option<&str>,
) -> Result<OwnedPage, CloudError> {
    page(site, location, after, |vm| site.owns(vm)).await
}

/// A page of the machines there that a Taskcluster's worker manager made.
pub(super) async fn inherited_page(
    site: &Site,
    location: &str,
    after: Option<&str>,
) -> Result<OwnedPage, CloudError> {
    let are_theirs = |vm: &Value| FoundTags::of(vm).are_of_taskcluster(&site.id);
    page(site, location, after, are_theirs).await
}

/// A page of the machines in a location that `is_wanted` chooses by their tags.
async fn page(
    site: &Site,
    location: &str,
    after: Option<&str>,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<OwnedPage, CloudError> {
    let filter = format!("location eq '{location}' and resourceType eq '{MACHINES}'");
    let expand = ("$expand", "provisioningState".to_owned());
    let list = site.arm.paths.all_resources();
    let query = [("$filter", filter), expand];
    let (resources, next) = site.arm.page(&list, &query, after).await?;
    let wanted = resources.iter().filter(|vm| is_wanted(vm));
    Ok(OwnedPage {
        machines: wanted
            .filter_map(|vm| owned_machine(vm, location))
            .collect(),
        next,
    })
}

fn owned_machine(vm: &Value, location: &str) -> Option<OwnedMachine> {
    let tags = FoundTags::of(vm);
    let row = Row::new(group_in(vm["id"].as_str()?)?.to_owned());
    let is_deleted = provisioning_state(vm) == "Deleting";
    Some(OwnedMachine {
        token: tags.token(),
        pool_id: tags.pool_id(),
        machine: LaunchedMachine {
            group: location.parse().ok()?,
            id: vm["name"].as_str()?.parse().ok()?,
            made: None,
            provider_data: row.to_value(),
        },
        sighting: is_deleted.then_some(Sighting::Ending),
    })
}

/// The states of these workers' machines, all of one location.
pub(super) async fn look(
    site: &Site,
    workers: &[&Worker],
) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
    let mut listed = BTreeMap::new();
    if workers.len() > MAX_SINGLE_LOOKS {
        listed = list_states(site).await?;
    }
    let mut looks = Vec::new();
    for worker in workers {
        let row = Row::of(worker, &site.resource_group);
        let view = listed.remove(&key_of(&row.resource_group, worker.key.id.as_str()));
        looks.push(look_at(site, worker, row, view));
    }
    successes(&site.id, run_together(looks).await)
}

/// The states of all machines, by group and name.
async fn list_states(site: &Site) -> Result<BTreeMap<String, InstanceView>, VendorError> {
    let query = [("statusOnly", "true".to_owned())];
    let all = site
        .arm
        .list(&site.arm.paths.all_machines(), &query)
        .await?;
    let mut states = BTreeMap::new();
    for machine in &all {
        let view = &machine["properties"]["instanceView"];
        let (group, name) = (machine["id"].as_str().and_then(group_in), &machine["name"]);
        if let (Some(group), Some(name), true) = (group, name.as_str(), view.is_object()) {
            states.insert(key_of(group, name), InstanceView::read(view));
        }
    }
    Ok(states)
}

/// Azure's names have no case.
fn key_of(group: &str, name: &str) -> String {
    format!("{group}/{name}").to_ascii_lowercase()
}

/// A machine that the list does not have is asked about, because the list may be older than it.
async fn look_at(
    site: &Site,
    worker: &Worker,
    row: Row,
    listed: Option<InstanceView>,
) -> Result<(WorkerKey, Sighting), VendorError> {
    let view = match listed {
        Some(view) => Some(view),
        None => {
            let id = worker.key.id.as_str();
            let path = site.arm.paths.instance_view(&row.resource_group, id);
            let view = site.arm.get(&path).await?;
            view.as_ref().map(InstanceView::read)
        }
    };
    let sighting = match view {
        Some(view) => {
            let has_registered = worker.state != WorkerState::Requested;
            let sighting = view.sighting(has_registered, row.is_spot, &row.ignored_failures);
            if matches!(sighting, Sighting::Ended(_)) {
                end_remains(site, worker).await;
            }
            sighting
        }
        None => {
            if worker.state == WorkerState::Running {
                records::missing(worker).write();
            }
            look_at_remains(site, worker, &row).await?
        }
    };
    Ok((worker.key.clone(), sighting))
}

/// A machine that has ended, but exists, costs money.
async fn end_remains(site: &Site, worker: &Worker) {
    if let Err(error) = end(site, worker).await {
        tracing::warn!(provider.id = %site.id, error = %error,
            "cannot remove {}, which has ended; the next scan tries again: {error}", worker.key);
    }
}

/// The state of a worker without a machine: its deployment may be about to make it, or its parts
/// may be left.
async fn look_at_remains(site: &Site, worker: &Worker, row: &Row) -> Result<Sighting, VendorError> {
    let Some(names) = MachineNames::of_worker(worker.key.id.as_str()) else {
        return Ok(Sighting::NotFound);
    };
    let (mut failure, mut has_record) = (None, false);
    if row.has_deployment != Some(false) {
        let path = site
            .arm
            .paths
            .deployment(&row.resource_group, &names.deployment());
        if let Some(deployment) = site.arm.get(&path).await? {
            if is_deploying(&deployment) {
                return Ok(match worker.state {
                    WorkerState::Requested | WorkerState::Running => Sighting::Alive,
                    WorkerState::Stopping | WorkerState::Stopped => Sighting::Ending,
                });
            }
            has_record = !row.keeps_deployment;
            if provisioning_state(&deployment) != "Succeeded" {
                failure = Some(deployment_failure(site, row, &names, &deployment).await);
            }
        }
    }
    let parts = find_parts(site, &row.resource_group, &names).await?;
    if let (Some(why), WorkerState::Requested) = (failure, worker.state) {
        end_remains(site, worker).await;
        return Ok(Sighting::Ended(why));
    }
    if has_record || !parts.is_empty() {
        end_deployment(site, row, &names).await?;
        remove_parts(site, &parts).await?;
        return Ok(Sighting::Ending);
    }
    let was_spot = row.is_spot && worker.state == WorkerState::Running;
    Ok(if was_spot {
        ended("evicted, or deleted by others: the spot machine no longer exists".to_owned())
    } else {
        Sighting::NotFound
    })
}

/// The messages of the operations that failed.
async fn deployment_failure(
    site: &Site,
    row: &Row,
    names: &MachineNames,
    deployment: &Value,
) -> MachineEnd {
    let mut path = site
        .arm
        .paths
        .deployment(&row.resource_group, &names.deployment());
    path.path.push_str("/operations");
    let operations = site.arm.list(&path, &[]).await.unwrap_or_default();
    failed_deployment(deployment, &operations)
}

fn failed_deployment(deployment: &Value, operations: &[Value]) -> MachineEnd {
    let failed = operations
        .iter()
        .map(|operation| &operation["properties"])
        .filter(|operation| operation["provisioningState"] == "Failed")
        .map(|operation| AzureError::read(&operation["statusMessage"]));
    let mut errors: Vec<AzureError> = failed.take(MAX_REASONS).collect();
    if errors.is_empty() {
        errors.push(AzureError::read(&deployment["properties"]["error"]));
    }
    let codes = errors.iter().filter_map(AzureError::deciding_code);
    let cause = codes.filter_map(|code| AZURE.known_cause(&code)).next();
    let reasons: Vec<String> = errors.iter().map(|error| error.text("")).collect();
    let state = provisioning_state(deployment).to_lowercase();
    let why = format!("its deployment {state}: {}", reasons.join("; "));
    MachineEnd::not_made(why, cause)
}

/// The id that Azure gave to the machine; `None`: there is no machine of ours.
pub(super) async fn vm_id(site: &Site, worker: &Worker) -> Result<Option<String>, VendorError> {
    let row = Row::of(worker, &site.resource_group);
    if row.vm_id.is_some() {
        return Ok(row.vm_id);
    }
    let path = site
        .arm
        .paths
        .machine(&row.resource_group, worker.key.id.as_str());
    let vm = site.arm.get(&path).await?.filter(|vm| site.owns(vm));
    Ok(vm.and_then(|vm| vm["properties"]["vmId"].as_str().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::json;

    use super::*;

    #[test]
    fn some_reasons_of_a_failed_deployment_are_told() {
        let error = json!({"code": "Outer", "message": "m"});
        let deployment = json!({"properties": {"provisioningState": "Failed", "error": error}});
        let failed = |number: usize| {
            let error = json!({"error": {"code": "Conflict", "message": number.to_string()}});
            json!({"properties": {"provisioningState": "Failed", "statusMessage": error}})
        };
        for count in sizes_around("cloud::azure::looking::MAX_REASONS", MAX_REASONS) {
            let operations: Vec<_> = (0..count).map(failed).collect();
            let text = failed_deployment(&deployment, &operations).why.unwrap();
            let n_told = text.matches("Conflict").count();
            assert_eq!(n_told, count.min(MAX_REASONS), "{text}");
            assert_eq!(text.contains("Outer: m"), count == 0);
        }
    }
}
