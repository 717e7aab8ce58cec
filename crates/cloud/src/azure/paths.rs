//! Addresses of resources within Resource Manager, each with the version of its API.

use reqwest::Method;

use crate::vendor::Ask;

/// An address below the endpoint, and the version of the API that answers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiPath {
    pub(super) path: String,
    pub(super) version: &'static str,
}

impl ApiPath {
    pub(super) fn ask(&self, method: Method) -> Ask {
        let segments: Vec<&str> = self.path.split('/').skip(1).collect();
        Ask::new(method, &segments).with_query("api-version", self.version)
    }
}

pub(super) const COMPUTE: &str = "2024-07-01";
pub(super) const DISKS: &str = "2024-03-02";
pub(super) const NETWORK: &str = "2024-05-01";
pub(super) const RESOURCES: &str = "2021-04-01";

pub(super) const MACHINES: &str = "Microsoft.Compute/virtualMachines";
pub(super) const INTERFACES: &str = "Microsoft.Network/networkInterfaces";
pub(super) const ADDRESSES: &str = "Microsoft.Network/publicIPAddresses";
pub(super) const DEPLOYMENTS: &str = "Microsoft.Resources/deployments";
pub(super) const NETWORKS: &str = "Microsoft.Network/virtualNetworks";
pub(super) const DISK_TYPE: &str = "Microsoft.Compute/disks";

/// Parts of a machine, in the order in which they can be deleted. Templates make the others.
pub(super) const PARTS: [(&str, &str); 6] = [
    (DEPLOYMENTS, RESOURCES),
    (INTERFACES, NETWORK),
    (ADDRESSES, NETWORK),
    (DISK_TYPE, DISKS),
    ("Microsoft.Network/networkSecurityGroups", NETWORK),
    (NETWORKS, NETWORK),
];

/// The addresses of one subscription.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    subscription: String,
}

impl Paths {
    pub(super) fn new(subscription: String) -> Self {
        Self { subscription }
    }

    fn path(&self, rest: String, version: &'static str) -> ApiPath {
        let path = format!("/subscriptions/{}{rest}", self.subscription);
        ApiPath { path, version }
    }

    pub(super) fn group(&self, group: &str) -> ApiPath {
        self.path(format!("/resourcegroups/{group}"), RESOURCES)
    }

    pub(super) fn resource(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        version: &'static str,
    ) -> ApiPath {
        let rest = format!("/resourceGroups/{group}/providers/{kind}/{name}");
        self.path(rest, version)
    }

    pub(super) fn machine(&self, group: &str, name: &str) -> ApiPath {
        self.resource(group, MACHINES, name, COMPUTE)
    }

    pub(super) fn instance_view(&self, group: &str, name: &str) -> ApiPath {
        let mut path = self.machine(group, name);
        path.path.push_str("/instanceView");
        path
    }

    pub(super) fn deployment(&self, group: &str, name: &str) -> ApiPath {
        self.resource(group, DEPLOYMENTS, name, RESOURCES)
    }

    /// The list of the records of all deployments of a group.
    pub(super) fn deployments(&self, group: &str) -> ApiPath {
        let rest = format!("/resourceGroups/{group}/providers/{DEPLOYMENTS}");
        self.path(rest, RESOURCES)
    }

    /// The list of the states of all machines.
    pub(super) fn all_machines(&self) -> ApiPath {
        self.path(format!("/providers/{MACHINES}"), COMPUTE)
    }

    /// The list of all resources, which filters choose from.
    pub(super) fn all_resources(&self) -> ApiPath {
        self.path("/resources".to_owned(), RESOURCES)
    }

    pub(super) fn resources_of(&self, group: &str) -> ApiPath {
        self.path(format!("/resourceGroups/{group}/resources"), RESOURCES)
    }
}

/// The resource group in the id of a resource.
pub(super) fn group_in(id: &str) -> Option<&str> {
    let mut parts = id.split('/');
    parts.find(|part| part.eq_ignore_ascii_case("resourceGroups"))?;
    parts.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_in_an_id_of_any_case() {
        let id = "/subscriptions/s/resourcegroups/CI/providers/Microsoft.Compute/disks/d";
        assert_eq!(group_in(id), Some("CI"));
        assert_eq!(group_in("/subscriptions/s/resourceGroups/CI"), Some("CI"));
        assert_eq!(group_in("/subscriptions/s"), None);
    }
}
