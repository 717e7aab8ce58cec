//! A small world: a tree, builders in this process, a fake cloud, and commands that are shell
//! scripts.

mod builder;
mod clock;
mod definition;
mod interrupted;
#[path = "../../../backplane/tests/it/tree/proxy.rs"]
mod proxy;
mod secrets;
mod twin;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use access::Secret;
use access::seal::{Key, Keyring};
use backplane::tree::{Lifetime, Tree, TreeError, TreePath};
use cloud::image::TrustedKeys;
use cloud::{FakeCloud, FakeSettings, Provider, ProviderContext};
use contract::Schemas;
use domain::id::{ImageName, ProviderId};
use domain::image::{BuildFailureCause, BuildNumber, BuildRecord, BuildState, UploadState};
use images::{Asker, ImageNode, ImageTree, Place, StoredDefinition, Targets};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::builder::{BuilderPlan, Store, TestBuilder};
pub(crate) use self::clock::TestClock;
pub(crate) use self::definition::{Definition, debian};
pub(crate) use self::interrupted::InterruptedTree;
pub(crate) use self::secrets::{OneSecret, SECRET};
pub(crate) use self::twin::{TestSession, Twin};

/// Nothing that tests wait for takes this long.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) twin: Twin,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clouds: Arc<Clouds>,
    /// The copy of a server.
    pub(crate) images: Arc<ImageTree>,
    pub(crate) session: TestSession,
    _follow: AbortOnDropHandle<()>,
    definitions: Mutex<BTreeMap<ImageName, StoredDefinition>>,
}

/// The providers of all builders of a world.
#[derive(Default)]
pub(crate) struct Clouds(RwLock<BTreeMap<ProviderId, Arc<FakeCloud>>>);

impl Clouds {
    fn all(&self) -> RwLockWriteGuard<'_, BTreeMap<ProviderId, Arc<FakeCloud>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Targets for Clouds {
    fn ids(&self) -> BTreeSet<ProviderId> {
        let clouds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clouds.keys().cloned().collect()
    }

    fn get(&self, id: &ProviderId) -> Option<Arc<dyn Provider>> {
        let clouds = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clouds.get(id).map(|it| Arc::clone(it) as Arc<dyn Provider>)
    }
}

pub(crate) fn keyring() -> Arc<Keyring> {
    let secret = Secret::new("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let id = "test".to_owned();
    Arc::new(Keyring::new(vec![Key { id, secret }]).unwrap())
}

pub(crate) fn asker(reason: &str) -> Asker {
    Asker {
        by: "alice".to_owned(),
        reason: reason.to_owned(),
    }
}

pub(crate) fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

/// Waits for a future within the time limit of tests.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(WAIT_LIMIT, future).await;
    result.unwrap_or_else(|_| panic!("waited for {what}"))
}

/// Waits for something that no watch tells, such as a file.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // Time: between looks.
    let mut rounds = tokio::time::interval(Duration::from_millis(5));
    within(what, async {
        while !is_so() {
            rounds.tick().await;
        }
    })
    .await;
}

fn is_as_written(image: Option<&ImageNode>, written: Option<&StoredDefinition>) -> bool {
    let known = image.and_then(|it| it.definition.as_ref());
    let is_wrong = image.is_some_and(|it| it.definition_error.is_some());
    match (known, written) {
        (Some(known), Some(written)) => {
            known.version == written.version && *known.definition.to_document() == written.document
        }
        (None, Some(_)) => is_wrong,
        (Some(_), None) => false,
        (None, None) => !is_wrong,
    }
}

impl World {
    /// A world with the provider `fake`, without builders.
    pub(crate) async fn open(twin: Twin) -> Self {
        let clock = Arc::clone(twin.clock());
        let session = twin.session().await;
        let images = ImageTree::new(Arc::clone(&session.tree), TrustedKeys::new(&keyring()));
        let follower = Arc::clone(&images);
        let follow = AbortOnDropHandle::new(tokio::spawn(async move { follower.follow().await }));
        let world = Self {
            twin,
            clock,
            folder: tempfile::tempdir().unwrap(),
            clouds: Arc::default(),
            images,
            session,
            _follow: follow,
            definitions: Mutex::default(),
        };
        world.add_provider("fake").await;
        world
    }

    pub(crate) fn tree(&self) -> &Arc<dyn Tree> {
        &self.session.tree
    }

    /// The tree for somebody who has no keys.
    pub(crate) fn raw_tree(&self) -> &Arc<dyn Tree> {
        &self.session.raw
    }

    /// Writes which builds are in use, as a server does.
    pub(crate) async fn rewrite_standing(&self, name: &str) {
        let name = image(name);
        let standing = self.images.image(&name, |it| it.standing.clone()).unwrap();
        let written = self.images.mirror_standing(&name, &standing);
        written.await.unwrap();
    }

    /// A folder that scripts use.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn add_provider(&self, id: &str) -> Arc<FakeCloud> {
        let cloud = Arc::new(FakeCloud::new(
            ProviderContext {
                id: id.parse().unwrap(),
                schemas: Schemas::new(),
                keyring: keyring(),
                root_url: "https://fleet.example.com".to_owned(),
                data: None,
                clock: Arc::clone(&self.clock) as Arc<dyn domain::time::Clock>,
            },
            FakeSettings::default(),
        ));
        self.clouds
            .all()
            .insert(id.parse().unwrap(), Arc::clone(&cloud));
        self.mirror_providers().await;
        cloud
    }

    pub(crate) async fn remove_provider(&self, id: &str) {
        let id: ProviderId = id.parse().unwrap();
        self.clouds.all().remove(&id);
        self.mirror_providers().await;
    }

    pub(crate) fn cloud(&self, id: &str) -> Arc<FakeCloud> {
        let clouds = self.clouds.0.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&clouds[&id.parse::<ProviderId>().unwrap()])
    }

    async fn mirror_providers(&self) {
        let ids = self.clouds.ids();
        within("the providers to be written", async {
            while let Err(error) = self.images.mirror_providers(&ids).await {
                assert!(error.is_temporary(), "{error}");
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Writes a definition into the tree, as a server does.
    pub(crate) async fn define(&self, definition: &Definition) {
        let name = definition.name();
        let stored = {
            let mut all = self
                .definitions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let version = all.get(&name).map_or(1, |it| it.version + 1);
            let stored = StoredDefinition {
                version,
                document: definition.0.clone(),
            };
            all.insert(name, stored);
            all.clone()
        };
        self.mirror(&stored).await;
    }

    /// On a busy machine, a call may need another attempt. A server repeats all of it until the
    /// tree is right; here it is done once, and the copy knows of it before the next change.
    async fn mirror(&self, stored: &BTreeMap<ImageName, StoredDefinition>) {
        within("the definitions to be written", async {
            while let Err(error) = self.mirror_once(stored).await {
                assert!(error.is_temporary(), "{error}");
                tokio::task::yield_now().await;
            }
        })
        .await;
        for name in self.images.names().iter().chain(stored.keys()) {
            let is_known = |image: Option<&ImageNode>| is_as_written(image, stored.get(name));
            let found = self.images.wait_for(name, WAIT_LIMIT, is_known).await;
            assert!(found, "waited for the copy of the definition of {name}");
        }
    }

    async fn mirror_once(
        &self,
        stored: &BTreeMap<ImageName, StoredDefinition>,
    ) -> Result<(), TreeError> {
        for image in self.images.mirror(stored).await?.unknown {
            self.images.remove(&image).await?;
        }
        Ok(())
    }

    pub(crate) async fn undefine(&self, name: &str) {
        let stored = {
            let mut all = self
                .definitions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.remove(&image(name));
            all.clone()
        };
        self.mirror(&stored).await;
    }

    /// Time goes on, and all builders look at all images.
    pub(crate) async fn advance(&self, milliseconds: i64) {
        self.clock.advance(milliseconds);
        let path = Place::Providers.path().unwrap();
        within("the builders to be told", async {
            loop {
                let told = async {
                    let node = self.tree().get(&path).await?;
                    self.tree().set(&path, &node.data, None).await
                };
                match told.await {
                    Ok(_) => return,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn builder(&self, name: &str) -> TestBuilder {
        self.builder_of(BuilderPlan::new(name)).await
    }

    pub(crate) async fn builder_of(&self, plan: BuilderPlan) -> TestBuilder {
        TestBuilder::start(self, plan).await
    }

    /// Waits until the image is like this.
    pub(crate) async fn until(&self, name: &str, what: &str, is_so: impl Fn(&ImageNode) -> bool) {
        let name = image(name);
        let is_expected = |image: Option<&ImageNode>| image.is_some_and(&is_so);
        let found = self.images.wait_for(&name, WAIT_LIMIT, is_expected).await;
        if !found {
            let status = self.images.status(&name, self.clock.now_ms());
            panic!("waited for {what}: {status:#?}");
        }
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let name = image(name);
        let is_gone = |image: Option<&ImageNode>| image.is_none();
        let found = self.images.wait_for(&name, WAIT_LIMIT, is_gone).await;
        if !found {
            let status = self.images.status(&name, self.clock.now_ms());
            panic!("waited for the removal: {status:#?}");
        }
    }

    /// Waits until a build is ready and uploaded to each of these targets.
    pub(crate) async fn until_uploaded(&self, name: &str, build: u64, targets: &[&str]) {
        let what = format!("build {build} at {targets:?}");
        let is_there = |image: &ImageNode| {
            targets.iter().all(|target| {
                upload_states(image, build, target)
                    .iter()
                    .any(|state| state == "ready")
            })
        };
        self.until(name, &what, is_there).await;
    }

    /// Waits until these builds exist and no others, in these states.
    pub(crate) async fn until_builds(&self, name: &str, expected: &[(u64, &str)]) {
        let expected: Vec<(u64, String)> = expected
            .iter()
            .map(|(build, state)| (*build, (*state).to_owned()))
            .collect();
        let what = format!("{expected:?}");
        self.until(name, &what, |image| build_states(image) == expected)
            .await;
    }

    pub(crate) fn look<T>(&self, name: &str, look: impl FnOnce(&ImageNode) -> T) -> T {
        self.images.image(&image(name), look).unwrap()
    }

    pub(crate) fn record(&self, name: &str, build: u64) -> BuildRecord {
        self.look(name, |it| it.builds[&BuildNumber(build)].record.clone())
            .unwrap()
    }

    pub(crate) fn explain(&self, name: &str) -> Vec<String> {
        let view = self.images.view(&image(name), self.clock.now_ms());
        let steps = view.map(|view| view.steps());
        steps
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// Waits until one of the next steps has this text.
    pub(crate) async fn until_explained(&self, name: &str, text: &str) {
        let mut revision = self.images.revision();
        let mut steps = Vec::new();
        let found = tokio::time::timeout(WAIT_LIMIT, async {
            loop {
                revision.mark_unchanged();
                steps = self.explain(name);
                if steps.iter().any(|step| step.contains(text)) {
                    return;
                }
                revision.changed().await.unwrap();
            }
        });
        let found = found.await.is_ok();
        assert!(found, "waited for {text:?}: {steps:#?}");
    }

    pub(crate) async fn request(&self, name: &str, reason: &str) {
        let asked = self
            .images
            .request_build(&image(name), &asker(reason))
            .await;
        asked.unwrap();
    }

    /// Writes a field of a record by hand.
    pub(crate) async fn write_state(&self, place: Place, state: &str) {
        let path = place.path().unwrap();
        let node = self.tree().get(&path).await.unwrap();
        let mut document: serde_json::Value = serde_json::from_slice(&node.data).unwrap();
        document["state"] = state.into();
        let data = document.to_string();
        self.tree().set(&path, data.as_bytes(), None).await.unwrap();
    }

    pub(crate) async fn create(&self, path: &TreePath, data: &str) {
        let created = self
            .tree()
            .create(path, data.as_bytes(), Lifetime::Persistent)
            .await;
        created.unwrap();
    }

    /// The files of the shared artifact store.
    pub(crate) fn stored_files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let root = self.path("store");
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(name) = path.strip_prefix(&root) {
                    found.push(name.display().to_string());
                }
            }
        }
        found.retain(|name| !name.starts_with('.'));
        found.sort();
        found
    }
}

pub(crate) fn build_states(image: &ImageNode) -> Vec<(u64, String)> {
    let states = image.builds.iter().map(|(number, build)| {
        let state = build.record.as_ref().map(|it| it.state.as_str());
        (number.0, state.unwrap_or("unreadable").to_owned())
    });
    states.collect()
}

/// The states of the uploads of a build to a target, oldest first.
pub(crate) fn upload_states(image: &ImageNode, build: u64, target: &str) -> Vec<String> {
    let target = target.parse().unwrap();
    let build = image.builds.get(&BuildNumber(build));
    let uploads = build.and_then(|build| build.targets.get(&target));
    let uploads = uploads.into_iter().flat_map(|it| it.uploads.values());
    let states = uploads.map(|upload| {
        let state = upload.record.as_ref().map(|it| it.state.as_str());
        state.unwrap_or("unreadable").to_owned()
    });
    states.collect()
}

pub(crate) fn is_building(image: &ImageNode) -> bool {
    image.running().is_some()
}

pub(crate) fn failure(record: &BuildRecord) -> Option<(String, BuildFailureCause)> {
    match &record.state {
        BuildState::Failed { error, cause } => Some((error.clone(), *cause)),
        BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
    }
}

pub(crate) fn has_failed_upload(image: &ImageNode, build: u64, target: &str) -> bool {
    let target = target.parse().unwrap();
    let build = image.builds.get(&BuildNumber(build));
    let uploads = build.and_then(|build| build.targets.get(&target));
    let mut uploads = uploads.into_iter().flat_map(|it| it.uploads.values());
    uploads.any(|upload| {
        let state = upload.record.as_ref().map(|it| it.state.clone());
        matches!(state, Some(UploadState::Failed { .. }))
    })
}
