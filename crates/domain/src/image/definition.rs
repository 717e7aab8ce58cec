//! The definition of an image, as its author wrote it.
//!
//! A document is parsed into an [`ImageDefinition`], with all errors at once, each with its place.
//! The document itself is kept, so that it is shown as it was written.

mod service_secret;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

pub use self::service_secret::ServiceSecret;
pub use self::settings::{BuildMethod, CanarySettings, ElementList, Validation};
use super::content_hash::{fraction, hash};
use super::format::ImageFormat;
use super::reader::ObjectReader;
use super::upload_target::{self, UploadTarget, UploadTargetId};
use crate::configuration::{Problem, Problems};
use crate::id::{ImageName, RoleId};
use crate::time::SECOND_MS;

/// Variables of the build's environment.
const MAX_VARIABLES: usize = 200;
const MAX_SECRETS: usize = 50;
const MAX_FORMATS: usize = 16;
const MAX_LABELS: usize = 32;
const MAX_UPLOADS: usize = 64;
const MAX_USABLE_BY: usize = 100;
/// Good builds that are kept at least, and at most.
const KEEP: std::ops::RangeInclusive<u32> = 2..=100;
const DEFAULT_TIME_LIMIT_SECONDS: u32 = 28_800;
/// A week.
const MAX_TIME_LIMIT_SECONDS: u32 = 604_800;
const DEFAULT_REBUILD_AGE_SECONDS: u32 = 86_400;
/// A year.
const MAX_REBUILD_AGE_SECONDS: u32 = 31_536_000;
const MAX_DESCRIPTION_CHARACTERS: usize = 10_240;
const MAX_OWNER_CHARACTERS: usize = 256;
const MAX_VALUE_CHARACTERS: usize = 32_768;

/// An image: how it is built, and where it is uploaded.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageDefinition {
    pub name: ImageName,
    pub description: String,
    pub owner: String,
    pub build: BuildMethod,
    pub environment: BTreeMap<String, String>,
    /// The names of secrets that the build gets. The builders keep their values.
    pub secrets: Vec<String>,
    /// Secrets of the secrets service that the build gets.
    pub service_secrets: Vec<ServiceSecret>,
    pub time_limit_seconds: u32,
    /// As its author listed them, without those that only upload targets need.
    pub formats: Vec<ImageFormat>,
    /// A builder must have all of them.
    pub labels: BTreeSet<String>,
    /// A ready build of this age is replaced. 0: only on request.
    pub rebuild_age_seconds: u32,
    /// How many good builds are kept.
    pub keep: u32,
    pub uploads: Vec<UploadTarget>,
    pub validation: Option<Validation>,
    pub canary: CanarySettings,
    pub paused: bool,
    /// Roles whose holders may use it in rules and pools. Empty: everybody who may edit them.
    pub usable_by: Vec<RoleId>,
    document: Value,
}

impl ImageDefinition {
    /// Parses a document. All errors are returned together, each with its pointer.
    pub fn parse(document: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Value::Object(members) = document else {
            return Err(Problem::at("", "an image definition is an object").into());
        };
        let parsed = read(members, document, &mut problems);
        match (parsed, problems.is_empty()) {
            (Some(definition), true) => Ok(definition),
            _ => Err(problems),
        }
    }

    /// The document, as it was written.
    pub fn to_document(&self) -> &Value {
        &self.document
    }

    /// Identifies the content: 64 hex digits.
    pub fn content_hash(&self) -> String {
        hash(&self.document)
    }

    /// Identifies the part from which builds are made. If it changes, a new build is needed.
    pub fn build_hash(&self) -> String {
        let mut parts = json!({
            "build": self.document.get("build"),
            "environment": self.environment,
            "secrets": self.secrets,
        });
        if !self.service_secrets.is_empty() {
            let secrets = self.service_secrets.iter().map(ServiceSecret::to_json);
            parts["serviceSecrets"] = secrets.collect();
        }
        hash(&parts)
    }

    /// The names of all secrets, as the build knows them.
    pub fn secret_names(&self) -> Vec<String> {
        let of_service = self.service_secrets.iter().map(|secret| &secret.name);
        self.secrets.iter().chain(of_service).cloned().collect()
    }

    /// All formats that a build makes: those listed, and those that upload targets need.
    pub fn all_formats(&self) -> Vec<ImageFormat> {
        let mut formats = self.formats.clone();
        for format in self
            .uploads
            .iter()
            .filter_map(|target| target.format.as_ref())
        {
            if !formats.contains(format) {
                formats.push(format.clone());
            }
        }
        formats
    }

    /// The format that is uploaded to this target: its own, or the first of the definition.
    pub fn format_for<'a>(&'a self, target: &'a UploadTarget) -> Option<&'a ImageFormat> {
        let of_targets = || self.uploads.iter().find_map(|other| other.format.as_ref());
        let format = target.format.as_ref().or_else(|| self.formats.first());
        format.or_else(of_targets)
    }

    pub fn target(&self, id: &UploadTargetId) -> Option<&UploadTarget> {
        self.uploads.iter().find(|target| target.id == *id)
    }

    /// After which age a build is replaced, in milliseconds. The name takes off up to a tenth, so
    /// that images which were built together are not rebuilt together. `None`: only on request.
    pub fn rebuild_age_ms(&self) -> Option<i64> {
        let age = i64::from(self.rebuild_age_seconds) * SECOND_MS;
        let taken = fraction(self.name.as_str()) * (age as f64) / 10.0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a tenth of the age is not longer"
        )]
        let taken = taken as i64;
        (age > 0).then(|| age - taken)
    }
}

/// `None` if something was wrong that has no default.
fn read(
    members: &Map<String, Value>,
    document: &Value,
    problems: &mut Problems,
) -> Option<ImageDefinition> {
    let mut reader = ObjectReader::new(members, String::new(), problems);
    let name = reader.parsed::<ImageName>("imageId");
    let description = reader.text("description", MAX_DESCRIPTION_CHARACTERS);
    let owner = reader.text("owner", MAX_OWNER_CHARACTERS);
    let build = settings::read_build(&mut reader);
    let environment = reader.variables("environment", MAX_VARIABLES, MAX_VALUE_CHARACTERS);
    let (secrets, service_secrets) =
        reader.names_and_objects("secrets", MAX_SECRETS, ServiceSecret::read);
    let time_limit = 1..=MAX_TIME_LIMIT_SECONDS;
    let time_limit_seconds =
        reader.number("timeLimitSeconds", time_limit, DEFAULT_TIME_LIMIT_SECONDS);
    let formats: Vec<ImageFormat> = reader.parsed_list("formats", MAX_FORMATS);
    let labels = reader.names("labels", MAX_LABELS);
    let age = 0..=MAX_REBUILD_AGE_SECONDS;
    let rebuild_age_seconds = reader.number("rebuildAgeSeconds", age, DEFAULT_REBUILD_AGE_SECONDS);
    let keep = reader.number("keep", KEEP, *KEEP.start());
    let uploads = upload_target::read_list(&mut reader, MAX_UPLOADS);
    let validation = settings::read_validation(&mut reader);
    let canary = settings::read_canary(&mut reader);
    let paused = reader.flag("paused");
    let usable_by = reader.parsed_list("usableBy", MAX_USABLE_BY);
    if formats.is_empty() && uploads.iter().all(|target| target.format.is_none()) {
        reader.wrong(
            "formats",
            "must name a format, such as `raw`, or an upload must",
        );
    }
    let of_service = service_secrets.iter().map(|secret| &secret.name);
    let mut names = BTreeSet::new();
    for name in secrets.iter().chain(of_service) {
        let problem = if environment.contains_key(name) {
            "is a variable of `environment` too"
        } else if !names.insert(name) {
            "is the name of two secrets"
        } else {
            continue;
        };
        reader.wrong("secrets", format!("`{name}` {problem}"));
    }
    reader.finish();
    Some(ImageDefinition {
        name: name?,
        description,
        owner,
        build: build?,
        environment,
        secrets,
        service_secrets,
        time_limit_seconds,
        formats,
        labels: labels.into_iter().collect(),
        rebuild_age_seconds,
        keep,
        uploads,
        validation,
        canary,
        paused,
        usable_by,
        document: document.clone(),
    })
}
