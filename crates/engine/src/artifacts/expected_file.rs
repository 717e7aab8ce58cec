//! The file of an artifact, from the moment that it is expected until it is there.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use domain::artifact::{Artifact, ArtifactName, Content, Uploaded, author};
use domain::id::TaskId;
use domain::time::Timestamp;

use super::{ArtifactError, Upload};
use crate::Engine;

/// An artifact of a run, which has no file yet, or may get another.
pub struct ExpectedFile {
    artifact: Artifact,
    path: PathBuf,
}

/// An artifact that has a file, or may get one.
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
    /// Refuses a file that comes too late or too early for its run.
    pub async fn find(
        engine: &Engine,
        of: (TaskId, u32, ArtifactName),
        now: Timestamp,
    ) -> Result<Self, ArtifactError> {
        let artifact = find_file(engine, of, now).await?;
        if !matches!(artifact.content, Content::File { .. }) {
            return Err(ArtifactError::NoFile);
        }
        let task_id = artifact.task_id.clone();
        let read = engine
            .store
            .read("task_runs", move |tx| store::tasks::get_runs(tx, &task_id));
        let runs = read.await?.ok_or(ArtifactError::NoSuchTask)?;
        let run = runs.run(artifact.run_id).ok_or(ArtifactError::NoFile)?;
        author(run, now)?;
        let folder = engine.artifacts.required_folder()?;
        let path = folder.artifact(&artifact.task_id, artifact.run_id, &artifact.name);
        Ok(Self { artifact, path })
    }

    pub async fn begin(&self, engine: &Engine) -> io::Result<Upload> {
        Upload::begin(self.path.clone(), &engine.random.slugid()).await
    }

    /// Puts a file that has come to its end in its place, and makes it known.
    ///
    /// The run may end while the file is on its way: then what it left behind is complete, and stays.
    /// So the transaction looks again, and holds the run meanwhile.
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
        let now = engine.clock.now();
        let written = engine.change("artifact_uploaded", now, move |change| {
            let tx = &mut *change.tx;
            store::tasks::touch(tx, &artifact.task_id)?;
            let runs =
                store::tasks::get_runs(tx, &artifact.task_id)?.ok_or(ArtifactError::NoFile)?;
            let run = runs.run(artifact.run_id).ok_or(ArtifactError::NoFile)?;
            author(run, now)?;
            let known =
                store::artifacts::get(tx, &artifact.task_id, artifact.run_id, &artifact.name)?;
            // Its end may have been moved meanwhile, or it may have become something else.
            let known = known.ok_or(ArtifactError::Expired)?;
            if !matches!(known.content, Content::File { .. }) {
                return Err(ArtifactError::NoFile);
            }
            artifact.expires = known.expires;
            store::artifacts::update(tx, &artifact)?;
            Ok(complete.put_in_place()?)
        });
        written.await
    }
}
