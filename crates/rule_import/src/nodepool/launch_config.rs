//! Launch configs out of labels of pools, in the format of our providers.

use serde_json::{Map, Value, json};

use super::notes::{Notes, below};
use super::provider::{ImageSource, PoolLabel, Provider, ProviderKind, ProviderPool};

/// Where an image that we register has its root disk.
const ROOT_DEVICE: &str = "/dev/xvda";
/// Where most images of others have it.
const USUAL_ROOT_DEVICE: &str = "/dev/sda1";
const NO_SETTING: &str = "launch configs of this kind of provider have no such setting";
const USER_DATA: &str = "the server writes the user data; the image starts the worker";
const DYNAMIC_TAGS: &str = "tags are fixed; write one rule for each value";
const INSIDE_IP: &str = "workers connect to the server, so their addresses do not matter";

/// The launch config of a label in a pool.
pub(super) fn launch_config(
    provider: &Provider,
    pool: &ProviderPool,
    label: &PoolLabel,
    notes: &mut Notes,
) -> Value {
    match provider.kind {
        ProviderKind::Aws => aws(provider, pool, label, notes),
        ProviderKind::External => external(provider, pool, label, notes),
        ProviderKind::Local | ProviderKind::Fake => {
            for key in label.settings.keys() {
                notes.remark(below(&label.place, key), NO_SETTING);
            }
            remark_on_pool(&pool.settings, pool, NO_SETTING, notes);
            let mut config = json!({"workerConfig": {}});
            if let Some(image) = image(provider, label, notes) {
                config["image"] = image;
            }
            config
        }
        ProviderKind::Static => Value::Null,
    }
}

/// Pools are named once for each of their labels: only the first label remarks on them.
fn remark_on_pool(rest: &Map<String, Value>, pool: &ProviderPool, reason: &str, notes: &mut Notes) {
    for key in rest.keys() {
        notes.remark_once(below(&pool.place, key), reason);
    }
}

/// The image as a value: a reference to an image that we build, or the id of another.
fn image(provider: &Provider, label: &PoolLabel, notes: &mut Notes) -> Option<Value> {
    match &label.image {
        ImageSource::Built(name) => Some(json!({ "$image": name })),
        ImageSource::None => None,
        ImageSource::Cloud(name) => {
            let Some(found) = provider.cloud_images.get(name) else {
                // AWS and OpenStack take the name of an image that is not listed.
                return Some(json!(name));
            };
            if provider.kind != ProviderKind::External {
                for key in found.rest.keys() {
                    let text = "images are not searched: write the id of the image into the rule";
                    notes.remark_once(below(&found.place, key), text);
                }
            }
            Some(json!(found.id.as_ref().unwrap_or(name)))
        }
    }
}

/// The provider reads its launch configs itself, so that they carry everything.
fn external(
    provider: &Provider,
    pool: &ProviderPool,
    label: &PoolLabel,
    notes: &mut Notes,
) -> Value {
    let mut config = json!({"workerConfig": {}});
    if let Some(image) = image(provider, label, notes) {
        config["image"] = image;
    }
    if let ImageSource::Cloud(name) = &label.image {
        let found = provider.cloud_images.get(name);
        if let Some(found) = found.filter(|found| !found.rest.is_empty()) {
            config["cloudImage"] = Value::Object(found.rest.clone());
        }
    }
    for (key, settings) in [("label", &label.settings), ("pool", &pool.settings)] {
        if !settings.is_empty() {
            config[key] = Value::Object(settings.clone());
        }
    }
    config
}

fn aws(provider: &Provider, pool: &ProviderPool, label: &PoolLabel, notes: &mut Notes) -> Value {
    let mut settings = label.settings.clone();
    let mut launch = Map::new();
    launch.extend(image(provider, label, notes).map(|image| ("ImageId".to_owned(), image)));
    for (theirs, ours) in [
        ("instance-type", "InstanceType"),
        ("key-name", "KeyName"),
        ("ebs-optimized", "EbsOptimized"),
    ] {
        launch.extend(
            settings
                .remove(theirs)
                .map(|value| (ours.to_owned(), value)),
        );
    }
    if let Some(Value::Object(profile)) = settings.remove("iam-instance-profile") {
        let keys = [("name", "Name"), ("arn", "Arn")];
        let keys = keys
            .into_iter()
            .filter_map(|(theirs, ours)| Some((ours.to_owned(), profile.get(theirs)?.clone())));
        launch.insert(
            "IamInstanceProfile".to_owned(),
            Value::Object(keys.collect()),
        );
    }
    if settings.remove("use-spot") == Some(json!(true)) {
        launch.insert(
            "InstanceMarketOptions".to_owned(),
            json!({"MarketType": "spot"}),
        );
    }
    if let Some(tokens) = settings.remove("imdsv2") {
        let options = json!({"HttpEndpoint": "enabled", "HttpTokens": tokens});
        launch.insert("MetadataOptions".to_owned(), options);
    }
    if let Some(Value::Object(tags)) = settings.remove("tags") {
        let tags = tags
            .iter()
            .map(|(key, value)| json!({"Key": key, "Value": value}));
        let tags: Vec<Value> = tags.collect();
        let specification = json!([{"ResourceType": "instance", "Tags": tags}]);
        launch.insert("TagSpecifications".to_owned(), specification);
    }
    launch.extend(disk(&mut settings, label).map(|disk| ("BlockDeviceMappings".to_owned(), disk)));
    launch.extend(network(pool, notes));
    for key in settings.keys() {
        let reason = match key.as_str() {
            "userdata" => USER_DATA,
            "dynamic-tags" => DYNAMIC_TAGS,
            _ => NO_SETTING,
        };
        notes.remark(below(&label.place, key), reason);
    }
    json!({"region": provider.region, "launchConfig": launch})
}

fn disk(settings: &mut Map<String, Value>, label: &PoolLabel) -> Option<Value> {
    let keys = [
        ("volume-size", "VolumeSize"),
        ("volume-type", "VolumeType"),
        ("iops", "Iops"),
        ("throughput", "Throughput"),
    ];
    let mut disk = Map::new();
    for (theirs, ours) in keys {
        disk.extend(
            settings
                .remove(theirs)
                .map(|value| (ours.to_owned(), value)),
        );
    }
    if disk.is_empty() {
        return None;
    }
    let device = match label.image {
        ImageSource::Built(_) => ROOT_DEVICE,
        ImageSource::Cloud(_) | ImageSource::None => USUAL_ROOT_DEVICE,
    };
    Some(json!([{"DeviceName": device, "Ebs": disk}]))
}

/// The subnet and security groups, in an interface of its own if addresses are set.
fn network(pool: &ProviderPool, notes: &mut Notes) -> Map<String, Value> {
    let mut settings = pool.settings.clone();
    let subnet = settings.remove("subnet-id");
    let groups = settings.remove("security-group-id");
    let groups = groups.map(|group| {
        if group.is_array() {
            group
        } else {
            json!([group])
        }
    });
    let address = settings.remove("public-ip-address");
    let address = settings.remove("public-ipv4").or(address);
    let mut launch = Map::new();
    let named = |name: &str, value: Option<Value>| value.map(|value| (name.to_owned(), value));
    match address {
        None => {
            launch.extend(named("SubnetId", subnet));
            launch.extend(named("SecurityGroupIds", groups));
        }
        Some(address) => {
            let mut interface = Map::new();
            interface.insert("DeviceIndex".to_owned(), json!(0));
            interface.insert("AssociatePublicIpAddress".to_owned(), address);
            interface.extend(named("SubnetId", subnet));
            interface.extend(named("Groups", groups));
            launch.insert("NetworkInterfaces".to_owned(), json!([interface]));
        }
    }
    if settings.remove("use-internal-ip").is_some() {
        notes.remark_once(below(&pool.place, "use-internal-ip"), INSIDE_IP);
    }
    remark_on_pool(&settings, pool, NO_SETTING, notes);
    launch
}
