//! A builder of a chaotic world: it dies, and comes back under another name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cloud::image::{ArtifactStore, Confinement, ProvenanceKey, TrustedKeys};
use domain::time::Clock;
use images::{Builder, BuilderParts, BuilderSettings, ImageTree, LiveBuilds, Targets};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::commands::FakeCommands;
use super::faults::{ChaosTree, Faults};
use super::store::MemoryStore;
use crate::world::{OneSecret, TestSession, World, keyring};

/// A folder and a store, in which builders run one after the other.
pub(super) struct Seat {
    pub(super) folder: PathBuf,
    pub(super) store: Arc<MemoryStore>,
    pub(super) n_runs: u32,
    pub(super) slots: usize,
    pub(super) builder: Option<ChaosBuilder>,
}

pub(super) struct ChaosBuilder {
    pub(super) tree: Arc<ChaosTree>,
    pub(super) session: TestSession,
    stop: CancellationToken,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Seat {
    pub(super) async fn start(
        &mut self,
        world: &World,
        faults: &Faults,
        longest_ms: i64,
        seat: usize,
    ) {
        self.n_runs += 1;
        let name = format!("b{seat}-{}", self.n_runs);
        faults.monitor.note(format!("start {name}"));
        let session = world.twin.session().await;
        let tree = ChaosTree::new(Arc::clone(&session.tree), faults.clone());
        let images = ImageTree::new(
            Arc::clone(&tree) as Arc<dyn backplane::tree::Tree>,
            TrustedKeys::new(&keyring()),
        );
        let stop = CancellationToken::new();
        let parts = BuilderParts {
            images: Arc::clone(&images),
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            targets: Arc::clone(&world.clouds) as Arc<dyn Targets>,
            artifacts: Arc::clone(&self.store) as Arc<dyn ArtifactStore>,
            artifacts_name: self.store.name.clone(),
            key: ProvenanceKey::new(&keyring()),
            commands: Arc::new(FakeCommands {
                chance: faults.chance.clone(),
                monitor: Arc::clone(&faults.monitor),
                longest_ms,
            }),
            secrets: Arc::new(OneSecret),
            live: LiveBuilds::default(),
        };
        let settings = BuilderSettings {
            name,
            host: "here".to_owned(),
            folder: self.folder.clone(),
            build_slots: self.slots,
            upload_slots: 2,
            labels: [].into(),
            max_log_bytes: 1024 * 1024,
            grace: Duration::from_millis(100),
            upload_limit: Duration::from_secs(600),
            address: String::new(),
            deployment: "https://fleet.example.com".to_owned(),
            secrets: BTreeMap::new(),
            confinement: Confinement::default(),
        };
        let builder = Builder::open(parts, settings, stop.clone()).await.unwrap();
        let follow = tokio::spawn(async move { images.follow().await });
        let run = tokio::spawn(run(builder, Arc::clone(&faults.monitor)));
        self.builder = Some(ChaosBuilder {
            tree,
            session,
            stop,
            tasks: vec![AbortOnDropHandle::new(follow), AbortOnDropHandle::new(run)],
        });
    }
}

/// As a process does that is started again when it fails.
async fn run(builder: Arc<Builder>, monitor: Arc<super::monitor::Monitor>) {
    while let Err(error) = builder.run().await {
        monitor.note(format!("a builder starts again: {error}"));
        let pause = Duration::from_secs(1);
        // Time: between starts, mostly in stopped time.
        let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
    }
}

impl ChaosBuilder {
    /// Ends it in an orderly way, unless it dies meanwhile. Then calls that never return hold its
    /// session, so that is ended for it.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(run) = self.tasks.pop() {
            let limit = Duration::from_secs(120);
            let _ = tokio::time::timeout(limit, run).await;
        }
        if self.tree.is_dead() {
            self.session.vanish();
        }
    }

    /// It is dead at once; its session ends later.
    pub(super) async fn kill(self) -> TestSession {
        self.tree.die();
        for task in self.tasks {
            task.abort();
            let _ = task.await;
        }
        self.session
    }
}
