//! Runs the command of a build, validates its output, and stores it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::Secret;
use cloud::image::{
    ArtifactError, ArtifactKey, BuildFacts, BuildSecret, BuildSpec, Checksum, ElementBuild,
    OutputFile, checksum_of, element_command, read_report, sha256_of, statement,
};
use domain::id::ImageName;
use domain::image::{
    BuildFile, BuildLeft, BuildLog, BuildMethod, BuildNumber, ImageFormat, ServiceSecret,
};
use domain::time::Timestamp;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::Builder;
use super::build_job::{Begun, BuildFailure, Finished, Made};
use crate::live_builds::LiveEntry;

/// Attempts to store a file while the store is not reachable.
const STORE_ATTEMPTS: u32 = 6;
const FIRST_STORE_PAUSE: Duration = Duration::from_secs(1);
/// The name of a log in the store.
pub(super) const LOG_NAME: &str = "build.log";
/// The folder of a validation, in that of its build.
const VALIDATION: &str = "validation";
/// Stands for the path of the output without format.
const OUTPUT: &str = "{output}";

/// The limit for the answer of the secrets service.
const SECRET_LIMIT: Duration = Duration::from_secs(60);

/// The end of the command.
struct Ran {
    result: Result<Vec<OutputFile>, BuildFailure>,
    spec: BuildSpec,
    entry: LiveEntry,
}

impl Builder {
    /// Makes the files of a build, with its log and its provenance.
    pub(super) async fn make(&self, begun: &Begun) -> Made {
        let mut ran = match self.run_command(begun).await {
            Ok(ran) => ran,
            Err(failure) => {
                let (result, log, entry) = (Err(failure), None, None);
                return Made { result, log, entry };
            }
        };
        let outputs = match std::mem::replace(&mut ran.result, Ok(Vec::new())) {
            Ok(outputs) => self.validate(begun, &ran).await.map(|()| outputs),
            Err(failure) => Err(failure),
        };
        let log = self.store_log(begun, &ran.spec).await;
        let result = match outputs {
            Ok(outputs) => self.finish(begun, &ran.spec, &outputs, log.clone()).await,
            Err(failure) => Err(failure),
        };
        let entry = Some(ran.entry);
        Made { result, log, entry }
    }

    async fn run_command(&self, begun: &Begun) -> Result<Ran, BuildFailure> {
        let spec = self.spec(begun).await?;
        let started = self.parts.commands.start(spec.clone()).await;
        let mut run = started.map_err(|error| BuildFailure::Failed(with_causes(&error)))?;
        let (log, max_log_bytes) = (spec.log_path(), spec.max_log_bytes);
        let live = &self.parts.live;
        let entry = live.enter(&begun.image, begun.number, log, max_log_bytes);
        let progress = run.progress();
        let mut why = None;
        let outcome = tokio::select! {
            outcome = run.wait() => outcome,
            never = entry.follow(progress) => match never {},
            reason = self.cancelled(begun) => {
                why = Some(reason);
                run.cancel();
                run.wait().await
            }
        };
        entry.add_length_of(&spec.log_path());
        let result = match (outcome.result, why) {
            (_, Some(reason)) => Err(reason),
            (Ok(outputs), None) => Ok(outputs),
            (Err(error), None) => Err(BuildFailure::Failed(with_causes(&error))),
        };
        Ok(Ran {
            result,
            spec,
            entry,
        })
    }

    /// Returns when the build should end, with the reason.
    async fn cancelled(&self, begun: &Begun) -> BuildFailure {
        let mut why = String::new();
        let is_unwanted = |image: Option<&crate::ImageNode>| {
            let build = image.and_then(|image| image.builds.get(&begun.number));
            match (image, build) {
                (Some(image), Some(build)) => {
                    if let Some(note) = &build.cancel {
                        why = format!("{} cancelled it: {}", note.by, note.reason);
                    } else if image.is_removed {
                        "the image was removed".clone_into(&mut why);
                    }
                }
                // The copy does not have our own record yet, or the record was deleted.
                (Some(_), None) => {}
                (None, _) => "the image was removed".clone_into(&mut why),
            }
            !why.is_empty()
        };
        tokio::select! {
            () = self.stop.cancelled() => BuildFailure::Stopped,
            _ = self.images().wait_for(&begun.image, Duration::MAX, is_unwanted) => {
                BuildFailure::Failed(why)
            }
        }
    }

    async fn spec(&self, begun: &Begun) -> Result<BuildSpec, BuildFailure> {
        let definition = &begun.definition;
        let formats: Vec<String> = definition
            .all_formats()
            .iter()
            .map(ToString::to_string)
            .collect();
        let (command, mut environment) = command(&definition.build, &definition.name, &formats);
        environment.extend(definition.environment.clone());
        let secrets = definition.secrets.iter();
        let secrets = secrets.map(|name| self.secret(name, &definition.name));
        let mut secrets: Vec<BuildSecret> = secrets.collect::<Result<_, _>>()?;
        for wanted in &definition.service_secrets {
            secrets.push(self.service_secret(wanted, &definition.name).await?);
        }
        Ok(BuildSpec {
            command,
            environment,
            secrets,
            folder: self.disk.work(&begun.image, begun.number),
            output: definition.name.to_string(),
            formats,
            time_limit: Duration::from_secs(definition.time_limit_seconds.into()),
            grace: self.settings.grace,
            max_log_bytes: self.settings.max_log_bytes,
            confinement: self.settings.confinement.clone(),
        })
    }

    fn secret(&self, name: &str, image: &ImageName) -> Result<BuildSecret, BuildFailure> {
        let Some(file) = self.settings.secrets.get(name) else {
            return Err(BuildFailure::Failed(format!(
                "builder {} has no secret {name}: add it to `images.secrets` of its configuration",
                self.settings.name
            )));
        };
        if !file.is_for(image) {
            return Err(BuildFailure::Failed(format!(
                "image {image} may not use secret {name}: add it to `images.secrets.{name}.images` \
                 in the configuration of builder {}, or remove the secret from the definition",
                self.settings.name
            )));
        }
        let value = file.read().map_err(|error| {
            let path = file.path.display();
            BuildFailure::Failed(format!("secret {name} cannot be read from {path}: {error}"))
        })?;
        Ok(BuildSecret {
            name: name.to_owned(),
            value,
            as_file: file.as_file,
        })
    }

    /// Read when the build begins, so that a changed value is in the next build.
    async fn service_secret(
        &self,
        wanted: &ServiceSecret,
        image: &ImageName,
    ) -> Result<BuildSecret, BuildFailure> {
        let ServiceSecret {
            name,
            secret,
            key,
            as_file,
        } = wanted;
        let failed = |why: String| {
            BuildFailure::Failed(format!("secret {secret} of the secrets service {why}"))
        };
        let reading = timeout(SECRET_LIMIT, self.parts.secrets.read(image, secret));
        let read = reading.await.map_err(|_| {
            failed(format!(
                "was not answered within {} s",
                SECRET_LIMIT.as_secs()
            ))
        })?;
        let value = read.map_err(|why| failed(format!("cannot be read: {why}")))?;
        // The error of the parser may quote the value.
        let members: Result<Map<String, Value>, _> = serde_json::from_str(value.expose());
        let members = members.map_err(|_| failed("is no object".to_owned()))?;
        let value = match members.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => return Err(failed(format!("has no member {key}"))),
        };
        Ok(BuildSecret {
            name: name.clone(),
            value: Secret::new(value),
            as_file: *as_file,
        })
    }

    /// Runs the validation of the definition. Its output follows that of the build in the log.
    async fn validate(&self, begun: &Begun, ran: &Ran) -> Result<(), BuildFailure> {
        let built = &ran.spec;
        let Some(validation) = &begun.definition.validation else {
            return Ok(());
        };
        let output = built.output_path().to_string_lossy().into_owned();
        let words = validation.command.iter();
        let spec = BuildSpec {
            command: words.map(|word| word.replace(OUTPUT, &output)).collect(),
            environment: built
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), value.replace(OUTPUT, &output)))
                .chain([("FLEETWRIGHT_IMAGE".to_owned(), output.clone())])
                .collect(),
            folder: built.folder.join(VALIDATION),
            formats: Vec::new(),
            time_limit: Duration::from_secs(validation.time_limit_seconds.into()),
            ..built.clone()
        };
        let log = spec.log_path();
        let mut why = None;
        let result = match self.parts.commands.start(spec).await {
            Err(error) => Err(error),
            Ok(mut run) => tokio::select! {
                outcome = run.wait() => outcome.result,
                failure = self.cancelled(begun) => {
                    why = Some(failure);
                    run.cancel();
                    run.wait().await.result
                }
            },
        };
        append(&built.log_path(), &log);
        ran.entry.add_length_of(&built.log_path());
        if let Some(failure) = why {
            return Err(failure);
        }
        result
            .map(drop)
            .map_err(|error| BuildFailure::Failed(format!("validation: {}", with_causes(&error))))
    }

    async fn finish(
        &self,
        begun: &Begun,
        spec: &BuildSpec,
        outputs: &[OutputFile],
        log: Option<BuildLog>,
    ) -> Result<Finished, BuildFailure> {
        let failed = |error: String| BuildFailure::Failed(error);
        let artifacts = self.store_outputs(begun, outputs).await.map_err(failed)?;
        let reported = read_report(&spec.output_folder());
        let reported = reported.map_err(|error| failed(error.to_string()))?;
        let number = begun.number.to_string();
        let statement = statement(&BuildFacts {
            image: begun.image.as_str(),
            build: &number,
            definition_sha256: &begun.definition.content_hash(),
            command: &spec.command,
            environment: &spec.environment,
            secrets: &begun.definition.secret_names(),
            deployment: &self.settings.deployment,
            builder: &self.settings.name,
            builder_version: env!("CARGO_PKG_VERSION"),
            started: begun.record.started.unwrap_or_else(beginning),
            finished: self.parts.clock.now(),
            outputs,
            reported: reported.as_ref(),
        });
        let provenance = self.parts.key.sign(&statement);
        let files = outputs.iter().map(build_file).collect::<Result<_, _>>()?;
        Ok(Finished {
            left: BuildLeft {
                files,
                provenance: Some(sha256_of(provenance.as_bytes())),
                log,
                artifacts: Some(artifacts),
            },
            provenance,
        })
    }

    /// Stores the outputs. Returns the name of the store. A folder stays on this disk, and the
    /// other outputs with it.
    async fn store_outputs(&self, begun: &Begun, outputs: &[OutputFile]) -> Result<String, String> {
        if outputs.iter().any(|output| output.path.is_dir()) {
            let kept = self.disk.kept(&begun.image, begun.number);
            keep(&kept, outputs).map_err(|error| format!("{}: {error}", kept.display()))?;
            return Ok(self.disk.store_name());
        }
        for output in outputs {
            let name = output
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            let key = key(&begun.image, begun.number, &name)?;
            let stored = self.store(&key, &output.path, &output.checksum).await;
            stored.map_err(|error| format!("cannot store {name}: {}", with_causes(&error)))?;
        }
        Ok(self.parts.artifacts_name.clone())
    }

    async fn store(
        &self,
        key: &ArtifactKey,
        path: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let mut pause = FIRST_STORE_PAUSE;
        for _ in 1..STORE_ATTEMPTS {
            match self.parts.artifacts.put(key, path, checksum).await {
                Err(error) if error.is_transient() => {
                    tracing::warn!(%key, %error, "the artifact store is tried again: {error}");
                    let _ = timeout(pause, self.stop.cancelled()).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.parts.artifacts.put(key, path, checksum).await
    }

    /// Stores the log. Without it, the build counts nevertheless.
    async fn store_log(&self, begun: &Begun, spec: &BuildSpec) -> Option<BuildLog> {
        let path = spec.log_path();
        let checked = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || checksum_of(&path)).await
        };
        let checksum = checked.ok()?.ok()?;
        let key = key(&begun.image, begun.number, LOG_NAME).ok()?;
        match self.store(&key, &path, &checksum).await {
            Ok(()) => Some(BuildLog {
                key: key.to_string(),
                file: BuildFile {
                    size_bytes: checksum.size_bytes,
                    sha256: checksum.sha256,
                },
            }),
            Err(error) => {
                tracing::warn!(%key, %error, "the log of a build is not kept: {error}");
                None
            }
        }
    }

    pub(super) async fn remove_work(&self, begun: &Begun) {
        let folder = self.disk.work(&begun.image, begun.number);
        for folder in [folder.join(VALIDATION), folder.clone()] {
            self.parts.commands.end_leftovers(&folder).await;
        }
        let removed = tokio::task::spawn_blocking(move || permissions::remove(&folder)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "the folder of a build is not removed: {error}");
        }
    }
}

fn command(
    method: &BuildMethod,
    image: &ImageName,
    formats: &[String],
) -> (Vec<String>, BTreeMap<String, String>) {
    match method {
        BuildMethod::Command(command) => (command.clone(), BTreeMap::new()),
        BuildMethod::Elements(list) => {
            let build = ElementBuild {
                elements: &list.elements,
                release: list.release.as_deref(),
                elements_path: &list.elements_path,
                formats,
                image_name: image.as_str(),
            };
            let (mut command, environment) = element_command(&build);
            if let Some(program) = command.first_mut() {
                program.clone_from(&list.program);
            }
            (command, environment)
        }
    }
}

/// The key of a file of a build.
pub(super) fn key(
    image: &ImageName,
    build: BuildNumber,
    name: &str,
) -> Result<ArtifactKey, String> {
    let key = format!("{image}/{build}/{name}").parse();
    key.map_err(|error: cloud::image::BadArtifactKey| error.to_string())
}

/// The build of a file, by its key.
pub(super) fn build_of(key: &ArtifactKey) -> Option<(ImageName, BuildNumber)> {
    let (image, rest) = key.as_str().split_once('/')?;
    let (number, _) = rest.split_once('/')?;
    Some((image.parse().ok()?, number.parse().ok()?))
}

fn build_file(output: &OutputFile) -> Result<(ImageFormat, BuildFile), BuildFailure> {
    let format = output.format.parse();
    let format = format
        .map_err(|error: domain::image::BadFormat| BuildFailure::Failed(error.to_string()))?;
    let file = BuildFile {
        size_bytes: output.checksum.size_bytes,
        sha256: output.checksum.sha256.clone(),
    };
    Ok((format, file))
}

/// Moves outputs to their place on the same disk.
fn keep(folder: &Path, outputs: &[OutputFile]) -> std::io::Result<()> {
    permissions::make_private(folder)?;
    for output in outputs {
        let name: PathBuf = output.path.file_name().unwrap_or_default().into();
        std::fs::rename(&output.path, folder.join(name))?;
    }
    Ok(())
}

/// Appends a log to another. If that fails, the end is missing, and nothing else.
fn append(log: &Path, further: &Path) {
    let appended = || -> std::io::Result<()> {
        let mut from = std::fs::File::open(further)?;
        let mut to = std::fs::OpenOptions::new().append(true).open(log)?;
        std::io::copy(&mut from, &mut to).map(drop)
    };
    if let Err(error) = appended() {
        tracing::warn!(%error, "the log of a validation is not kept: {error}");
    }
}

/// An error with its causes, as people read it.
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn beginning() -> Timestamp {
    Timestamp::from_millis(0)
}
