//! The record of a build in the tree, and its states.
//!
//! Other modules can read the fields of a record, and cannot write them. Each transition consumes
//! the record and returns the changed one, or an error:
//!
//! ```compile_fail,E0594
//! fn assign(build: &mut domain::image::BuildRecord) {
//!     build.state = domain::image::BuildState::Ready;
//! }
//! ```

use std::collections::BTreeMap;
use std::ops::Deref;

use serde_json::{Map, Value, json};

use super::format::ImageFormat;
use super::record_fields::{BadRecord, Fields};
use crate::id::names;
use crate::time::Timestamp;

/// `building` → `ready` or `failed` → `deleting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildState {
    Building,
    /// Its files are complete, and passed the validation.
    Ready,
    Failed {
        error: String,
        cause: BuildFailureCause,
    },
    /// Its files may be removed.
    Deleting,
}

/// The cause of the failure of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildFailureCause {
    /// The build itself, or its validation.
    Build,
    /// Its builder died, or lost its lock.
    BuilderDied,
    /// Its builder was stopped in an orderly way. Such a build is no failed attempt.
    BuilderStopped,
}

names! {
    BuildFailureCause, "not a cause of a failed build",
    Build = "build",
    BuilderDied = "builder-died",
    BuilderStopped = "builder-stopped",
}

/// A file, or a folder, that a build made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFile {
    pub size_bytes: u64,
    /// 64 hex digits.
    pub sha256: String,
}

/// A log in an artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildLog {
    pub key: String,
    pub file: BuildFile,
}

/// The fields of a record. Only parsers and tests make a record of them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBuild {
    pub state: BuildState,
    /// Since when it has this state.
    pub state_time: Timestamp,
    /// The builder's host.
    pub builder: String,
    /// Identifies the builder's disk.
    pub builder_id: String,
    /// The formats that it made, each with its file if that is known.
    pub formats: BTreeMap<ImageFormat, Option<BuildFile>>,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// Its log in the artifact store, when the build has ended.
    pub log: Option<BuildLog>,
    /// Identifies the artifact store that has its files.
    pub artifacts: Option<String>,
    /// Counts builds since the last success or change: 1 for the first. A build whose builder was
    /// stopped does not count.
    pub attempt: u32,
    /// How many of the attempts before it ended because their builders died.
    pub n_deaths: u32,
    /// The number of the lock under which it is built.
    pub fence: Option<u64>,
    /// The hash of what it is made from; see `ImageDefinition::build_hash`.
    pub build_hash: Option<String>,
    /// The hash of the provenance record.
    pub provenance: Option<String>,
    /// Why it is built.
    pub reason: Option<String>,
    /// The time of the request that it answers.
    pub request: Option<Timestamp>,
    /// Fields of other programs.
    pub further: Map<String, Value>,
}

/// The fields of a new build; `begin` sets the others.
pub struct NewBuild {
    pub builder: String,
    pub builder_id: String,
    pub attempt: u32,
    pub n_deaths: u32,
    pub fence: u64,
    pub build_hash: String,
    pub reason: String,
    pub request: Option<Timestamp>,
}

/// The files that a build leaves in an artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildLeft {
    pub files: BTreeMap<ImageFormat, BuildFile>,
    /// The hash of the provenance record.
    pub provenance: Option<String>,
    pub log: Option<BuildLog>,
    /// Identifies the store.
    pub artifacts: Option<String>,
}

/// Its fields are those of [`StoredBuild`], and only its transitions change them.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildRecord(StoredBuild);

/// A transition that a build does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildStateError {
    #[error("a build that is {from} cannot become {to}")]
    State {
        from: &'static str,
        to: &'static str,
    },
    #[error("the build belongs to lock {held}, and the caller holds lock {given}")]
    Fenced { held: u64, given: u64 },
    #[error("a ready build has at least one file")]
    NoFile,
}

impl BuildState {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed { .. } => "failed",
            Self::Deleting => "deleting",
        }
    }
}

impl Deref for BuildRecord {
    type Target = StoredBuild;

    fn deref(&self) -> &StoredBuild {
        &self.0
    }
}

impl NewBuild {
    /// Written before the build command starts.
    pub fn begin(self, now: Timestamp) -> BuildRecord {
        BuildRecord(StoredBuild {
            state: BuildState::Building,
            state_time: now,
            builder: self.builder,
            builder_id: self.builder_id,
            formats: BTreeMap::new(),
            started: Some(now),
            finished: None,
            log: None,
            artifacts: None,
            attempt: self.attempt.max(1),
            n_deaths: self.n_deaths,
            fence: Some(self.fence),
            build_hash: Some(self.build_hash),
            provenance: None,
            reason: Some(self.reason),
            request: self.request,
            further: Map::new(),
        })
    }
}

impl BuildRecord {
    /// For parsers and tests: it checks nothing.
    pub fn from_stored(stored: StoredBuild) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredBuild {
        self.0
    }

    /// Reads a record of ours, or of Nodepool.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut fields = Fields::parse(bytes)?;
        let state = read_state(&mut fields)?;
        let state_time = fields.moment("state_time")?;
        let formats = read_formats(&mut fields)?;
        Ok(Self(StoredBuild {
            state,
            state_time: state_time.unwrap_or(Timestamp::from_millis(0)),
            builder: fields.text("builder")?.unwrap_or_default(),
            builder_id: fields.text("builder_id")?.unwrap_or_default(),
            formats,
            started: fields.moment("started")?,
            finished: fields.moment("finished")?,
            log: read_log(&mut fields)?,
            artifacts: fields.text("artifacts")?,
            attempt: fields.count("attempt")?.unwrap_or(1).max(1),
            n_deaths: fields.count("deaths")?.unwrap_or(0),
            fence: fields.number("fence")?,
            build_hash: fields.text("build_hash")?,
            provenance: fields.text("provenance")?,
            reason: fields.text("reason")?,
            request: fields.moment("request")?,
            further: fields.0,
        }))
    }

    pub fn to_document(&self) -> Value {
        let mut fields = Fields(self.further.clone());
        fields.put("state", self.state.as_str());
        fields.put_moment("state_time", Some(self.state_time));
        if let BuildState::Failed { error, cause } = &self.state {
            fields.put("error", error.as_str());
            let cause = Some(cause).filter(|cause| **cause != BuildFailureCause::Build);
            fields.put("cause", cause.map(|cause| cause.as_str()));
        }
        fields.put("builder", self.builder.as_str());
        fields.put("builder_id", self.builder_id.as_str());
        let names: Vec<&str> = self.formats.keys().map(ImageFormat::as_str).collect();
        fields.put("formats", names.join(","));
        let files = self.formats.iter().filter_map(|(format, file)| {
            let file = file.as_ref()?;
            Some((format.to_string(), file_document(file)))
        });
        let files: Map<String, Value> = files.collect();
        if !files.is_empty() {
            fields.put("files", files);
        }
        fields.put_moment("started", self.started);
        fields.put_moment("finished", self.finished);
        if let Some(BuildLog { key, file }) = &self.log {
            let mut document = file_document(file);
            document["key"] = json!(key);
            fields.put("log", document);
        }
        fields.put("artifacts", self.artifacts.clone());
        fields.put("attempt", self.attempt);
        fields.put("deaths", Some(self.n_deaths).filter(|n| *n > 0));
        fields.put("fence", self.fence);
        fields.put("build_hash", self.build_hash.clone());
        fields.put("provenance", self.provenance.clone());
        fields.put("reason", self.reason.clone());
        fields.put_moment("request", self.request);
        Value::Object(fields.0)
    }

    /// The files are complete. `fence` is the number of the lock that the caller holds.
    pub fn succeed(
        self,
        left: BuildLeft,
        fence: u64,
        now: Timestamp,
    ) -> Result<Self, BuildStateError> {
        self.check_building("ready", fence)?;
        if left.files.is_empty() {
            return Err(BuildStateError::NoFile);
        }
        let mut stored = self.0;
        let files = left.files.into_iter();
        stored.formats = files.map(|(format, file)| (format, Some(file))).collect();
        stored.provenance = left.provenance;
        stored.log = left.log;
        stored.artifacts = left.artifacts;
        stored.finished = Some(now);
        Ok(Self::with_state(stored, BuildState::Ready, now))
    }

    /// The build or its validation failed. `fence` is the number of the lock that the caller holds.
    pub fn fail(
        self,
        error: String,
        log: Option<BuildLog>,
        fence: u64,
        now: Timestamp,
    ) -> Result<Self, BuildStateError> {
        self.check_building("failed", fence)?;
        let mut failed = self.into_failed(error, BuildFailureCause::Build, now);
        failed.0.log = log;
        Ok(failed)
    }

    /// Its builder stops in an orderly way, so another one builds it. `fence` is the number of the
    /// lock that the caller holds.
    pub fn stop(self, fence: u64, now: Timestamp) -> Result<Self, BuildStateError> {
        self.check_building("failed", fence)?;
        let error = format!(
            "builder {} was stopped before the build ended",
            self.builder
        );
        Ok(self.into_failed(error, BuildFailureCause::BuilderStopped, now))
    }

    /// Its lock is free: the builder ended. Any process may say so.
    pub fn abandon(self, now: Timestamp) -> Result<Self, BuildStateError> {
        self.check_state("failed")?;
        let error = format!("builder {} ended before the build did", self.builder);
        Ok(self.into_failed(error, BuildFailureCause::BuilderDied, now))
    }

    /// Its files may be removed, and its uploads follow. Any process may say so.
    pub fn delete(self, now: Timestamp) -> Result<Self, BuildStateError> {
        match self.state {
            BuildState::Ready | BuildState::Failed { .. } => {
                Ok(Self::with_state(self.0, BuildState::Deleting, now))
            }
            BuildState::Building | BuildState::Deleting => Err(BuildStateError::State {
                from: self.state.as_str(),
                to: "deleting",
            }),
        }
    }

    /// Its files were deleted from the store that had them. It stays ready for the targets that
    /// have it; a target that lacks it needs another build.
    pub fn lose_files(self) -> Result<Self, BuildStateError> {
        match self.state {
            BuildState::Ready => {
                let mut stored = self.0;
                stored.artifacts = None;
                Ok(Self(stored))
            }
            BuildState::Building | BuildState::Failed { .. } | BuildState::Deleting => {
                Err(BuildStateError::State {
                    from: self.state.as_str(),
                    to: "without files",
                })
            }
        }
    }

    /// A record of a failure: the signed record of how the build was made does not fit to it.
    #[must_use]
    pub fn distrust(self, error: String) -> Self {
        let mut stored = self.0;
        let cause = BuildFailureCause::Build;
        stored.state = BuildState::Failed { error, cause };
        Self(stored)
    }

    fn into_failed(self, error: String, cause: BuildFailureCause, now: Timestamp) -> Self {
        let mut stored = self.0;
        stored.finished = Some(now);
        Self::with_state(stored, BuildState::Failed { error, cause }, now)
    }

    fn with_state(mut stored: StoredBuild, state: BuildState, now: Timestamp) -> Self {
        stored.state = state;
        stored.state_time = now;
        Self(stored)
    }

    fn check_building(&self, to: &'static str, given: u64) -> Result<(), BuildStateError> {
        self.check_state(to)?;
        match self.fence {
            Some(held) if held != given => Err(BuildStateError::Fenced { held, given }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_state(&self, to: &'static str) -> Result<(), BuildStateError> {
        match self.state {
            BuildState::Building => Ok(()),
            BuildState::Ready | BuildState::Failed { .. } | BuildState::Deleting => {
                let from = self.state.as_str();
                Err(BuildStateError::State { from, to })
            }
        }
    }
}

fn read_state(fields: &mut Fields) -> Result<BuildState, BadRecord> {
    let error = fields.text("error")?;
    let cause = fields.text("cause")?.map(|text| text.parse());
    let cause = cause.unwrap_or(Ok(BuildFailureCause::Build));
    let cause = cause.map_err(|error| BadRecord::at("cause", error))?;
    match fields.text("state")?.as_deref() {
        Some("building") => Ok(BuildState::Building),
        Some("ready") => Ok(BuildState::Ready),
        Some("failed") => Ok(BuildState::Failed {
            error: error.unwrap_or_default(),
            cause,
        }),
        // People write `delete`.
        Some("deleting" | "delete") => Ok(BuildState::Deleting),
        Some(other) => Err(BadRecord::at(
            "state",
            format!("{other:?} is not a build's state"),
        )),
        None => Err(BadRecord::at("state", "is missing")),
    }
}

/// Nodepool writes `"qcow2,raw"`; older ones a list.
fn read_formats(
    fields: &mut Fields,
) -> Result<BTreeMap<ImageFormat, Option<BuildFile>>, BadRecord> {
    let listed = fields.0.remove("formats").unwrap_or(Value::Null);
    let names: Vec<String> = match listed {
        Value::Null => Vec::new(),
        Value::String(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            texts.ok_or_else(|| BadRecord::at("formats", "must be a list of texts"))?
        }
        other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            return Err(BadRecord::at(
                "formats",
                format!("must be a text, not {other}"),
            ));
        }
    };
    let mut files = fields.object("files")?;
    let names = names.iter().filter(|name| !name.is_empty());
    let formats = names.map(|name| {
        let format = name
            .parse()
            .map_err(|error| BadRecord::at("formats", error))?;
        let file = files
            .remove(name)
            .map(|file| read_file(name, &file))
            .transpose()?;
        Ok((format, file))
    });
    formats.collect()
}

fn file_document(file: &BuildFile) -> Value {
    json!({"size_bytes": file.size_bytes, "sha256": file.sha256})
}

fn read_log(fields: &mut Fields) -> Result<Option<BuildLog>, BadRecord> {
    let document = Value::Object(fields.object("log")?);
    let Some(key) = document.get("key").and_then(Value::as_str) else {
        return Ok(None);
    };
    let (key, file) = (key.to_owned(), read_file("log", &document)?);
    Ok(Some(BuildLog { key, file }))
}

fn read_file(name: &str, document: &Value) -> Result<BuildFile, BadRecord> {
    let place = format!("files/{name}");
    let size = document.get("size_bytes").and_then(Value::as_u64);
    let sha256 = document.get("sha256").and_then(Value::as_str);
    let is_hash = |text: &&str| text.len() == 64 && text.bytes().all(|it| it.is_ascii_hexdigit());
    Ok(BuildFile {
        size_bytes: size.ok_or_else(|| BadRecord::at(&place, "has no size_bytes"))?,
        sha256: sha256
            .filter(is_hash)
            .ok_or_else(|| BadRecord::at(&place, "has no sha256 of 64 hex digits"))?
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
