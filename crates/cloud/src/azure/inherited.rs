//! Machines that a Taskcluster's worker manager made.
//!
//! The parts of such a machine have names of their own, to which its name does not lead. So each
//! part gets the tag with the name of its machine before that is deleted, and the parts that are
//! left are found by it.

use domain::worker::Worker;
use serde_json::Value;

use super::paths::{ApiPath, NETWORK, group_in};
use super::site::Site;
use super::tags::{FoundTags, MACHINE};
use crate::vendor::VendorError;

/// Parts of one machine at most. Azure attaches fewer disks and interfaces to a machine.
const MAX_PARTS: usize = 100;

/// Whether the machine was taken over for this worker.
pub(super) fn is_inherited(site: &Site, worker: &Worker, vm: &Value) -> bool {
    worker.terms.taken_over && FoundTags::of(vm).are_of_taskcluster(&site.id)
}

/// Tags the parts of a machine that is to be deleted.
pub(super) async fn mark_parts(site: &Site, vm: &Value, id: &str) -> Result<(), VendorError> {
    let properties = &vm["properties"];
    let interfaces = list(&properties["networkProfile"]["networkInterfaces"]);
    let interfaces: Vec<&str> = interfaces.iter().filter_map(id_of).collect();
    let storage = &properties["storageProfile"];
    let disks = std::iter::once(&storage["osDisk"]).chain(list(&storage["dataDisks"]));
    let disks = disks.filter_map(|disk| id_of(&disk["managedDisk"]));
    let parts = interfaces.iter().copied().chain(disks);
    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
    parts.truncate(MAX_PARTS);
    for interface in interfaces.into_iter().take(MAX_PARTS) {
        let path = ApiPath {
            path: interface.to_owned(),
            version: NETWORK,
        };
        let found = site.arm.get(&path).await?.unwrap_or_default();
        let addresses = list(&found["properties"]["ipConfigurations"])
            .iter()
            .filter_map(|it| id_of(&it["properties"]["publicIPAddress"]));
        parts.extend(addresses.map(str::to_owned));
    }
    for part in parts {
        site.arm.tag(&part, MACHINE, id).await?;
    }
    Ok(())
}

/// The address of a resource within a resource group.
fn id_of(resource: &Value) -> Option<&str> {
    resource["id"].as_str().filter(|id| group_in(id).is_some())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
