//! Deletes expired artifacts, and files that belong to no artifact.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use domain::artifact::{Artifact, Content};
use domain::time::Timestamp;
use engine::Engine;
use engine::artifacts::{
    ArtifactFolder, KnownFiles, N_SHARDS, RunFolder, file_name, list_runs, list_tasks_after,
    remove_file,
};
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

const BATCH: u32 = 200;
const MAX_BATCHES: usize = 50;
const MAX_SHELVES: u32 = 16;
const MAX_TASKS: usize = 1_000;
const PAGE: u32 = 1_000;
const MAX_PAGES: u32 = 100;

/// Limits of one activation; the next one continues.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactLimits {
    /// Of expired artifacts.
    pub expired: Batches,
    /// Maximum number of shelves to search for lost files, and of tasks' folders on them.
    pub shelves: u32,
    pub tasks: usize,
    /// Artifacts of one run that are read at a time.
    pub page: u32,
    /// A run with this many pages of artifacts is not searched.
    pub pages: u32,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self {
            expired: Batches::new(BATCH, MAX_BATCHES),
            shelves: MAX_SHELVES,
            tasks: MAX_TASKS,
            page: PAGE,
            pages: MAX_PAGES,
        }
    }
}

/// The position of the search for lost files.
pub struct ArtifactCleanup {
    engine: Arc<Engine>,
    limits: ArtifactLimits,
    shelf: u32,
    /// The last folder on the shelf that was searched.
    after: String,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot clean up the folder of artifacts: {0}")]
    Folder(#[from] std::io::Error),
}

#[async_trait]
impl BackgroundTask for ArtifactCleanup {
    fn name(&self) -> String {
        "artifacts".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.engine.is_settling() {
            return Ok(Value::Null);
        }
        let now = self.engine.clock.now();
        let n_expired = self.expire(now).await?;
        let n_lost = self.sweep(now).await?;
        Ok(summary(&[
            ("artifacts expired", n_expired),
            ("lost files removed", n_lost),
        ]))
    }
}

impl ArtifactCleanup {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self::with_limits(engine, ArtifactLimits::default())
    }

    pub fn with_limits(engine: Arc<Engine>, limits: ArtifactLimits) -> Self {
        Self {
            engine,
            limits,
            shelf: 0,
            after: String::new(),
        }
    }

    /// Rows first: a file without a row is found again, but a row without a file would be an error.
    async fn expire(&self, now: Timestamp) -> Result<u64, Problem> {
        let batches = self.limits.expired;
        let expired = batches.repeat(|| self.expire_some(now, batches.size));
        expired.await
    }

    async fn expire_some(&self, now: Timestamp, limit: u32) -> Result<u64, Problem> {
        let expired = self.engine.store.write("artifact_expire", move |tx| {
            store::artifacts::delete_expired(tx, now, limit)
        });
        let expired: Vec<Artifact> = expired.await?;
        let files = self.files_of(&expired);
        blocking(move || files.iter().try_for_each(|file| remove_file(file))).await?;
        Ok(expired.len() as u64)
    }

    fn files_of(&self, artifacts: &[Artifact]) -> Vec<PathBuf> {
        let Some(folder) = &self.engine.artifacts.folder else {
            return Vec::new();
        };
        let file = |artifact: &Artifact| match &artifact.content {
            Content::File { .. } => {
                Some(folder.artifact(&artifact.task_id, artifact.run_id, &artifact.name))
            }
            Content::Log => Some(folder.log(&artifact.task_id, artifact.run_id)),
            Content::Reference { .. } | Content::Link { .. } | Content::Error { .. } => None,
        };
        artifacts.iter().filter_map(file).collect()
    }

    async fn sweep(&mut self, now: Timestamp) -> Result<u64, Problem> {
        let engine = Arc::clone(&self.engine);
        let Some(folder) = &engine.artifacts.folder else {
            return Ok(0);
        };
        let mut n_removed = 0;
        let mut n_left = self.limits.tasks;
        for _ in 0..self.limits.shelves {
            let looked = self.shelf_on(folder, n_left, now).await?;
            n_removed += looked.n_removed;
            n_left -= looked.n_tasks;
            if n_left == 0 {
                break;
            }
            self.shelf = (self.shelf + 1) % N_SHARDS;
            self.after.clear();
        }
        Ok(n_removed)
    }

    /// Searches a part of a shelf, and stores the position.
    async fn shelf_on(
        &mut self,
        folder: &ArtifactFolder,
        limit: usize,
        now: Timestamp,
    ) -> Result<Looked, Problem> {
        let shelf = folder.shard_number(self.shelf);
        let (place, after) = (shelf.clone(), self.after.clone());
        let tasks = blocking(move || list_tasks_after(&place, &after, limit)).await?;
        let mut n_removed = 0;
        for task in &tasks {
            let (place, name) = (shelf.clone(), task.clone());
            for run in blocking(move || list_runs(&place, &name)).await? {
                if let Some(wanted) = self.wanted(&run).await? {
                    n_removed += blocking(move || run.remove_orphans(&wanted, now)).await?;
                }
            }
            self.after.clone_from(task);
        }
        Ok(Looked {
            n_tasks: tasks.len(),
            n_removed,
        })
    }

    async fn wanted(&self, run: &RunFolder) -> Result<Option<KnownFiles>, StoreError> {
        let (task_id, run_id) = (run.task_id.clone(), run.run_id);
        let ArtifactLimits {
            page: size, pages, ..
        } = self.limits;
        let read = self.engine.store.read("artifact_list", move |tx| {
            let mut wanted = KnownFiles::default();
            let mut after = None;
            for _ in 0..pages {
                let page = store::artifacts::list(tx, &task_id, run_id, after.as_ref(), size)?;
                for artifact in &page {
                    match artifact.content {
                        Content::File { .. } => {
                            wanted.files.insert(file_name(&artifact.name));
                        }
                        Content::Log => wanted.log = true,
                        Content::Reference { .. }
                        | Content::Link { .. }
                        | Content::Error { .. } => {}
                    }
                }
                if page.len() < size as usize {
                    return Ok::<_, StoreError>(Some(wanted));
                }
                after = page.into_iter().last().map(|last| last.name);
            }
            Ok(None)
        });
        read.await
    }
}

struct Looked {
    n_tasks: usize,
    n_removed: u64,
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(std::io::Error::other)??)
}
