//! The upload of an artifact's file, from its request to its place in the folder.

use std::path::PathBuf;
use std::sync::Arc;

use domain::artifact::{Artifact, ArtifactName, Content, Uploaded, author};
use domain::id::TaskId;
use domain::time::Timestamp;

use super::upload::UploadRoom;
use super::{ArtifactError, Upload};
use crate::Engine;

/// An artifact of a run whose file may be uploaded, for the first time or again.
pub struct ExpectedFile {
    artifact: Artifact,
    path: PathBuf,
    /// The bytes of the other files of the task.
    others: u64,
}

/// Reads an artifact, with or without a file.
pub async fn find_file(
    engine: &Engine,
    (task_id, run_id, name): (TaskId, u32, ArtifactName),
    now: Timestamp,
) -> Result<Artifact, ArtifactError> {
    let read = engine.store.read("artifact_get", move |tx| {
        store::artifacts::get(tx, &task_id, run_id, &name)
    });
    let artifact = read.await?.ok_or(ArtifactError::NoFile)?;
    if artifact.expires < now {
        return Err(ArtifactError::Expired);
    }
    Ok(artifact)
}

impl ExpectedFile {
    /// Refuses a file that comes before its run is claimed or after it has ended.
    pub async fn find(
        engine: &Engine,
        of: (TaskId, u32, ArtifactName),
        now: Timestamp,
    ) -> Result<Self, ArtifactError> {
        let artifact = find_file(engine, of, now).await?;
        if !matches!(artifact.content, Content::File { .. }) {
            return Err(ArtifactError::NoFile);
        }
        let of = artifact.clone();
        let read = engine.store.read("artifact_expected", move |tx| {
            let runs = store::tasks::get_runs(tx, &of.task_id)?;
            let runs = runs.ok_or(ArtifactError::NoSuchTask)?;
            Ok::<_, ArtifactError>((runs, store::artifacts::bytes_of_others(tx, &of)?))
        });
        let (runs, others) = read.await?;
        let run = runs.run(artifact.run_id).ok_or(ArtifactError::NoFile)?;
        author(run, now)?;
        let folder = engine.artifacts.required_folder()?;
        let path = folder.artifact(&artifact.task_id, artifact.run_id, &artifact.name);
        Ok(Self {
            artifact,
            path,
            others,
        })
    }

    /// `announced` is the size that the client announced, if it did.
    pub async fn begin(
        &self,
        engine: &Engine,
        announced: Option<u64>,
    ) -> Result<Upload, ArtifactError> {
        let room = UploadRoom {
            limits: engine.artifacts.limits,
            others: self.others,
        };
        let token = engine.random.slugid();
        Upload::begin(self.path.clone(), &token, room, announced.unwrap_or(0)).await
    }

    /// Moves a complete file to its place, and updates its artifact.
    ///
    /// The run may end during the upload. Then its existing artifacts are final. So the
    /// transaction checks the run again, and locks it.
    pub async fn complete(
        self,
        engine: &Arc<Engine>,
        upload: Upload,
        encoding: Option<String>,
    ) -> Result<(), ArtifactError> {
        let mut complete = upload.finish().await?;
        let bytes = complete.bytes();
        let mut artifact = self.artifact;
        artifact.content = Content::File {
            declared_bytes: None,
            uploaded: Some(Uploaded { bytes, encoding }),
        };
        let (now, limits) = (engine.clock.now(), engine.artifacts.limits);
        let written = engine.change("artifact_uploaded", now, move |change| {
            let tx = &mut *change.tx;
            store::tasks::touch(tx, &artifact.task_id)?;
            let runs =
                store::tasks::get_runs(tx, &artifact.task_id)?.ok_or(ArtifactError::NoFile)?;
            let run = runs.run(artifact.run_id).ok_or(ArtifactError::NoFile)?;
            author(run, now)?;
            let known =
                store::artifacts::get(tx, &artifact.task_id, artifact.run_id, &artifact.name)?;
            // Its expiration may have changed meanwhile, or its kind.
            let known = known.ok_or(ArtifactError::Expired)?;
            if !matches!(known.content, Content::File { .. }) {
                return Err(ArtifactError::NoFile);
            }
            // Other files may have been uploaded meanwhile.
            let others = store::artifacts::bytes_of_others(tx, &artifact)?;
            limits.check_task(others, bytes)?;
            artifact.expires = known.expires;
            store::artifacts::update(tx, &artifact)?;
            Ok(complete.put_in_place()?)
        });
        written.await
    }
}
