//! Builder processes below a root of their own, and a view of the tree.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use access::seal::{Key, Keyring, generate_key};
use anyhow::Context as _;
use backplane::tree::{SealedTree, ZookeeperTree};
use cloud::image::TrustedKeys;
use domain::id::ImageName;
use domain::image::{BuildState, UploadState};
use images::{BuildNode, ImageNode, ImageTree, StoredDefinition};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::config::builder_key_file;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::child::fleetwright;
use crate::{machine, zookeeper};

/// Something that takes longer does not happen.
const LIMIT: Duration = Duration::from_secs(3_600);
/// After this time without contact, a builder loses its locks: the default of the program.
const SESSION: Duration = Duration::from_secs(10);
/// The same where builders are killed.
pub(super) const SHORT_SESSION: Duration = Duration::from_secs(2);

/// A root in the tree, with its builders.
pub(super) struct World {
    files: TempDir,
    pub(super) servers: String,
    root: String,
    pub(super) images: Arc<ImageTree>,
    /// Of builders that are started from now on.
    pub(super) session: Duration,
    following: JoinHandle<()>,
}

/// A builder; killed when dropped.
pub(super) struct BuilderProcess {
    pub(super) process: Child,
    pub(super) name: String,
}

impl World {
    pub(super) async fn open() -> anyhow::Result<Self> {
        let servers = zookeeper::servers()?;
        let files = machine::temporary_folder()?;
        let name = files.path().file_name().unwrap_or_default();
        let root = format!("/{}", name.to_string_lossy());
        let settings = zookeeper::settings(servers.clone(), &root, Duration::from_secs(20))?;
        let tree = ZookeeperTree::open(settings)?;
        tree.connected().await?;
        let secret = generate_key(&mut StdRng::seed_from_u64(7));
        let keyring = Keyring::new(vec![Key {
            id: "k1".to_owned(),
            secret,
        }])?;
        let keys = files.path().join("builder.keys");
        std::fs::write(keys, builder_key_file(&keyring)).context("cannot write the keys")?;
        let keyring = Arc::new(keyring.of_builders());
        let trusted = TrustedKeys::new(&keyring);
        let images = ImageTree::new(Arc::new(SealedTree::new(Arc::new(tree), keyring)), trusted);
        let following = tokio::spawn({
            let images = Arc::clone(&images);
            async move { images.follow().await }
        });
        let mut revision = images.revision();
        revision.wait_for(|revision| *revision > 0).await?;
        Ok(Self {
            files,
            servers,
            root,
            images,
            session: SESSION,
            following,
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Defines images whose builds are this script. Each is uploaded to these providers.
    pub(super) async fn define(
        &self,
        names: &[ImageName],
        script: &str,
        providers: &[&str],
    ) -> anyhow::Result<()> {
        let uploads: Vec<Value> = providers
            .iter()
            .map(|id| json!({"providerId": id}))
            .collect();
        let stored = names.iter().map(|name| {
            let document = json!({
                "imageId": name.as_str(),
                "build": {"command": ["sh", "-c", script]},
                "formats": ["raw"],
                "uploads": uploads,
            });
            let version = 1;
            (name.clone(), StoredDefinition { version, document })
        });
        let stored: BTreeMap<_, _> = stored.collect();
        let ids: Result<_, _> = providers.iter().map(|id| id.parse()).collect();
        self.images.mirror_providers(&ids?).await?;
        self.images.mirror(&stored).await?;
        Ok(())
    }

    /// Starts a builder, and waits until it works.
    pub(super) fn builder(
        &self,
        label: &str,
        providers: &[&str],
    ) -> anyhow::Result<BuilderProcess> {
        let quoted = |name: &str| toml::Value::from(self.path(name).display().to_string());
        let mut text = format!(
            "[keys]\nfile = {}\n[tree]\nkind = \"zookeeper\"\nservers = \"{}\"\nroot = \"{}\"\n\
             session_seconds = {}\ninsecure = true\n[images]\nfolder = {}\n[images.artifacts]\nkind = \"folder\"\n\
             path = {}\n",
            quoted("builder.keys"),
            self.servers,
            self.root,
            self.session.as_secs(),
            quoted(label),
            quoted("artifacts"),
        );
        for id in providers {
            text.push_str(&format!("[providers.{id}]\nkind = \"fake\"\n"));
        }
        let file = self.path(&format!("{label}.toml"));
        std::fs::write(&file, text).context("cannot write the configuration")?;
        let log = std::fs::File::create(self.path(&format!("{label}.log")))?;
        let mut process = fleetwright()?
            .args(["builder", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start a builder")?;
        let stdout = process.stdout.take().context("a builder has no output")?;
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let name = lines.find_map(|line| {
            let rest = line.strip_prefix("builder ")?;
            Some(rest.strip_suffix(" is ready")?.to_owned())
        });
        let name = name.with_context(|| {
            let log = std::fs::read_to_string(self.path(&format!("{label}.log")));
            format!("a builder did not start: {}", log.unwrap_or_default())
        })?;
        Ok(BuilderProcess { process, name })
    }

    /// Waits until the image gives an answer.
    pub(super) async fn wait<T>(
        &self,
        image: &ImageName,
        mut look: impl FnMut(&ImageNode) -> Option<T>,
    ) -> anyhow::Result<T> {
        let mut found = None;
        let waiting = self.images.wait_for(image, LIMIT, |node| {
            found = node.and_then(&mut look);
            found.is_some()
        });
        waiting.await;
        found.with_context(|| format!("image {image} is not as expected in time"))
    }

    /// Waits until each image has this many builds that are uploaded everywhere.
    pub(super) async fn wait_uploaded(
        &self,
        names: &[ImageName],
        n_builds: usize,
        n_targets: usize,
    ) -> anyhow::Result<()> {
        for name in names {
            let is_done = |node: &ImageNode| {
                let builds = node.builds.values();
                let uploaded = builds.filter(|build| n_uploaded(build) == n_targets);
                (uploaded.count() >= n_builds).then_some(())
            };
            self.wait(name, is_done).await?;
        }
        Ok(())
    }

    /// Ends the view, so that it asks the server for nothing.
    pub(super) fn close(self) -> TempDir {
        self.following.abort();
        self.files
    }
}

impl BuilderProcess {
    /// The processor time that it has used, if the system reports it.
    pub(super) fn processor_seconds(&self) -> Option<f64> {
        crate::processor::of_process(self.process.id())
    }

    pub(super) fn resident_bytes(&self) -> Option<u64> {
        machine::memory_bytes(&self.process.id().to_string(), "VmRSS:")
    }
}

impl Drop for BuilderProcess {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _ended_already = self.process.wait();
    }
}

/// Uploads of a ready build that are ready.
pub(super) fn n_uploaded(build: &BuildNode) -> usize {
    let record = build.record.as_ref();
    if record.is_none_or(|record| record.state != BuildState::Ready) {
        return 0;
    }
    let targets = build.targets.values();
    let uploads = targets.flat_map(|target| target.uploads.values());
    let records = uploads.filter_map(|upload| upload.record.as_ref());
    records
        .filter(|record| record.state == UploadState::Ready)
        .count()
}

pub(super) fn names(count: u32) -> anyhow::Result<Vec<ImageName>> {
    let names = (0..count).map(|number| format!("image-{number}").parse());
    Ok(names.collect::<Result<_, _>>()?)
}
