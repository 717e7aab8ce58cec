//! Image definitions out of disk images.

use std::collections::BTreeMap;

use domain::image::ImageDefinition;
use serde_json::{Map, Value, json};

use super::disk_image::DiskImage;
use super::notes::{Notes, below};
use super::provider::{Provider, ProviderKind};
use super::words::split_words;

/// The program of diskimage-builder.
const DIB_COMMAND: &str = "disk-image-create";
/// The format of an image that names none.
const DEFAULT_FORMAT: &str = "qcow2";
/// A year: definitions allow no longer age.
const MAX_REBUILD_AGE_SECONDS: u64 = 31_536_000;
/// A week: builds may not take longer.
const MAX_TIME_LIMIT_SECONDS: u64 = 604_800;

/// The definitions of all images that are not abstract.
pub(super) fn image_documents(
    images: &[DiskImage],
    elements_path: &[String],
    providers: &[Provider],
    notes: &mut Notes,
) -> Vec<Value> {
    let mut uploads: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let names: BTreeMap<&str, &DiskImage> = images
        .iter()
        .map(|image| (image.name.as_str(), image))
        .collect();
    for provider in providers {
        for listed in &provider.images {
            let place = below(&listed.place, "name");
            match names.get(listed.name.as_str()) {
                None => {
                    notes.wrong(place, format!("no disk image is named `{}`", listed.name));
                }
                Some(image) if image.is_abstract => {
                    notes.wrong(
                        place,
                        format!("the disk image `{}` is abstract", listed.name),
                    );
                }
                Some(image) => {
                    let upload = upload(provider, &listed.options, image, notes, &listed.place);
                    uploads.entry(&image.name).or_default().extend(upload);
                }
            }
        }
    }
    let built = images.iter().filter(|image| !image.is_abstract);
    let documents = built.map(|image| {
        let uploads = uploads.remove(image.name.as_str()).unwrap_or_default();
        definition(image, elements_path, uploads, notes)
    });
    documents.collect()
}

fn upload(
    provider: &Provider,
    options: &Map<String, Value>,
    image: &DiskImage,
    notes: &mut Notes,
    place: &str,
) -> Option<Value> {
    let format = match provider.kind {
        ProviderKind::Aws => aws_format(provider, notes),
        ProviderKind::Local => "tar".to_owned(),
        ProviderKind::Fake => DEFAULT_FORMAT.to_owned(),
        ProviderKind::External => external_format(provider, image),
        ProviderKind::Static => {
            notes.remark(
                place,
                "a provider of kind static takes no images: not uploaded",
            );
            return None;
        }
    };
    let mut upload = json!({"providerId": provider.id.as_str(), "format": format});
    if let Some(region) = &provider.region {
        upload["region"] = json!(region);
    }
    if !options.is_empty() {
        upload["options"] = Value::Object(options.clone());
    }
    Some(upload)
}

/// A format that EC2 imports.
fn aws_format(provider: &Provider, notes: &mut Notes) -> String {
    let named = provider.image_format.as_deref().unwrap_or("raw");
    if ["raw", "vhd", "vmdk"].contains(&named) {
        return named.to_owned();
    }
    let text = format!("images of the format {named} cannot be imported: raw is used");
    notes.remark(below(&provider.place, "image-format"), text);
    "raw".to_owned()
}

fn external_format(provider: &Provider, image: &DiskImage) -> String {
    if let Some(format) = &provider.image_format {
        return format.clone();
    }
    let of_driver = match provider.driver.as_str() {
        "openstack" | "ibmvpc" => Some("qcow2"),
        "azure" => Some("vhd"),
        _ => None,
    };
    let listed = image.settings.formats.iter().flatten().next();
    let format = of_driver.or(listed.map(String::as_str));
    format.unwrap_or(DEFAULT_FORMAT).to_owned()
}

fn definition(
    image: &DiskImage,
    elements_path: &[String],
    uploads: Vec<Value>,
    notes: &mut Notes,
) -> Value {
    let mut formats = image.settings.formats.clone().unwrap_or_default();
    for format in image.settings.keep_formats.iter().flatten() {
        if !formats.contains(format) {
            formats.push(format.clone());
        }
    }
    let mut pause = image.pause;
    if formats.is_empty() && uploads.is_empty() {
        let text = format!(
            "no provider uses it and it lists no formats, so Nodepool never builds it: it is \
             paused, with the format {DEFAULT_FORMAT}"
        );
        notes.remark(image.place.clone(), text);
        formats.push(DEFAULT_FORMAT.to_owned());
        pause = true;
    }
    let mut all_formats = formats.clone();
    for format in uploads
        .iter()
        .filter_map(|upload| upload["format"].as_str())
    {
        if !all_formats.iter().any(|known| known == format) {
            all_formats.push(format.to_owned());
        }
    }
    let mut document = json!({
        "imageId": image.name,
        "description": "from Nodepool",
    });
    let mut environment = image.environment.clone();
    document["build"] = build(image, &all_formats, elements_path, &mut environment, notes);
    if !environment.is_empty() {
        document["environment"] = json!(environment);
    }
    if !formats.is_empty() {
        document["formats"] = json!(formats);
    }
    if let Some(age) = rebuild_age(image, notes) {
        document["rebuildAgeSeconds"] = json!(age);
    }
    if let Some(limit) = time_limit(image, notes) {
        document["timeLimitSeconds"] = json!(limit);
    }
    if pause {
        document["paused"] = json!(true);
    }
    if !uploads.is_empty() {
        document["uploads"] = Value::Array(uploads);
    }
    check(image, &document, notes);
    document
}

/// Reports the errors that a server would find.
fn check(image: &DiskImage, document: &Value, notes: &mut Notes) {
    // Missing names are reported already.
    if notes.has_problems() {
        return;
    }
    if let Err(problems) = ImageDefinition::parse(document) {
        for problem in problems.iter() {
            let text = format!(
                "no image can be made of disk image {}: {problem}",
                image.name
            );
            notes.wrong(image.place.clone(), text);
        }
    }
}

/// The elements, or a command line if `dib-cmd` has arguments.
fn build(
    image: &DiskImage,
    formats: &[String],
    elements_path: &[String],
    environment: &mut BTreeMap<String, String>,
    notes: &mut Notes,
) -> Value {
    let line = image.settings.dib_cmd.as_deref().unwrap_or(DIB_COMMAND);
    let words = split_words(line).unwrap_or_else(|problem| {
        notes.wrong(below(&image.place, "dib-cmd"), problem);
        Vec::new()
    });
    if image.elements.is_empty() {
        notes.wrong(
            image.place.clone(),
            "`elements` is missing, also in its parents",
        );
    }
    if let [program] = words.as_slice() {
        let mut build = json!({"elements": image.elements});
        if let Some(release) = &image.settings.release {
            build["release"] = json!(release);
        }
        if !elements_path.is_empty() {
            build["elementsPath"] = json!(elements_path);
        }
        if program != DIB_COMMAND {
            build["program"] = json!(program);
        }
        return build;
    }
    let variables = [
        ("DIB_RELEASE", image.settings.release.clone()),
        ("DIB_IMAGE_NAME", Some(image.name.clone())),
        (
            "ELEMENTS_PATH",
            Some(elements_path.join(":")).filter(|path| !path.is_empty()),
        ),
    ];
    for (name, value) in variables {
        if let Some(value) = value {
            environment.entry(name.to_owned()).or_insert(value);
        }
    }
    let formats = formats.join(",");
    let options = [
        "-x",
        "-t",
        &formats,
        "--checksum",
        "--no-tmpfs",
        "-o",
        "{output}",
        "--",
    ];
    let options = options.into_iter().map(str::to_owned);
    let elements = image.elements.iter().cloned();
    let command: Vec<String> = words.into_iter().chain(options).chain(elements).collect();
    json!({ "command": command })
}

fn rebuild_age(image: &DiskImage, notes: &mut Notes) -> Option<u64> {
    let place = || below(&image.place, "rebuild-age");
    match image.settings.rebuild_age_seconds? {
        0 => {
            let text = "0 means only on request here, and always in Nodepool: a day is used";
            notes.remark(place(), text);
            None
        }
        age if age > MAX_REBUILD_AGE_SECONDS => {
            notes.remark(place(), "it is longer than a year: a year is used");
            Some(MAX_REBUILD_AGE_SECONDS)
        }
        age => Some(age),
    }
}

fn time_limit(image: &DiskImage, notes: &mut Notes) -> Option<u64> {
    let place = || below(&image.place, "build-timeout");
    match image.settings.build_timeout_seconds? {
        0 => {
            notes.remark(
                place(),
                "a build without time is not possible: 8 hours are used",
            );
            None
        }
        limit if limit > MAX_TIME_LIMIT_SECONDS => {
            notes.remark(place(), "it is longer than a week: a week is used");
            Some(MAX_TIME_LIMIT_SECONDS)
        }
        limit => Some(limit),
    }
}
