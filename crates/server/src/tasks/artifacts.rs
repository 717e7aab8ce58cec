//! Ends artifacts whose time has come, and finds files that belong to nothing.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use domain::artifact::{Artifact, Content};
use domain::time::Timestamp;
use engine::Engine;
use engine::artifacts::{
    Folder, N_SHELVES, RunFolder, Wanted, file_name, remove, runs_in, tasks_after,
};
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{Task, summary};

const BATCH: u32 = 200;
const MAX_BATCHES: usize = 50;
const MAX_SHELVES: u32 = 16;
const MAX_TASKS: usize = 1_000;
const PAGE: u32 = 1_000;
const MAX_PAGES: u32 = 100;

/// How much one activation does; the rest waits for the next.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactLimits {
    /// Of artifacts whose time has come.
    pub expired: Batches,
    /// Shelves that are searched for lost files, and folders of tasks on them.
    pub shelves: u32,
    pub tasks: usize,
    /// Artifacts of one run that are read at a time.
    pub page: u32,
    /// A run that fills this many pages is not searched.
    pub pages: u32,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self {
            expired: Batches {
                size: BATCH,
                most: MAX_BATCHES,
            },
            shelves: MAX_SHELVES,
            tasks: MAX_TASKS,
            page: PAGE,
            pages: MAX_PAGES,
        }
    }
}

/// Where the search for lost files goes on.
pub struct Artifacts {
    engine: Arc<Engine>,
    limits: ArtifactLimits,
    shelf: u32,
    /// The last folder on it that was looked into.
    after: String,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the folder of artifacts cannot be tidied: {0}")]
    Folder(#[from] std::io::Error),
}

#[async_trait]
impl Task for Artifacts {
    const NAME: &'static str = "artifacts";

    async fn activate(&mut self) -> Result<Value, String> {
        self.tidy().await.map_err(|problem| problem.to_string())
    }
}

impl Artifacts {
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

    async fn tidy(&mut self) -> Result<Value, Problem> {
        let now = self.engine.clock.now();
        let n_expired = self.expire(now).await?;
        let n_lost = self.sweep(now).await?;
        Ok(summary(&[
            ("artifacts expired", n_expired),
            ("lost files removed", n_lost),
        ]))
    }

    /// Rows first: a file without a row is found again, a row without a file would be a promise.
    async fn expire(&self, now: Timestamp) -> Result<u64, Problem> {
        let batches = self.limits.expired;
        let expired = batches.repeat(|| self.expire_some(now, batches.size));
        expired.await
    }

    async fn expire_some(&self, now: Timestamp, limit: u32) -> Result<u64, Problem> {
        let gone = self.engine.store.write("artifact_expire", move |tx| {
            store::artifacts::delete_expired(tx, now, limit)
        });
        let gone: Vec<Artifact> = gone.await?;
        let files = self.files_of(&gone);
        blocking(move || files.iter().try_for_each(|file| remove(file))).await?;
        Ok(gone.len() as u64)
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
            self.shelf = (self.shelf + 1) % N_SHELVES;
            self.after.clear();
        }
        Ok(n_removed)
    }

    /// Looks through a part of a shelf, and remembers how far it came.
    async fn shelf_on(
        &mut self,
        folder: &Folder,
        limit: usize,
        now: Timestamp,
    ) -> Result<Looked, Problem> {
        let shelf = folder.shelf_number(self.shelf);
        let (place, after) = (shelf.clone(), self.after.clone());
        let tasks = blocking(move || tasks_after(&place, &after, limit)).await?;
        let mut n_removed = 0;
        for task in &tasks {
            let (place, name) = (shelf.clone(), task.clone());
            for run in blocking(move || runs_in(&place, &name)).await? {
                if let Some(wanted) = self.wanted(&run).await? {
                    n_removed += blocking(move || run.tidy(&wanted, now)).await?;
                }
            }
            self.after.clone_from(task);
        }
        Ok(Looked {
            n_tasks: tasks.len(),
            n_removed,
        })
    }

    async fn wanted(&self, run: &RunFolder) -> Result<Option<Wanted>, StoreError> {
        let (task_id, run_id) = (run.task_id.clone(), run.run_id);
        let ArtifactLimits {
            page: size, pages, ..
        } = self.limits;
        let read = self.engine.store.read("artifact_list", move |tx| {
            let mut wanted = Wanted::default();
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
