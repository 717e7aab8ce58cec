//! Parts without a machine, and records of deployments that have ended.
//!
//! A launch that was refused or cut leaves an interface, an address or a record behind; a machine
//! that others deleted leaves what has no `deleteOption`. Each carries the name of its machine.

use std::collections::{BTreeMap, BTreeSet};

use domain::time::Timestamp;
use serde_json::Value;

use super::ending::{is_deploying, remove_parts};
use super::names::MachineNames;
use super::paths::{ADDRESSES, DISK_TYPE, INTERFACES, MACHINES, group_in};
use super::site::Site;
use super::tags::FoundTags;
use crate::leftovers::{KEEP, Leftover, bounded, is_kept, is_old};
use crate::several_calls::{run_together, successes};
use crate::vendor::VendorError;
use crate::{CloudError, Region};

/// The kinds of parts that are listed.
const KINDS: [&str; 3] = [INTERFACES, ADDRESSES, DISK_TYPE];

/// Resources that name the same machine of a resource group.
type ByMachine = BTreeMap<(String, String), Vec<Value>>;

/// Removes leftovers of a location. Deployments are looked for in the provider's group, and in
/// these others.
pub(super) async fn remove(
    site: &Site,
    groups: BTreeSet<String>,
    region: &Region,
    now: Timestamp,
) -> Result<Vec<Leftover>, CloudError> {
    let Region::Group(location) = region else {
        return Ok(Vec::new());
    };
    let mut found = ByMachine::new();
    let mut add = |resource: Value, made: &Value| {
        let made: Option<Timestamp> = made.as_str().and_then(|text| text.parse().ok());
        let tags = FoundTags::of(&resource);
        let group = resource["id"].as_str().and_then(group_in);
        let (Some(group), Some(machine)) = (group, tags.machine()) else {
            return;
        };
        if site.owns(&resource) && !is_kept(tags.get(KEEP)) && is_old(made, now) {
            let key = (group.to_ascii_lowercase(), machine.to_owned());
            found.entry(key).or_default().push(resource);
        }
    };
    for kind in KINDS {
        let filter = format!("location eq '{location}' and resourceType eq '{kind}'");
        let expand = ("$expand", "createdTime,provisioningState".to_owned());
        let list = site.arm.paths.all_resources();
        for part in site.arm.list(&list, &[("$filter", filter), expand]).await? {
            let made = part["createdTime"].clone();
            add(part, &made);
        }
    }
    for group in groups {
        let list = site.arm.paths.deployments(&group);
        for deployment in site.arm.list(&list, &[]).await? {
            let is_here = FoundTags::of(&deployment).group() == Some(location.as_str());
            let made = deployment["properties"]["timestamp"].clone();
            if is_here && !is_deploying(&deployment) {
                add(deployment, &made);
            }
        }
    }
    // Machines that exist are no part of the limit; each is looked at once more below.
    let filter = format!("location eq '{location}' and resourceType eq '{MACHINES}'");
    let list = site.arm.paths.all_resources();
    for vm in site.arm.list(&list, &[("$filter", filter)]).await? {
        if let (Some(group), Some(name)) =
            (vm["id"].as_str().and_then(group_in), vm["name"].as_str())
        {
            found.remove(&(group.to_ascii_lowercase(), name.to_owned()));
        }
    }
    let mut removals = Vec::new();
    for ((group, machine), left) in bounded(found.into_iter().collect()) {
        removals.push(remove_of(site, group, machine, left));
    }
    let removed = successes(&site.id, run_together(removals).await)?;
    Ok(removed.into_iter().flatten().collect())
}

/// Removes what is left of one machine, unless that exists or is about to.
async fn remove_of(
    site: &Site,
    group: String,
    machine: String,
    left: Vec<Value>,
) -> Result<Vec<Leftover>, VendorError> {
    let (arm, paths) = (&site.arm, &site.arm.paths);
    if arm.get(&paths.machine(&group, &machine)).await?.is_some() {
        return Ok(Vec::new());
    }
    if let Some(names) = MachineNames::of_worker(&machine) {
        let deployment = arm
            .get(&paths.deployment(&group, &names.deployment()))
            .await?;
        if deployment.as_ref().is_some_and(is_deploying) {
            return Ok(Vec::new());
        }
    }
    remove_parts(site, &left).await
}
