//! A worker configuration out of labels: one worker type for each.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::{
    Compilation, Configuration, MAX_WORKER_TYPES, ProviderCatalog, ProviderEntry, WorkerSource,
};
use domain::id::ProviderId;
use serde_json::{Map, Value, json};

use super::disk_image::DiskImage;
use super::launch_config::launch_config;
use super::notes::{Notes, below};
use super::provider::{ImageSource, PoolLabel, Provider, ProviderKind, ProviderPool};
use super::section::Section;
use super::{DEFAULT_OWNER, NodepoolOptions};

/// The condition that tells the pools of one provider apart.
const POOL: &str = "pool";
const MAX_NAME: usize = 38;
const READY_AGE: &str = "workers stop when they were idle for as long as their `workerConfig` says";

/// A label, and the pools that make machines for it.
struct Label<'a> {
    place: String,
    name: String,
    worker_type: String,
    min_ready: u64,
    offers: Vec<Offer<'a>>,
}

/// A pool that makes machines of a label.
#[derive(Clone, Copy)]
struct Offer<'a> {
    provider: &'a Provider,
    pool: &'a ProviderPool,
    label: &'a PoolLabel,
}

/// The worker configuration; `None` if the file has no labels.
pub(super) fn label_document(
    file: &mut Section<'_>,
    images: &[DiskImage],
    providers: &[Provider],
    options: &NodepoolOptions,
    notes: &mut Notes,
) -> Option<Value> {
    let mut labels = read_labels(file, notes);
    let images: BTreeMap<&str, &DiskImage> = images
        .iter()
        .map(|image| (image.name.as_str(), image))
        .collect();
    for provider in providers {
        for pool in &provider.pools {
            for label in &pool.labels {
                check_image(provider, label, &images, notes);
                let offer = Offer {
                    provider,
                    pool,
                    label,
                };
                match labels.iter_mut().find(|known| known.name == label.name) {
                    Some(known) => known.offers.push(offer),
                    None => {
                        let text = format!("the file defines no label `{}`", label.name);
                        notes.wrong(below(&label.place, "name"), text);
                    }
                }
            }
        }
    }
    if labels.is_empty() {
        return None;
    }
    if labels.len() > MAX_WORKER_TYPES {
        let text = format!(
            "{} labels are too many for a worker configuration, which has at most \
             {MAX_WORKER_TYPES}: divide the file",
            labels.len()
        );
        notes.wrong(file.place_of("labels"), text);
        return None;
    }
    let owner = options.owner.clone().unwrap_or_else(|| {
        let text = format!("pools need an owner: they get {DEFAULT_OWNER}; --owner sets another");
        notes.remark(file.place_of("labels"), text);
        DEFAULT_OWNER.to_owned()
    });
    let mut rules = vec![json!({
        "ruleId": "all labels",
        "conditions": null,
        "values": {"owner": owner},
    })];
    for label in &labels {
        rules.extend(label_rules(label, options, notes));
    }
    let worker_types: Vec<&str> = labels.iter().map(|one| one.worker_type.as_str()).collect();
    let content = json!({
        "description": "the labels of a Nodepool",
        "workerTypes": worker_types,
        "rules": rules,
    });
    check(&content, providers, notes);
    let mut document = content;
    document["workerConfigurationId"] = json!(options.configuration_id.as_str());
    Some(document)
}

fn read_labels<'a>(file: &mut Section<'_>, notes: &mut Notes) -> Vec<Label<'a>> {
    let mut labels: Vec<Label<'a>> = Vec::new();
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    for mut section in file.sections("labels", notes) {
        let name = section.name(notes);
        let worker_type = worker_type(&name);
        let place = section.place_of("name");
        if worker_type.is_empty() {
            notes.wrong(
                &place,
                format!("no worker type can be named after `{name}`"),
            );
        } else if worker_type != name {
            let text = format!("names of worker types are stricter: it becomes `{worker_type}`");
            notes.remark(&place, text);
        }
        if let Some((_, other)) = known.iter().find(|(known, _)| *known == worker_type) {
            let text = format!("`{name}` and `{other}` would be one worker type, `{worker_type}`");
            notes.wrong(place, text);
        }
        known.insert((worker_type.clone(), name.clone()));
        let min_ready = section.limit("min-ready", notes).unwrap_or_default();
        if section
            .number("max-ready-age", notes)
            .is_some_and(|age| age > 0)
        {
            notes.remark(section.place_of("max-ready-age"), READY_AGE);
        }
        labels.push(Label {
            place: section.place.clone(),
            name,
            worker_type,
            min_ready,
            offers: Vec::new(),
        });
        section.finish(&[], notes);
    }
    labels
}

/// The nearest name that a worker type may have.
fn worker_type(label: &str) -> String {
    let letters = label.to_ascii_lowercase();
    let letters = letters.chars().map(|letter| match letter {
        'a'..='z' | '0'..='9' => letter,
        _ => '-',
    });
    let name: String = letters.collect();
    let name = name.trim_start_matches(|letter: char| !letter.is_ascii_lowercase());
    let name: String = name.chars().take(MAX_NAME).collect();
    name.trim_end_matches('-').to_owned()
}

fn check_image(
    provider: &Provider,
    label: &PoolLabel,
    images: &BTreeMap<&str, &DiskImage>,
    notes: &mut Notes,
) {
    let ImageSource::Built(name) = &label.image else {
        return;
    };
    let place = below(&label.place, "diskimage");
    match images.get(name.as_str()) {
        None => notes.wrong(place, format!("no disk image is named `{name}`")),
        Some(image) if image.is_abstract => {
            notes.wrong(place, format!("the disk image `{name}` is abstract"));
        }
        Some(_) if provider.images.iter().all(|image| image.name != *name) => {
            let text = format!(
                "the provider `{}` does not list the disk image `{name}`",
                provider.name
            );
            notes.wrong(place, text);
        }
        Some(_) => {}
    }
}

fn label_rules(label: &Label<'_>, options: &NodepoolOptions, notes: &mut Notes) -> Vec<Value> {
    let mut values = json!({"description": format!("label {} of Nodepool", label.name)});
    let offers = &label.offers;
    let launching: Vec<&Offer<'_>> = offers
        .iter()
        .filter(|offer| offer.provider.kind != ProviderKind::Static)
        .collect();
    if offers.is_empty() {
        let text = "no pool lists it: its worker type has no providers";
        notes.remark(label.place.clone(), text);
    } else {
        values["providers"] = providers(label);
    }
    if !launching.is_empty() {
        let maximum = max_capacity(&launching, options, notes);
        let minimum = label.min_ready.min(maximum);
        values["maxCapacity"] = json!(maximum);
        if minimum > 0 {
            values["minCapacity"] = json!(minimum);
        }
    }
    if label.min_ready > 0 {
        let text = "it counts idle nodes; `minCapacity` counts all workers of the pool";
        notes.remark(below(&label.place, "min-ready"), text);
    }
    let timeouts = offers
        .iter()
        .filter_map(|offer| offer.provider.launch_timeout_seconds);
    if let Some(seconds) = timeouts.max().filter(|seconds| *seconds > 0) {
        values["lifecycle"] = json!({"registrationTimeout": seconds});
    }
    let mut rules = vec![json!({
        "ruleId": label.worker_type,
        "conditions": {"workerType": label.worker_type},
        "values": values,
    })];
    for offer in launching {
        rules.push(offer_rule(label, *offer, notes));
    }
    rules
}

/// How many machines of a label the pools allow together.
fn max_capacity(offers: &[&Offer<'_>], options: &NodepoolOptions, notes: &mut Notes) -> u64 {
    let mut maximum: u64 = 0;
    for offer in offers {
        let pool = offer.pool;
        let of_pool = pool.max_servers.unwrap_or_else(|| {
            let text = format!(
                "it has no `max-servers`: each of its labels gets a maxCapacity of {}; \
                 --max-capacity sets another",
                options.max_capacity
            );
            notes.remark_once(pool.place.clone(), text);
            u64::from(options.max_capacity)
        });
        if pool.max_servers.is_some() && pool.labels.len() > 1 {
            let text = "the labels of the pool share it; here each label may use all of it";
            notes.remark_once(below(&pool.place, "max-servers"), text);
        }
        maximum = maximum.saturating_add(of_pool);
    }
    maximum
}

/// The providers with the places of a label: exactly those of the file.
fn providers(label: &Label<'_>) -> Value {
    let mut places: BTreeMap<&ProviderId, Option<Vec<Value>>> = BTreeMap::new();
    for offer in &label.offers {
        let listed = places.entry(&offer.provider.id).or_default();
        if offer.provider.kind != ProviderKind::Static {
            let place = Value::Object(place(label, *offer));
            listed.get_or_insert_default().push(place);
        }
    }
    let options = places.into_iter().map(|(id, places)| {
        let options = match places {
            None => json!({}),
            Some(places) => json!({"exact": true, "places": places}),
        };
        (id.as_str().to_owned(), options)
    });
    Value::Object(options.collect())
}

/// The key that distinguishes the launch config of an offer from the others of its provider.
fn place(label: &Label<'_>, offer: Offer<'_>) -> Map<String, Value> {
    let mut place = Map::new();
    if let Some(region) = &offer.provider.region {
        place.insert("region".to_owned(), json!(region));
    }
    let same_provider = label
        .offers
        .iter()
        .filter(|other| other.provider.name == offer.provider.name);
    if same_provider.count() > 1 {
        place.insert(POOL.to_owned(), json!(offer.pool.name));
    }
    place
}

fn offer_rule(label: &Label<'_>, offer: Offer<'_>, notes: &mut Notes) -> Value {
    let provider = offer.provider;
    let place = place(label, offer);
    let mut id = format!("{} {}", label.worker_type, provider.name);
    if place.contains_key(POOL) {
        id.push_str(&format!(" {}", offer.pool.name));
    }
    let mut conditions = json!({
        "workerType": label.worker_type,
        "provider": provider.id.as_str(),
    });
    for (name, value) in place {
        let text = value.as_str().map(escape);
        conditions[name] = json!(text);
    }
    let launch_config = launch_config(provider, offer.pool, offer.label, notes);
    let mut values = Map::new();
    values.insert(provider.id.as_str().to_owned(), launch_config);
    json!({"ruleId": id, "conditions": conditions, "values": values})
}

/// A text as a pattern that matches only itself.
fn escape(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if "*?[]{}!,\\".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Compiles the rules as a server does, with providers of any places.
fn check(content: &Value, providers: &[Provider], notes: &mut Notes) {
    if notes.has_problems() {
        return;
    }
    let mut catalog = ProviderCatalog::assumed();
    for provider in providers {
        if provider.kind == ProviderKind::Static {
            let mut entry = ProviderEntry::launching(Vec::new());
            entry.takes = WorkerSource::Declarations;
            catalog.providers.insert(provider.id.clone(), entry);
        }
    }
    let compiled = Configuration::parse(content)
        .and_then(|configuration| Compilation::new(configuration, catalog.into()));
    if let Err(problems) = compiled {
        for problem in problems.iter() {
            notes.wrong(
                "/labels",
                format!("no rules can be made of them: {problem}"),
            );
        }
    }
}
