//! Builders of a world, each with its own folder and session.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backplane::tree::Tree;
use cloud::image::{Confinement, FolderStore, ProvenanceKey, SupervisorProgram, TrustedKeys};
use domain::time::Clock;
use images::{
    Builder, BuilderError, BuilderParts, BuilderSettings, ImageTree, LiveBuilds, LogPage, LogQuery,
    SecretFile, Targets, folder_store_name, read_build_log,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::secrets::OneSecret;
use super::{TestSession, WAIT_LIMIT, World, image, keyring, until, within};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// All builders reach it.
    Shared,
    /// Only this builder reaches it.
    Own,
}

#[derive(Clone)]
pub(crate) struct BuilderPlan {
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) build_slots: usize,
    pub(crate) store: Store,
    pub(crate) secrets: BTreeMap<String, SecretFile>,
    /// `None`: those of the world.
    pub(crate) targets: Option<Arc<dyn Targets>>,
    pub(crate) upload_limit: Duration,
    /// Stands before its session.
    pub(crate) wrap: Option<Wrap>,
}

pub(crate) type Wrap = Arc<dyn Fn(&Arc<dyn Tree>) -> Arc<dyn Tree> + Send + Sync>;

pub(crate) struct TestBuilder {
    pub(crate) plan: BuilderPlan,
    folder: PathBuf,
    pub(crate) session: TestSession,
    pub(crate) live: LiveBuilds,
    images: Arc<ImageTree>,
    artifacts: Arc<FolderStore>,
    stop: CancellationToken,
    follow: AbortOnDropHandle<()>,
    run: AbortOnDropHandle<Result<(), BuilderError>>,
}

impl BuilderPlan {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: Vec::new(),
            build_slots: 2,
            store: Store::Shared,
            secrets: BTreeMap::new(),
            targets: None,
            upload_limit: Duration::from_secs(3_600),
            wrap: None,
        }
    }

    pub(crate) fn with_store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn with_labels(mut self, labels: &[&str]) -> Self {
        self.labels = labels.iter().map(|it| (*it).to_owned()).collect();
        self
    }
}

impl TestBuilder {
    pub(super) async fn start(world: &World, plan: BuilderPlan) -> Self {
        let folder = world.path(&plan.name);
        let session = world.twin.session().await;
        let tree = match &plan.wrap {
            Some(wrap) => wrap(&session.tree),
            None => Arc::clone(&session.tree),
        };
        let images = ImageTree::new(tree, TrustedKeys::new(&keyring()));
        let follower = Arc::clone(&images);
        let follow = AbortOnDropHandle::new(tokio::spawn(async move { follower.follow().await }));
        let store = match plan.store {
            Store::Shared => world.path("store"),
            Store::Own => folder.join("artifacts"),
        };
        let artifacts = Arc::new(FolderStore::new(store.clone()));
        let (live, stop) = (LiveBuilds::default(), CancellationToken::new());
        let own = std::env::current_exe().unwrap();
        let supervisor = [
            own.to_str().unwrap(),
            "this_program_can_be_the_supervisor_of_a_build",
            "--exact",
            "--nocapture",
        ];
        let targets = Arc::clone(&world.clouds) as Arc<dyn Targets>;
        let parts = BuilderParts {
            images: Arc::clone(&images),
            clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
            targets: plan.targets.clone().unwrap_or(targets),
            artifacts: Arc::clone(&artifacts) as Arc<dyn cloud::image::ArtifactStore>,
            artifacts_name: folder_store_name(&store).unwrap(),
            key: ProvenanceKey::new(&keyring()),
            commands: Arc::new(SupervisorProgram(supervisor.map(str::to_owned).into())),
            secrets: Arc::new(OneSecret),
            live: live.clone(),
        };
        let settings = BuilderSettings {
            name: plan.name.clone(),
            host: "here".to_owned(),
            folder: folder.clone(),
            build_slots: plan.build_slots,
            upload_slots: 4,
            labels: plan.labels.iter().cloned().collect(),
            max_log_bytes: 1024 * 1024,
            grace: Duration::from_millis(100),
            upload_limit: plan.upload_limit,
            address: String::new(),
            deployment: "https://fleet.example.com".to_owned(),
            secrets: plan.secrets.clone(),
            confinement: Confinement::default(),
        };
        let builder = Builder::open(parts, settings, stop.clone()).await.unwrap();
        let run = AbortOnDropHandle::new(tokio::spawn(async move { builder.run().await }));
        Self {
            plan,
            folder,
            session,
            live,
            images,
            artifacts,
            stop,
            follow,
            run,
        }
    }

    /// Ends it in an orderly way.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        within("the builder to stop", self.run)
            .await
            .unwrap()
            .unwrap();
    }

    /// Ends it at once, as a crash does, and its session with it. Returns its plan for another run.
    pub(crate) async fn kill(self) -> BuilderPlan {
        self.run.abort();
        self.follow.abort();
        let _ = self.run.await;
        let _ = self.follow.await;
        self.session.expire().await;
        // Jobs that were aborted hold the folder for a moment.
        let lock = std::fs::File::open(self.folder.join("builder-lock")).unwrap();
        until("the folder to be free", || lock.try_lock().is_ok()).await;
        self.plan
    }

    /// The log of a build that ends.
    pub(crate) async fn whole_log(&self, name: &str, build: u64) -> String {
        let (mut bytes, mut from) = (Vec::new(), 0);
        loop {
            let page = self.log(name, build, from).await;
            bytes.extend(page.bytes);
            from = page.next;
            if page.is_last {
                return String::from_utf8(bytes).unwrap();
            }
        }
    }

    pub(crate) async fn log(&self, name: &str, build: u64, from: u64) -> LogPage {
        let number = domain::image::BuildNumber(build);
        // Its copy may be behind that of the world.
        let has_build =
            |it: Option<&images::ImageNode>| it.is_some_and(|it| it.builds.contains_key(&number));
        let image_name = image(name);
        let found = self.images.wait_for(&image_name, WAIT_LIMIT, has_build);
        assert!(found.await, "{name} {build}");
        let query = LogQuery {
            image: image(name),
            build: number,
            from,
            at_most: 1024 * 1024,
            wait: Duration::from_secs(30),
        };
        let page = read_build_log(&self.images, &self.live, Some(&*self.artifacts), &query);
        page.await.unwrap()
    }
}
