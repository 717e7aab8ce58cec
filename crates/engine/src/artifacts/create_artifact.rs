//! Creates an artifact, before its file is uploaded if it has one.

use std::sync::Arc;

use domain::artifact::{Artifact, ArtifactName, ArtifactRefusal, Content, author};
use domain::event::{ArtifactEvent, EventBody};
use domain::task::Task;
use domain::time::Timestamp;

use super::ArtifactError;
use crate::Engine;
use crate::change::Change;

/// Creates an artifact of a run for its worker. A repeated request changes nothing.
pub async fn create_artifact(
    engine: &Arc<Engine>,
    asked: Artifact,
) -> Result<Artifact, ArtifactError> {
    // The request may have begun much earlier.
    let arrived = engine.clock.now();
    let written = engine.change("artifact_create", asked.created, move |change| {
        let task = store::tasks::get(change.tx, &asked.task_id)?;
        let task = task.ok_or_else(|| refused("Task not found"))?;
        check_run(&task, &asked, arrived)?;
        write(change, task, &asked)
    });
    let artifact = written.await?;
    if artifact.name.as_str() == ArtifactName::LIVE_LOG {
        let run = (artifact.task_id.clone(), artifact.run_id);
        engine.artifacts.log_wakeups.wake(&run);
    }
    Ok(artifact)
}

fn check_run(task: &Task, asked: &Artifact, now: Timestamp) -> Result<(), ArtifactError> {
    let run = task.run(asked.run_id);
    let run = run.ok_or_else(|| refused("Run not found"))?;
    let author = author(run, now);
    if author == Err(ArtifactRefusal::NeverClaimed) {
        let text = "Run was not claimed by a worker and so no artifacts can exist";
        return Err(refused(text));
    }
    let limit = task.definition.expires;
    if asked.expires > limit {
        return Err(ArtifactError::Refused(format!(
            "Artifact expires ({}) after the task expiration {limit} (task.expires < expires) - \
             this is not allowed, artifacts may not expire after the task they belong to expires",
            asked.expires
        )));
    }
    author.map(drop).map_err(Into::into)
}

/// Stores and announces the artifact, unless it exists.
fn write(
    change: &mut Change<'_, '_>,
    task: Task,
    asked: &Artifact,
) -> Result<Artifact, ArtifactError> {
    let known = store::artifacts::get(change.tx, &asked.task_id, asked.run_id, &asked.name)?;
    let artifact = match known.clone() {
        None => asked.clone(),
        Some(known) => known.merge_request(asked.clone()).map_err(|other| {
            let text = "Artifact already exists with different properties, and none of the allowed \
                        exceptions apply";
            ArtifactError::Conflict(format!("{text}: {other}"))
        })?,
    };
    let is_news = known.as_ref() != Some(&artifact);
    if known.is_none() {
        if !store::artifacts::insert(change.tx, &artifact)? {
            return Err(change.tx.lost_race().into());
        }
    } else if is_news {
        store::artifacts::update(change.tx, &artifact)?;
    }
    // An upload has no file yet, and clients know no message about uploads.
    if is_news && !matches!(artifact.content, Content::File { .. }) {
        let news = ArtifactEvent {
            storage_type: artifact.content.storage_type().to_owned(),
            name: artifact.name.to_string(),
            expires: artifact.expires,
            content_type: artifact.content_type.clone(),
        };
        let event = EventBody::Artifact {
            artifact: Box::new(news),
            run_id: artifact.run_id,
            task: Box::new(task),
        };
        change.announce([event])?;
    }
    Ok(artifact)
}

fn refused(text: &str) -> ArtifactError {
    ArtifactError::Refused(text.to_owned())
}
