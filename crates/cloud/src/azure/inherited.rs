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

/// Parts of one machine that are tagged at most, without addresses. Azure attaches up to 64 data
/// disks and 8 interfaces to a machine.
pub(super) const MAX_PARTS: usize = 80;

/// Whether the machine was taken over for this worker.
pub(super) fn is_inherited(site: &Site, worker: &Worker, vm: &Value) -> bool {
    worker.terms.taken_over && FoundTags::of(vm).are_of_taskcluster(&site.id)
}

/// Tags the parts of a machine that is to be deleted.
pub(super) async fn mark_parts(site: &Site, vm: &Value, id: &str) -> Result<(), VendorError> {
    let properties = &vm["properties"];
    let (interfaces, parts) = parts_of(properties);
    let mut parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
    for interface in interfaces {
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

/// The interfaces of a machine, and all its parts with them.
fn parts_of(properties: &Value) -> (Vec<&str>, Vec<&str>) {
    let interfaces = list(&properties["networkProfile"]["networkInterfaces"]);
    let interfaces = interfaces.iter().filter_map(id_of);
    let interfaces: Vec<&str> = interfaces.take(MAX_PARTS).collect();
    let storage = &properties["storageProfile"];
    let disks = std::iter::once(&storage["osDisk"]).chain(list(&storage["dataDisks"]));
    let disks = disks.filter_map(|disk| id_of(&disk["managedDisk"]));
    let parts = interfaces.iter().copied().chain(disks);
    let parts = parts.take(MAX_PARTS).collect();
    (interfaces, parts)
}

/// The address of a resource within a resource group.
fn id_of(resource: &Value) -> Option<&str> {
    resource["id"].as_str().filter(|id| group_in(id).is_some())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limited_number_of_parts_is_tagged() {
        for size in sizes_around("cloud::azure::inherited::MAX_PARTS", MAX_PARTS) {
            let id = |kind: &str, number: usize| {
                let group = "/subscriptions/s/resourceGroups/g/providers";
                json!({"id": format!("{group}/{kind}/{number}")})
            };
            let of = |kind: &str| (0..size).map(|number| id(kind, number)).collect::<Vec<_>>();
            let disks = of("disks")
                .into_iter()
                .map(|disk| json!({"managedDisk": disk}));
            let machine = json!({
                "networkProfile": {"networkInterfaces": of("nics")},
                "storageProfile": {"dataDisks": disks.collect::<Vec<_>>()},
            });
            let (interfaces, parts) = parts_of(&machine);
            assert_eq!(interfaces.len(), size.min(MAX_PARTS));
            assert_eq!(parts.len(), (2 * size).min(MAX_PARTS));
        }
    }
}
