//! Ends machines, and removes all that belongs to them.
//!
//! Azure deletes step by step: an interface or a disk can be deleted only when its machine no
//! longer exists. So each call does what is possible now, and the background task that ends workers
//! calls again until nothing is left.

use domain::worker::Worker;
use serde_json::Value;

use super::inherited::{is_inherited, mark_parts};
use super::names::MachineNames;
use super::paths::{ADDRESSES, ApiPath, DEPLOYMENTS, DISK_TYPE, INTERFACES, PARTS, group_in};
use super::records;
use super::row::Row;
use super::site::{Site, provisioning_state};
use super::tags::{self, FoundTags};
use crate::CloudError;
use crate::leftovers::{KEEP, Leftover, is_kept};
use crate::vendor::VendorError;

/// Azure refuses to delete a part in these words while something uses it.
const IN_USE: [&str; 9] = [
    "AnotherOperationInProgress",
    "CannotDeleteResource",
    "DeploymentActive",
    "InUseNetworkSecurityGroupCannotBeDeleted",
    "InUseSubnetCannotBeDeleted",
    "NicInUse",
    "NicReservedForAnotherVm",
    "OperationNotAllowed",
    "PublicIPAddressCannotBeDeleted",
];

/// Does the next step of the end of a worker's machine.
pub(super) async fn end(site: &Site, worker: &Worker) -> Result<(), CloudError> {
    let row = Row::of(worker, &site.resource_group);
    let (group, id) = (row.resource_group.as_str(), worker.key.id.as_str());
    let path = site.arm.paths.machine(group, id);
    if let Some(vm) = site.arm.get(&path).await? {
        let is_inherited = is_inherited(site, worker, &vm);
        if !site.owns(&vm) && !is_inherited {
            let refused = format!("machine {id} in {group} does not have our tags");
            return Err(CloudError::Refused(refused));
        }
        if provisioning_state(&vm) != "Deleting" {
            if is_inherited {
                mark_parts(site, &vm, id).await?;
            }
            site.arm.delete_machine(&path).await?;
            // Parts that we describe ourselves end with their machine.
            let is_fast = row.has_deployment == Some(false) && !is_inherited;
            records::teardown(worker, is_fast).write();
        }
        return Ok(());
    }
    let Some(names) = MachineNames::of_worker(id) else {
        return Ok(());
    };
    end_deployment(site, &row, &names).await?;
    let parts = find_parts(site, group, &names).await?;
    remove_parts(site, &parts).await?;
    Ok(())
}

/// Cancels a deployment that runs, and removes the record of an ended one.
pub(super) async fn end_deployment(
    site: &Site,
    row: &Row,
    names: &MachineNames,
) -> Result<(), VendorError> {
    if row.has_deployment == Some(false) {
        return Ok(());
    }
    let path = site
        .arm
        .paths
        .deployment(&row.resource_group, &names.deployment());
    let Some(deployment) = site.arm.get(&path).await? else {
        return Ok(());
    };
    if is_deploying(&deployment) {
        let cancel = ApiPath {
            path: format!("{}/cancel", path.path),
            ..path
        };
        return without_use(site.arm.post(&cancel).await);
    }
    if row.keeps_deployment {
        return Ok(());
    }
    without_use(site.arm.delete(&path).await)
}

/// Removes the record of a deployment that has made its machine. It is not needed any more.
pub(super) async fn remove_record(site: &Site, worker: &Worker) -> Result<(), VendorError> {
    let row = Row::of(worker, &site.resource_group);
    let names = MachineNames::of_worker(worker.key.id.as_str());
    let (Some(names), Some(true), false) = (names, row.has_deployment, row.keeps_deployment) else {
        return Ok(());
    };
    let path = site
        .arm
        .paths
        .deployment(&row.resource_group, &names.deployment());
    without_use(site.arm.delete(&path).await)
}

/// Whether the deployment still makes resources.
pub(super) fn is_deploying(deployment: &Value) -> bool {
    !["Succeeded", "Failed", "Canceled", "Deleting"].contains(&provisioning_state(deployment))
}

/// The parts of a machine that exist, by their names and by their tags.
pub(super) async fn find_parts(
    site: &Site,
    group: &str,
    names: &MachineNames,
) -> Result<Vec<Value>, VendorError> {
    let list = site.arm.paths.resources_of(group);
    let expand = ("$expand", "provisioningState".to_owned());
    let by_name = format!("substringof('{}', name)", names.suffix());
    let named = site
        .arm
        .list(&list, &[("$filter", by_name), expand.clone()])
        .await?;
    let vm = names.vm();
    let by_tag = format!("tagName eq '{}' and tagValue eq '{vm}'", tags::MACHINE);
    let tagged = site.arm.list(&list, &[("$filter", by_tag), expand]).await?;
    let is_ours = |part: &Value| {
        let name = part["name"].as_str().unwrap_or_default();
        let other = FoundTags::of(part).machine();
        names.has_part(name) && other.is_none_or(|machine| machine == vm)
    };
    let mut parts: Vec<Value> = named.into_iter().filter(is_ours).collect();
    for part in tagged {
        if !parts.iter().any(|known| is_same(known, &part)) {
            parts.push(part);
        }
    }
    parts.retain(|part| !is_kept(FoundTags::of(part).get(KEEP)));
    Ok(parts)
}

fn is_same(one: &Value, other: &Value) -> bool {
    let ids = (one["id"].as_str(), other["id"].as_str());
    let (Some(one), Some(other)) = ids else {
        return false;
    };
    one.eq_ignore_ascii_case(other)
}

/// Begins to delete the parts that nothing uses any more, and returns them.
pub(super) async fn remove_parts(
    site: &Site,
    parts: &[Value],
) -> Result<Vec<Leftover>, VendorError> {
    let mut removed = Vec::new();
    for (kind, version) in PARTS {
        let of_kind = parts.iter().filter(|part| {
            let own = part["type"].as_str().unwrap_or_default();
            own.eq_ignore_ascii_case(kind) && provisioning_state(part) != "Deleting"
        });
        for part in of_kind {
            let Some(path) = part["id"].as_str().filter(|id| group_in(id).is_some()) else {
                continue;
            };
            let path = ApiPath {
                path: path.to_owned(),
                version,
            };
            let deleted = site.arm.delete(&path).await;
            if !matches!(&deleted, Err(error) if is_in_use(error)) {
                deleted?;
                removed.push(leftover(part));
            }
        }
    }
    Ok(removed)
}

/// A part whose removal has begun.
fn leftover(part: &Value) -> Leftover {
    let own = part["type"].as_str().unwrap_or_default();
    let names = [
        (INTERFACES, "interface"),
        (ADDRESSES, "address"),
        (DISK_TYPE, "disk"),
        (DEPLOYMENTS, "deployment"),
    ];
    let known = names
        .iter()
        .find(|(kind, _)| kind.eq_ignore_ascii_case(own));
    Leftover {
        kind: known.map_or("network", |(_, name)| name),
        name: part["name"].as_str().unwrap_or_default().to_owned(),
    }
}

/// A part that is in use now is deleted later.
fn without_use(result: Result<(), VendorError>) -> Result<(), VendorError> {
    match result {
        Err(error) if is_in_use(&error) => Ok(()),
        result => result,
    }
}

fn is_in_use(error: &VendorError) -> bool {
    let answer = error.answer();
    answer.is_some_and(|it| IN_USE.contains(&it.code.as_str()))
}
