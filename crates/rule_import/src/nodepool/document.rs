//! The result of an import: one document with images and a worker configuration.

use files::to_yaml;
use serde_json::{Map, Value};

use super::disk_image::read_disk_images;
use super::image_documents::image_documents;
use super::label_documents::label_document;
use super::notes::{NodepoolProblem, Notes};
use super::provider::{ProviderKind, read_providers};
use super::section::{Section, remark_on_variables};
use super::{NodepoolConversion, NodepoolOptions};

/// The order of keys: names first.
const FIRST: [&str; 11] = [
    "images",
    "workerConfigurations",
    "imageId",
    "workerConfigurationId",
    "ruleId",
    "description",
    "owner",
    "workerTypes",
    "rules",
    "conditions",
    "values",
];

const TREE: &str =
    "the servers of the tree are in the configuration of server and builders: [tree]";
const BUILDER: &str = "the configuration of a builder says it: see docs/image-builders.md";
/// Keys of the file itself without a counterpart.
const REASONS: [(&str, &str); 9] = [
    ("zookeeper-servers", TREE),
    ("zookeeper-tls", TREE),
    ("zookeeper-timeout", TREE),
    ("images-dir", BUILDER),
    ("build-log-dir", BUILDER),
    (
        "build-log-retention",
        "logs are kept as long as their build",
    ),
    ("webapp", "the server has an API: see docs/api.md"),
    ("max-hold-age", "workers are not held"),
    (
        "tenant-resource-limits",
        "tenants have no limits; overrides limit pools, providers and regions",
    ),
];

pub(super) fn convert(
    file: &Value,
    options: &NodepoolOptions,
) -> Result<NodepoolConversion, Vec<NodepoolProblem>> {
    let mut notes = Notes::default();
    let Some(mut section) = Section::new(file, String::new(), &mut notes) else {
        return Err(notes.finish().err().unwrap_or_default());
    };
    let elements_path = section.text("elements-dir", &mut notes);
    let elements_path: Vec<String> = elements_path
        .iter()
        .flat_map(|path| path.split(':'))
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    let images = read_disk_images(&mut section, &mut notes);
    let providers = read_providers(&mut section, options, &mut notes);
    for provider in &providers {
        if provider.kind == ProviderKind::External {
            let text = format!(
                "the provider `{}` of the server must be `external` or `exec`, and understand \
                 launch configs with the settings of the driver {}",
                provider.id, provider.driver
            );
            notes.remark(provider.place.clone(), text);
        }
    }
    let definitions = image_documents(&images, &elements_path, &providers, &mut notes);
    let labels = label_document(&mut section, &images, &providers, options, &mut notes);
    section.finish(&REASONS, &mut notes);
    remark_on_variables(file, "", &mut notes);
    if definitions.is_empty() && labels.is_none() {
        notes.wrong("", "it has neither disk images nor labels");
    }
    let remarks = notes.finish()?;
    let count = |key: &str| {
        let list = labels.as_ref().and_then(|labels| labels[key].as_array());
        list.map_or(0, Vec::len)
    };
    let (n_worker_types, n_rules) = (count("workerTypes"), count("rules"));
    let n_images = definitions.len();
    let mut document = Map::new();
    if n_images > 0 {
        document.insert("images".to_owned(), Value::Array(definitions));
    }
    if let Some(labels) = labels {
        document.insert(
            "workerConfigurations".to_owned(),
            Value::Array(vec![labels]),
        );
    }
    Ok(NodepoolConversion {
        text: to_yaml(&Value::Object(document), &FIRST),
        n_images,
        n_worker_types,
        n_rules,
        remarks,
    })
}
