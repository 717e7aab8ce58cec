//! A ZooKeeper, builder processes, and a view of the tree.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use access::seal::{Key, Keyring, generate_key};
use backplane::tree::{SealedTree, TreePath, ZookeeperSettings, ZookeeperTree};
use cloud::image::TrustedKeys;
use domain::id::ImageName;
use domain::image::{BuildFailureCause, BuildNumber, BuildState, UploadState};
use images::{ImageNode, ImageTree, StoredDefinition};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::config::builder_key_file;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::queue_calls::now;
use crate::world::Home;

/// Longest time until something happens, on a very busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Sessions of builders end this long after the last contact.
const SESSION_SECONDS: u64 = 2;

static NEXT_ROOT: AtomicU32 = AtomicU32::new(0);

/// Builders on one ZooKeeper, below a root of their own.
pub(crate) struct Cluster {
    pub(crate) home: Home,
    pub(crate) zookeeper: Zookeeper,
    pub(crate) root: String,
    pub(crate) images: Arc<ImageTree>,
    /// Of builders that are started from now on.
    pub(crate) session_seconds: u64,
    following: JoinHandle<()>,
    runtime: Runtime,
    versions: BTreeMap<ImageName, StoredDefinition>,
}

/// A server of `scripts/with-zookeeper`.
pub(crate) struct Zookeeper {
    folder: PathBuf,
    name: String,
}

/// A `fleetwright builder`.
pub(crate) struct BuilderProcess {
    process: Child,
    /// In the tree.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl Zookeeper {
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    fn main() -> Option<Self> {
        let Ok(folder) = std::env::var("TEST_ZOOKEEPER") else {
            println!("skipped: TEST_ZOOKEEPER is not set");
            return None;
        };
        let (folder, name) = (folder.into(), "main".to_owned());
        Some(Self { folder, name })
    }

    /// A server of its own, for tests that stop it.
    fn spawn() -> Option<Self> {
        let main = Self::main()?;
        let name = main.control(&["spawn"]);
        Some(Self { name, ..main })
    }

    fn control(&self, arguments: &[&str]) -> String {
        let program = std::env::var("TEST_ZOOKEEPER_CONTROL").unwrap();
        let mut command = Command::new(program);
        // A server that it starts keeps its standard error open, so it is not read.
        let output = command.args(arguments).stderr(Stdio::inherit()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn kill(&self) {
        self.control(&["kill", &self.name]);
    }

    pub(crate) fn start(&self) {
        self.control(&["start", &self.name]);
    }

    pub(crate) fn freeze(&self) {
        self.control(&["freeze", &self.name]);
    }

    pub(crate) fn thaw(&self) {
        self.control(&["thaw", &self.name]);
    }

    pub(crate) fn address(&self) -> String {
        fs::read_to_string(self.folder.join(&self.name).join("address")).unwrap()
    }
}

impl Cluster {
    /// On the server that all tests share. `None`: none is configured.
    pub(crate) fn start() -> Option<Self> {
        Zookeeper::main().map(Self::on)
    }

    /// On a server of its own.
    pub(crate) fn with_own_zookeeper() -> Option<Self> {
        Zookeeper::spawn().map(Self::on)
    }

    fn on(zookeeper: Zookeeper) -> Self {
        let home = Home::new();
        let number = NEXT_ROOT.fetch_add(1, Ordering::Relaxed);
        let root = format!("/builders-{}-{number}", std::process::id());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let settings = ZookeeperSettings {
            servers: zookeeper.address(),
            root: root.parse::<TreePath>().unwrap(),
            creates_root: true,
            session: Duration::from_secs(20),
            call_limit: Duration::from_secs(60),
            login: None,
            tls: None,
        };
        let secret = generate_key(&mut StdRng::seed_from_u64(7));
        home.write("keys", &format!("k1 {}\n", secret.expose()));
        let id = "k1".to_owned();
        let keyring = Keyring::new(vec![Key { id, secret }]).unwrap();
        home.write("builder.keys", &builder_key_file(&keyring));
        let keyring = Arc::new(keyring.of_builders());
        let images = runtime.block_on(async {
            let tree = ZookeeperTree::open(settings).unwrap();
            tree.connected().await.unwrap();
            let tree = SealedTree::new(Arc::new(tree), Arc::clone(&keyring));
            ImageTree::new(Arc::new(tree), TrustedKeys::new(&keyring))
        });
        let following = runtime.spawn({
            let images = Arc::clone(&images);
            async move { images.follow().await }
        });
        let cluster = Self {
            home,
            zookeeper,
            root,
            images,
            session_seconds: SESSION_SECONDS,
            following,
            runtime,
            versions: BTreeMap::new(),
        };
        let mut revision = cluster.images.revision();
        cluster.runtime.block_on(async {
            let read = revision.wait_for(|revision| *revision > 0);
            tokio::time::timeout(LIMIT, read).await.unwrap().unwrap();
        });
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.home.path(name).to_str().unwrap().to_owned()
    }

    /// Makes the tree have these images too, and says which providers exist.
    pub(crate) fn define(&mut self, documents: &[Value], providers: &[&str]) {
        for document in documents {
            let name: ImageName = document["imageId"].as_str().unwrap().parse().unwrap();
            let version = self
                .versions
                .get(&name)
                .map_or(1, |known| known.version + 1);
            let document = document.clone();
            let stored = StoredDefinition { version, document };
            self.versions.insert(name, stored);
        }
        let providers = providers.iter().map(|id| id.parse().unwrap()).collect();
        self.runtime.block_on(async {
            self.images.mirror(&self.versions).await.unwrap();
            self.images.mirror_providers(&providers).await.unwrap();
        });
    }

    /// Removes all definitions.
    pub(crate) fn remove_all(&mut self) {
        self.versions.clear();
        self.runtime.block_on(async {
            let mirrored = self.images.mirror(&self.versions).await.unwrap();
            for image in mirrored.unknown {
                self.images.remove(&image).await.unwrap();
            }
        });
    }

    /// The configuration of a builder whose folder has this name. The first lines are keys of
    /// `[images]`.
    pub(crate) fn configuration(&self, label: &str, more: &str) -> String {
        let folder = self.home.path(label);
        let text = format!(
            "{}[images]\nfolder = \"{}\"\ngrace_seconds = 1\n{more}",
            self.tree_lines("builder.keys"),
            folder.display(),
        );
        self.home.write(&format!("{label}.toml"), &text)
    }

    /// The lines of a configuration about keys, which are in this file, tree and log.
    pub(crate) fn tree_lines(&self, keys: &str) -> String {
        format!(
            "[keys]\nfile = \"{}\"\n[tree]\nkind = \"zookeeper\"\nservers = \"{}\"\nroot = \"{}\"\n\
             session_seconds = {}\ninsecure = true\n[log]\nfilter = \"info,images=debug\"\n",
            self.path(keys),
            self.zookeeper.address(),
            self.root,
            self.session_seconds,
        )
    }

    /// Starts a builder, and waits until it works.
    pub(crate) fn builder(&self, label: &str, more: &str) -> BuilderProcess {
        let file = self.configuration(label, more);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path(label));
        let mut process = self
            .home
            .command(&["builder", "--config", &file])
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let name = lines.map_while(Result::ok).find_map(|line| {
            let rest = line.strip_prefix("builder ")?;
            Some(rest.strip_suffix(" is ready")?.to_owned())
        });
        let name = name.unwrap_or_else(|| panic!("no start: {}", self.logs()));
        BuilderProcess {
            process,
            name,
            folder: self.home.path(label),
        }
    }

    fn log_path(&self, label: &str) -> PathBuf {
        self.home.path(&format!("{label}.log"))
    }

    /// The logs of all processes, for messages of failed tests.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.home.path("")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "log") {
                text.push_str(&format!("\n--- {}\n", path.display()));
                text.push_str(&fs::read_to_string(&path).unwrap_or_default());
            }
        }
        text
    }

    /// Waits until the image gives this answer.
    pub(crate) fn wait<T>(
        &self,
        image: &str,
        what: &str,
        mut look: impl FnMut(&ImageNode) -> Option<T>,
    ) -> T {
        let name: ImageName = image.parse().unwrap();
        let mut found = None;
        let waiting = self.images.wait_for(&name, LIMIT, |node| {
            found = node.and_then(&mut look);
            found.is_some()
        });
        self.runtime.block_on(waiting);
        found.unwrap_or_else(|| {
            let node = self.images.image(&name, |node| format!("{node:#?}"));
            panic!("{image}: not reached: {what}: {node:?}{}", self.logs())
        })
    }

    pub(crate) fn wait_removed(&self, image: &str) {
        let name: ImageName = image.parse().unwrap();
        let waiting = self.images.wait_for(&name, LIMIT, |node| node.is_none());
        assert!(
            self.runtime.block_on(waiting),
            "{image} stays{}",
            self.logs()
        );
    }

    /// Waits until a build has a state. Returns its builder.
    pub(crate) fn wait_build(
        &self,
        image: &str,
        number: u64,
        is_expected: impl Fn(&BuildState) -> bool,
    ) -> String {
        self.wait(image, &format!("the state of build {number}"), |node| {
            let record = node.builds.get(&BuildNumber(number))?.record.as_ref()?;
            is_expected(&record.state).then(|| record.builder.clone())
        })
    }

    pub(crate) fn wait_ready(&self, image: &str, number: u64) -> String {
        self.wait_build(image, number, |state| *state == BuildState::Ready)
    }

    /// Waits until an upload of a build is ready. Returns the uploading process and the image's id.
    pub(crate) fn wait_uploaded(&self, image: &str, number: u64) -> (String, String) {
        self.wait(image, &format!("build {number} is uploaded"), |node| {
            let build = node.builds.get(&BuildNumber(number))?;
            let uploads = build
                .targets
                .values()
                .flat_map(|target| target.uploads.values());
            let mut records = uploads.filter_map(|upload| upload.record.as_ref());
            let ready = records.find(|record| record.state == UploadState::Ready)?;
            Some((ready.uploader.clone(), ready.external_id.clone()?))
        })
    }

    /// Polls something outside of the tree.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = now();
        while !is_so() {
            assert!(now() - start < LIMIT, "not reached: {what}{}", self.logs());
            // Time: between looks.
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The lines of a file to which builds append.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.home.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl BuilderProcess {
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until the process ends. Returns whether it succeeded.
    pub(crate) fn ended(&mut self, cluster: &Cluster) -> bool {
        let mut success = None;
        cluster.until("the builder ends", || {
            success = self
                .process
                .try_wait()
                .unwrap()
                .map(|status| status.success());
            success.is_some()
        });
        success.unwrap()
    }

    pub(crate) fn work(&self) -> Vec<PathBuf> {
        entries(&self.folder.join("work"))
    }
}

impl Drop for BuilderProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// All files and folders below a folder.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in listed {
        let path = entry.path();
        if path.is_dir() {
            found.extend(entries(&path));
        }
        found.push(path);
    }
    found
}

/// Whether a process with this id runs.
pub(crate) fn is_alive(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// An image whose build is a shell script.
pub(crate) fn image(name: &str, script: &str, targets: &[&str]) -> Value {
    let uploads = targets.iter().map(|id| json!({"providerId": id}));
    json!({
        "imageId": name,
        "build": {"command": ["sh", "-c", script]},
        "formats": ["raw"],
        "uploads": uploads.collect::<Vec<_>>(),
    })
}

/// A store of artifacts in a folder.
pub(crate) fn shared(folder: &str) -> String {
    format!("[images.artifacts]\nkind = \"folder\"\npath = \"{folder}\"\n")
}

pub(crate) fn is_abandoned(state: &BuildState) -> bool {
    match state {
        BuildState::Failed { cause, .. } => *cause != BuildFailureCause::Build,
        BuildState::Building | BuildState::Ready | BuildState::Deleting => false,
    }
}

pub(crate) fn is_building(state: &BuildState) -> bool {
    *state == BuildState::Building
}
