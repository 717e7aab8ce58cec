//! The bodies of the calls that make a machine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::admin::Admin;
use super::launch_config::AzureLaunch;
use super::names::MachineNames;
use crate::leftovers::KEEP;

/// Keys of a launch config that are not Azure's.
const NOT_OF_THE_MACHINE: [&str; 7] = [
    "capacityPerInstance",
    "ignoreFailedProvisioningStates",
    "location",
    "subnetId",
    "tags",
    "workerConfig",
    "workerManager",
];
/// Keys that stand beside the properties of a machine.
const BESIDE_PROPERTIES: [&str; 5] = ["extendedLocation", "identity", "placement", "plan", "zones"];

/// One machine that is to be made.
pub(super) struct MachineOrder<'a> {
    pub(super) launch: AzureLaunch<'a>,
    pub(super) location: &'a str,
    /// The id of the subnet for its interface.
    pub(super) subnet: Option<&'a str>,
    pub(super) names: MachineNames,
    pub(super) tags: Map<String, Value>,
    /// The data for the worker, from which it learns its pool.
    pub(super) custom_data: &'a str,
    /// The highest price per hour of a spot machine; `None`: as in the launch config.
    pub(super) max_price: Option<f64>,
}

/// The data that the worker finds on its machine.
pub(super) fn custom_data(pool: &str, group: &str, provider: &str, root_url: &str) -> String {
    let data = json!({
        "workerPoolId": pool,
        "providerId": provider,
        "workerGroup": group,
        "rootUrl": root_url,
        // Workers get theirs when they register.
        "workerConfig": {},
    });
    STANDARD.encode(data.to_string())
}

impl MachineOrder<'_> {
    pub(super) fn address(&self) -> Value {
        json!({
            "location": self.location,
            "tags": self.tags,
            "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"},
        })
    }

    pub(super) fn interface(&self, address_id: Option<&str>) -> Value {
        let mut properties = json!({
            "privateIPAllocationMethod": "Dynamic",
            "subnet": {"id": self.subnet},
        });
        if let Some(id) = address_id {
            let address = json!({"id": id, "properties": {"deleteOption": "Delete"}});
            properties["publicIPAddress"] = address;
        }
        json!({
            "location": self.location,
            "tags": self.tags,
            "properties": {"ipConfigurations": [
                {"name": self.names.interface(), "properties": properties},
            ]},
        })
    }

    pub(super) fn machine(&self, interface_id: &str, admin: &Admin) -> Value {
        let (mut beside, mut properties) = (Map::new(), Map::new());
        for (key, value) in self.launch.content() {
            if BESIDE_PROPERTIES.contains(&key.as_str()) {
                beside.insert(key.clone(), value.clone());
            } else if !NOT_OF_THE_MACHINE.contains(&key.as_str()) {
                properties.insert(key.clone(), value.clone());
            }
        }
        self.add_admin(object_in(&mut properties, "osProfile"), admin);
        self.name_disks(object_in(&mut properties, "storageProfile"));
        let interface = json!({"id": interface_id,
            "properties": {"primary": true, "deleteOption": "Delete"}});
        let network = object_in(&mut properties, "networkProfile");
        network.insert("networkInterfaces".to_owned(), json!([interface]));
        if self.launch.is_spot() {
            properties
                .entry("evictionPolicy")
                .or_insert_with(|| json!("Delete"));
            self.limit_price(&mut properties);
        }
        beside.insert("location".to_owned(), json!(self.location));
        beside.insert("tags".to_owned(), json!(self.tags));
        beside.insert("properties".to_owned(), Value::Object(properties));
        Value::Object(beside)
    }

    /// The deployment of a template, whose parameters for the machine are replaced by ours.
    pub(super) fn deployment(&self, admin: &Admin) -> Value {
        let mut properties = self.launch.deployment().cloned().unwrap_or_default();
        let parameters = object_in(&mut properties, "parameters");
        for (name, value) in [
            ("tags", json!(self.tags)),
            ("vmName", json!(self.names.vm())),
            ("computerName", json!(self.names.computer())),
            ("adminUsername", json!(admin.name)),
            ("adminPassword", json!(admin.password.expose())),
            ("customData", json!(self.custom_data)),
        ] {
            parameters.insert(name.to_owned(), json!({"value": value}));
        }
        let mut tags = self.tags.clone();
        if self.launch.keeps_deployment() {
            tags.insert(KEEP.to_owned(), json!("true"));
        }
        json!({"tags": tags, "properties": properties})
    }

    fn add_admin(&self, profile: &mut Map<String, Value>, admin: &Admin) {
        for (key, value) in [
            ("computerName", json!(self.names.computer())),
            ("adminUsername", json!(admin.name)),
            ("adminPassword", json!(admin.password.expose())),
            ("customData", json!(self.custom_data)),
        ] {
            profile.insert(key.to_owned(), value);
        }
    }

    /// Names all disks, so that they are found again, and lets them end with the machine.
    fn name_disks(&self, profile: &mut Map<String, Value>) {
        complete_disk(object_in(profile, "osDisk"), self.names.os_disk());
        let disks = profile.get_mut("dataDisks").and_then(Value::as_array_mut);
        for (number, disk) in disks.into_iter().flatten().enumerate() {
            if let Some(disk) = disk.as_object_mut() {
                complete_disk(disk, self.names.data_disk(number));
            }
        }
    }

    fn limit_price(&self, properties: &mut Map<String, Value>) {
        let wanted = self.max_price;
        let Some(wanted) = wanted.filter(|price| price.is_finite() && *price > 0.0) else {
            return;
        };
        let price = self
            .launch
            .max_price()
            .map_or(wanted, |own| own.min(wanted));
        object_in(properties, "billingProfile").insert("maxPrice".to_owned(), json!(price));
    }
}

fn complete_disk(disk: &mut Map<String, Value>, name: String) {
    disk.insert("name".to_owned(), Value::String(name));
    disk.entry("deleteOption")
        .or_insert_with(|| json!("Delete"));
}

/// The object under a key. Makes it, if it is missing or something else.
fn object_in<'a>(within: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let entry = within.entry(key.to_owned()).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    match entry {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("it was just made an object")
        }
    }
}
