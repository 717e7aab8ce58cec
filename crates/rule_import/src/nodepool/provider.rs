//! The providers of the file, with their pools and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use domain::id::ProviderId;
use serde_json::{Map, Value};

use super::notes::{Notes, below};
use super::section::Section;
use super::{MappedProvider, NodepoolOptions};

const LOGIN: &str = "workers connect to the server themselves; no login is needed";
const RETRIES: &str = "the planner tries again by itself, at places that work";
const QUOTA: &str = "capacities count workers; quotas of the cloud are found by its refusals";
/// Keys of providers without a counterpart.
const REASONS: [(&str, &str); 22] = [
    (
        "max-concurrency",
        "the planner limits the launches of a provider by itself",
    ),
    (
        "priority",
        "the strategy `balanced` chooses providers by price and health",
    ),
    (
        "rate",
        "the server limits its calls to a provider by itself",
    ),
    (
        "boot-timeout",
        "`launch-timeout` becomes `registrationTimeout`, which includes the boot",
    ),
    ("launch-retries", RETRIES),
    ("image-name-format", "images are named by their tokens"),
    (
        "post-upload-hook",
        "a hook after an upload does not exist: `validation` of an image tests a build before it",
    ),
    ("host-key-checking", LOGIN),
    ("clean-floating-ips", "the provider cleans up by itself"),
    ("port-cleanup-interval", "the provider cleans up by itself"),
    ("hostname-format", "the provider names its machines"),
    (
        "profile-name",
        "credentials are in the server's configuration of the provider",
    ),
    (
        "cloud",
        "credentials are in the server's configuration of the provider",
    ),
    (
        "context",
        "credentials are in the server's configuration of the provider",
    ),
    (
        "project",
        "credentials are in the server's configuration of the provider",
    ),
    (
        "object-storage",
        "builders keep files in their artifact store, such as a bucket of S3",
    ),
    ("zone", "the provider's own configuration names its zones"),
    ("nodescan", LOGIN),
    ("max-cores", QUOTA),
    ("max-ram", QUOTA),
    ("max-servers", QUOTA),
    ("max-resources", QUOTA),
];
const REASONS_OF_CLOUD_IMAGES: [(&str, &str); 5] = [
    ("username", LOGIN),
    ("python-path", LOGIN),
    ("shell-type", LOGIN),
    ("connection-type", LOGIN),
    ("connection-port", LOGIN),
];

/// The kind of provider from which a label's workers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    Aws,
    Local,
    /// `external` and `exec`: the provider reads its launch configs itself.
    External,
    Fake,
    Static,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of provider; kinds are aws, local, external, exec, fake and static")]
pub struct BadKind(String);

impl FromStr for ProviderKind {
    type Err = BadKind;

    fn from_str(text: &str) -> Result<Self, BadKind> {
        Ok(match text {
            "aws" => Self::Aws,
            "local" => Self::Local,
            "external" | "exec" => Self::External,
            "fake" => Self::Fake,
            "static" => Self::Static,
            other => return Err(BadKind(other.to_owned())),
        })
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aws => "aws",
            Self::Local => "local",
            Self::External => "external",
            Self::Fake => "fake",
            Self::Static => "static",
        })
    }
}

impl ProviderKind {
    fn of_driver(driver: &str) -> Self {
        match driver {
            "aws" => Self::Aws,
            "static" => Self::Static,
            fake if fake.starts_with("fake") => Self::Fake,
            _ => Self::External,
        }
    }
}

pub(super) struct Provider {
    pub(super) place: String,
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) id: ProviderId,
    pub(super) kind: ProviderKind,
    /// Only if places of our provider have regions.
    pub(super) region: Option<String>,
    pub(super) launch_timeout_seconds: Option<u64>,
    pub(super) images: Vec<ProviderImage>,
    pub(super) cloud_images: BTreeMap<String, CloudImage>,
    pub(super) pools: Vec<ProviderPool>,
    /// The format of uploads, if the file says it.
    pub(super) image_format: Option<String>,
}

/// A disk image that is uploaded to a provider.
pub(super) struct ProviderImage {
    pub(super) place: String,
    pub(super) name: String,
    pub(super) options: Map<String, Value>,
}

/// An image that others made.
pub(super) struct CloudImage {
    pub(super) place: String,
    /// `image-id`, or the name.
    pub(super) id: Option<String>,
    /// Everything else, such as filters.
    pub(super) rest: Map<String, Value>,
}

pub(super) struct ProviderPool {
    pub(super) place: String,
    pub(super) name: String,
    pub(super) max_servers: Option<u64>,
    pub(super) settings: Map<String, Value>,
    pub(super) labels: Vec<PoolLabel>,
}

/// How a pool makes the machines of a label.
pub(super) struct PoolLabel {
    pub(super) place: String,
    pub(super) name: String,
    pub(super) image: ImageSource,
    pub(super) settings: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImageSource {
    Built(String),
    Cloud(String),
    /// Containers name their image in a setting, and registered hosts have none.
    None,
}

pub(super) fn read_providers(
    file: &mut Section<'_>,
    options: &NodepoolOptions,
    notes: &mut Notes,
) -> Vec<Provider> {
    let mut providers: Vec<Provider> = Vec::new();
    for section in file.sections("providers", notes) {
        if let Some(provider) = read(section, options, notes) {
            if providers.iter().any(|other| other.name == provider.name) {
                let text = format!("the provider `{}` is defined twice", provider.name);
                notes.wrong(below(&provider.place, "name"), text);
            }
            providers.push(provider);
        }
    }
    let names: BTreeSet<&str> = providers.iter().map(|one| one.name.as_str()).collect();
    for name in options
        .providers
        .keys()
        .filter(|name| !names.contains(name.as_str()))
    {
        notes.wrong(
            "/providers",
            format!("no provider is named `{name}`, which is mapped"),
        );
    }
    refuse_same_places(&providers, notes);
    providers
}

/// Two of Nodepool's providers may be two regions of ours, and nothing else.
fn refuse_same_places(providers: &[Provider], notes: &mut Notes) {
    let mut known: BTreeMap<(&ProviderId, Option<&str>), &Provider> = BTreeMap::new();
    for provider in providers {
        let before = known.insert((&provider.id, provider.region.as_deref()), provider);
        if let Some(before) = before.filter(|before| before.name != provider.name) {
            let text = format!(
                "`{}` and `{}` are both mapped to the provider `{}`, in the same region",
                before.name, provider.name, provider.id
            );
            notes.wrong(provider.place.clone(), text);
        }
        let is_other_kind =
            |other: &&&Provider| other.id == provider.id && other.kind != provider.kind;
        if let Some(other) = known.values().find(is_other_kind) {
            let text = format!(
                "`{}` and `{}` are mapped to one provider, and need different kinds",
                other.name, provider.name
            );
            notes.wrong(provider.place.clone(), text);
        }
    }
}

fn read(
    mut section: Section<'_>,
    options: &NodepoolOptions,
    notes: &mut Notes,
) -> Option<Provider> {
    let name = section.name(notes);
    let driver = section.text("driver", notes);
    let driver = driver.unwrap_or_else(|| "openstack".to_owned());
    let (id, kind) = match options.providers.get(&name) {
        Some(MappedProvider { id, kind }) => (Some(id.clone()), *kind),
        None => (provider_id(&name, &section, notes), None),
    };
    let kind = kind.unwrap_or_else(|| ProviderKind::of_driver(&driver));
    let region = region(&mut section, kind, notes);
    let image_format = section.text("image-format", notes);
    let image_format = image_format.or_else(|| section.text("image-type", notes));
    let launch_timeout_seconds = section.number("launch-timeout", notes);
    let images = section.sections("diskimages", notes);
    let images = images
        .into_iter()
        .map(|image| provider_image(image, kind, notes));
    let images = images.collect();
    let cloud_images = cloud_images(&mut section, kind, notes);
    let pools = section.sections("pools", notes);
    let pools = pools
        .into_iter()
        .map(|pool| read_pool(pool, notes))
        .collect();
    if section.limit("max-concurrency", notes) == Some(0) {
        let text = "0 stops the provider: pause it by an override, or set its capacities to 0";
        notes.remark(section.place_of("max-concurrency"), text);
    }
    let place = section.place.clone();
    section.finish(&REASONS, notes);
    Some(Provider {
        place,
        name,
        driver,
        id: id?,
        kind,
        region,
        launch_timeout_seconds,
        images,
        cloud_images,
        pools,
        image_format,
    })
}

fn provider_id(name: &str, section: &Section<'_>, notes: &mut Notes) -> Option<ProviderId> {
    let id = name.parse::<ProviderId>();
    id.map_err(|bad| {
        let text = format!("{bad}: map it to a provider of the server with --provider");
        notes.wrong(section.place_of("name"), text);
    })
    .ok()
}

fn region(section: &mut Section<'_>, kind: ProviderKind, notes: &mut Notes) -> Option<String> {
    let region = section.text("region-name", notes);
    match (kind, &region) {
        (ProviderKind::Aws, None) => {
            notes.wrong(
                &section.place,
                "`region-name` is missing: a provider of kind aws needs it",
            );
        }
        (ProviderKind::Aws, Some(_)) | (_, None) => {}
        (_, Some(_)) => {
            let text = "the configuration of the provider names its region";
            notes.remark(section.place_of("region-name"), text);
        }
    }
    region.filter(|_| kind == ProviderKind::Aws)
}

/// The options of uploads to `aws`, by Nodepool's names.
const AWS_OPTIONS: [(&str, &str); 2] = [
    ("architecture", "architecture"),
    ("volume-type", "volumeType"),
];
const PAUSED: &str = "an upload cannot be paused by itself: pause the image, or remove the upload";

fn provider_image(
    mut section: Section<'_>,
    kind: ProviderKind,
    notes: &mut Notes,
) -> ProviderImage {
    let name = section.name(notes);
    let place = section.place.clone();
    let mut options = Map::new();
    if section.flag("pause", notes).unwrap_or_default() {
        notes.remark(section.place_of("pause"), PAUSED);
    }
    match kind {
        ProviderKind::Aws => {
            for (theirs, ours) in AWS_OPTIONS {
                let value = section.text(theirs, notes);
                options.extend(value.map(|value| (ours.to_owned(), Value::String(value))));
            }
        }
        ProviderKind::External => {
            for (key, _) in REASONS_OF_CLOUD_IMAGES {
                if section.get(key).is_some() {
                    notes.remark(section.place_of(key), LOGIN);
                }
            }
            options = section.take_rest();
        }
        ProviderKind::Local | ProviderKind::Fake | ProviderKind::Static => {}
    }
    let reasons = REASONS_OF_CLOUD_IMAGES.iter().copied();
    let reasons: Vec<_> = reasons.chain(OPTIONS_WITHOUT_COUNTERPART).collect();
    section.finish(&reasons, notes);
    ProviderImage {
        place,
        name,
        options,
    }
}

const NO_OPTION: &str = "uploads to this kind of provider have no such option";
const OPTIONS_WITHOUT_COUNTERPART: [(&str, &str); 10] = [
    ("config-drive", NO_OPTION),
    ("meta", NO_OPTION),
    ("metadata", NO_OPTION),
    ("tags", NO_OPTION),
    ("ena-support", NO_OPTION),
    ("imds-support", NO_OPTION),
    ("import-method", NO_OPTION),
    ("iops", NO_OPTION),
    ("throughput", NO_OPTION),
    ("volume-size", NO_OPTION),
];

fn cloud_images(
    section: &mut Section<'_>,
    kind: ProviderKind,
    notes: &mut Notes,
) -> BTreeMap<String, CloudImage> {
    let mut images = BTreeMap::new();
    for mut image in section.sections("cloud-images", notes) {
        let name = image.name(notes);
        let id = image.text("image-id", notes);
        // OpenStack finds an image by its name if nothing else is said.
        let by_name = image.text("image-name", notes);
        for (key, _) in REASONS_OF_CLOUD_IMAGES {
            if image.get(key).is_some() {
                notes.remark(image.place_of(key), LOGIN);
            }
        }
        let rest = image.take_rest();
        let by_default = (kind == ProviderKind::External && rest.is_empty()).then(|| name.clone());
        let found = CloudImage {
            place: image.place.clone(),
            id: id.or(by_name).or(by_default),
            rest,
        };
        if images.insert(name.clone(), found).is_some() {
            let text = format!("the cloud image `{name}` is defined twice");
            notes.wrong(image.place_of("name"), text);
        }
    }
    images
}

fn read_pool(mut section: Section<'_>, notes: &mut Notes) -> ProviderPool {
    let name = section.name(notes);
    let max_servers = section.limit("max-servers", notes);
    let labels = section.sections("labels", notes);
    let labels = labels
        .into_iter()
        .map(|label| read_label(label, notes))
        .collect();
    let mut settings = section.take_rest();
    let place = section.place.clone();
    for (key, reason) in REASONS_OF_POOLS {
        if settings.remove(key).is_some() {
            notes.remark(below(&place, key), reason);
        }
    }
    if let Some(Value::Array(nodes)) = settings.remove("nodes") {
        for index in 0..nodes.len() {
            let text = "register this host as a worker of a `static` provider: see docs/worker.md";
            notes.remark(below(&below(&place, "nodes"), &index.to_string()), text);
        }
    }
    ProviderPool {
        place,
        name,
        max_servers,
        settings,
        labels,
    }
}

const REASONS_OF_POOLS: [(&str, &str); 8] = [
    (
        "node-attributes",
        "workers have no attributes; `workerConfig` carries values to them",
    ),
    (
        "priority",
        "the strategy `balanced` chooses launch configs by price and health",
    ),
    ("ignore-provider-quota", QUOTA),
    ("max-cores", QUOTA),
    ("max-ram", QUOTA),
    ("max-resources", QUOTA),
    ("max-volumes", QUOTA),
    ("max-volume-gb", QUOTA),
];

fn read_label(mut section: Section<'_>, notes: &mut Notes) -> PoolLabel {
    let name = section.name(notes);
    let built = section.text("diskimage", notes);
    let cloud = section.text("cloud-image", notes);
    let image = match (built, cloud) {
        (Some(built), None) => ImageSource::Built(built),
        (None, Some(cloud)) => ImageSource::Cloud(cloud),
        (None, None) => ImageSource::None,
        (Some(_), Some(_)) => {
            let text = "has both `diskimage` and `cloud-image`";
            notes.wrong(&section.place, text);
            ImageSource::None
        }
    };
    if section.get("host-key-checking").is_some() {
        notes.remark(section.place_of("host-key-checking"), LOGIN);
    }
    PoolLabel {
        place: section.place.clone(),
        name,
        image,
        settings: section.take_rest(),
    }
}
