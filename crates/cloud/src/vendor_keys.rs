//! The keys of launch configs that the vendors' APIs know.
//!
//! Launch configs may have any keys, so a misspelt one is refused late: by the vendor, when a
//! machine starts. The tables are made from public descriptions by `scripts/make-vendor-keys`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The type of a launch config.
const LAUNCH_CONFIG: &str = "LaunchConfig";
/// A value with any keys.
const ANY: &str = "*";
/// Before the type of the values of a map with any keys.
const MAP: char = '%';

/// A vendor whose keys are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyVendor {
    Aws,
    Azure,
    Google,
}

/// A key that the vendor does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// A JSON pointer in the launch config to the object with the key.
    pub pointer: String,
    pub key: String,
    /// The known keys of the object.
    pub known: Vec<&'static str>,
}

/// By type, the kinds of the values of its keys; an empty kind is a scalar.
type Table = BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>;

static AWS: LazyLock<Table> = LazyLock::new(|| table(include_str!("vendor_keys/aws.txt")));
static AZURE: LazyLock<Table> = LazyLock::new(|| table(include_str!("vendor_keys/azure.txt")));
static GOOGLE: LazyLock<Table> = LazyLock::new(|| table(include_str!("vendor_keys/google.txt")));

fn table(text: &'static str) -> Table {
    let lines = text.lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let keys = words.map(|word| word.split_once(':').unwrap_or((word, "")));
        (name, keys.collect())
    });
    lines.collect()
}

impl KeyVendor {
    /// Of the kind of a provider, or of the section that imported rules have for it.
    pub fn of_kind(kind: &str) -> Option<Self> {
        match kind {
            "aws" => Some(Self::Aws),
            "azure" => Some(Self::Azure),
            "google" => Some(Self::Google),
            _other => None,
        }
    }

    /// By the keys of a complete launch config.
    pub fn of_shape(launch_config: &Map<String, Value>) -> Option<Self> {
        let has = |key: &str| launch_config.contains_key(key);
        if launch_config
            .get("launchConfig")
            .is_some_and(Value::is_object)
        {
            Some(Self::Aws)
        } else if has("armDeployment") || has("hardwareProfile") || has("storageProfile") {
            Some(Self::Azure)
        } else if has("machineType") && has("disks") && has("zone") {
            Some(Self::Google)
        } else {
            None
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Aws => "Amazon",
            Self::Azure => "Azure",
            Self::Google => "Google",
        }
    }

    fn table(self) -> &'static Table {
        match self {
            Self::Aws => &AWS,
            Self::Azure => &AZURE,
            Self::Google => &GOOGLE,
        }
    }

    /// The unknown keys of a launch config, or of a part of one from its root.
    pub fn unknown_keys(self, launch_config: &Value) -> Vec<UnknownKey> {
        let mut unknown = Vec::new();
        self.check(launch_config, LAUNCH_CONFIG, "", &mut unknown);
        unknown
    }

    fn check(self, value: &Value, kind: &str, pointer: &str, unknown: &mut Vec<UnknownKey>) {
        match value {
            Value::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    self.check(item, kind, &format!("{pointer}/{position}"), unknown);
                }
            }
            Value::Object(fields) => match kind.strip_prefix(MAP) {
                Some(kind) => {
                    for (key, value) in fields {
                        self.check(value, kind, &below(pointer, key), unknown);
                    }
                }
                None => self.check_object(fields, kind, pointer, unknown),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn check_object(
        self,
        fields: &Map<String, Value>,
        kind: &str,
        pointer: &str,
        unknown: &mut Vec<UnknownKey>,
    ) {
        // A reference such as `$image` stands for another value.
        let is_reference = fields.keys().any(|key| key.starts_with('$'));
        let Some(known) = self.table().get(kind).filter(|_| !is_reference) else {
            return;
        };
        for (key, value) in fields {
            match known.get(key.as_str()).copied() {
                Some("" | ANY) => {}
                Some(kind) => self.check(value, kind, &below(pointer, key), unknown),
                None => unknown.push(UnknownKey {
                    pointer: pointer.to_owned(),
                    key: key.clone(),
                    known: known.keys().copied().collect(),
                }),
            }
        }
    }
}

fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unknown(vendor: KeyVendor, launch_config: &Value) -> Vec<String> {
        let unknown = vendor.unknown_keys(launch_config);
        let unknown = unknown.iter();
        unknown
            .map(|it| format!("{}/{}", it.pointer, it.key))
            .collect()
    }

    #[test]
    fn each_type_in_a_table_exists() {
        for table in [&*AWS, &*AZURE, &*GOOGLE] {
            assert!(table.contains_key(LAUNCH_CONFIG));
            for (name, keys) in table {
                for (key, kind) in keys {
                    let kind = kind.trim_start_matches(MAP);
                    let is_known = kind.is_empty() || kind == ANY || table.contains_key(kind);
                    assert!(is_known, "{name} {key} {kind}");
                }
            }
        }
    }

    #[test]
    fn misspelt_keys_are_found_at_any_depth() {
        let google = json!({"machineType": "m", "disk": [], "workerConfig": {"any": 1},
            "disks": [{"boot": true}, {"initializeParams": {"diskSizeGB": 1, "labels": {"any": 1}}}]});
        assert_eq!(
            unknown(KeyVendor::Google, &google),
            ["/disk", "/disks/1/initializeParams/diskSizeGB"]
        );
        let aws = json!({"region": "r", "instanceTypes": [{"instanceType": "m", "capacity": 1}],
            "launchConfig": {"imageId": "a", "Placement": {"AvailabilityZone": "z", "Zone": "z"},
                "TagSpecifications": [{"ResourceType": "x", "Tags": [{"Key": "k", "Value": "v"}]}]}});
        assert_eq!(
            unknown(KeyVendor::Aws, &aws),
            [
                "/instanceTypes/0/capacity",
                "/launchConfig/Placement/Zone",
                "/launchConfig/imageId"
            ]
        );
        let azure = json!({"location": "l", "tags": {"any": 1}, "hardwareProfile": {"vmsize": "s"},
            "storageProfile": {"osDisk": {"diskSizeGB": 1}, "imageReference": {"$image": "x"}},
            "armDeployment": {"mode": "Incremental", "parameters": {"any": {"value": 1}}}});
        assert_eq!(
            unknown(KeyVendor::Azure, &azure),
            ["/hardwareProfile/vmsize"]
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_left_to_the_vendor() {
        for value in [
            json!(1),
            json!({"disks": "x"}),
            json!({"disks": {"boot": true}}),
            json!([]),
        ] {
            assert_eq!(unknown(KeyVendor::Google, &value), [""; 0]);
        }
    }

    #[test]
    fn launch_configs_are_recognized() {
        let of = |config: Value| KeyVendor::of_shape(config.as_object().unwrap());
        assert_eq!(of(json!({"launchConfig": {}})), Some(KeyVendor::Aws));
        assert_eq!(of(json!({"storageProfile": {}})), Some(KeyVendor::Azure));
        let google = json!({"machineType": "m", "disks": [], "zone": "z"});
        assert_eq!(of(google), Some(KeyVendor::Google));
        assert_eq!(of(json!({"machineType": "m"})), None);
    }
}
