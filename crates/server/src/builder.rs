//! The builder of images, as a part of a server or as a process of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::seal::Keyring;
use backplane::tree::{SealedTree, TreeError, ZookeeperTree, local_host};
use cloud::image::{
    ArtifactStore, ArtifactStoreSettings, BadObjectStore, FolderStore, ProvenanceKey,
    SupervisorProgram, TrustedKeys,
};
use cloud::{Provider, Providers};
use contract::Schemas;
use domain::id::ProviderId;
use domain::time::Clock;
use engine::Engine;
use engine::clock::SystemClock;
use engine::random::Random;
use images::{
    Builder, BuilderError, BuilderParts, BuilderSettings, ImagePaths, ImageTree, LiveBuilds,
    SecretsReader, Targets, folder_store_name,
};
use rand::SeedableRng as _;
use rand::rngs::{StdRng, SysRng};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::build_logs::{LogSeal, LogSource, published_address};
use crate::config::{Config, ConfigError, TreeKind};
use crate::configured_providers::build_providers;
use crate::exposure;
use crate::image_secrets;

/// The folder of artifacts in that of the builder, if no store is configured.
const ARTIFACTS: &str = "artifacts";
/// Pause between two attempts to reach the tree at the start.
const TREE_RETRY: Duration = Duration::from_secs(1);
/// Providers whose set-up failed are set up again in this interval, with this limit.
const SET_UP_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum BuilderProblem {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}: {1}")]
    Exposed(String, String),
    #[error("images.artifacts is not usable")]
    Artifacts(#[from] BadObjectStore),
    #[error("the folder of artifacts is not usable: {0}")]
    ArtifactFolder(std::io::Error),
    #[error("this program cannot start itself for builds: {0}")]
    Program(std::io::Error),
    #[error(transparent)]
    Builder(#[from] BuilderError),
    #[error("cannot listen on `images.listen` = \"{address}\": {error}")]
    Listen {
        address: SocketAddr,
        error: std::io::Error,
    },
    #[error("the operating system provides no random numbers: {0}")]
    Random(String),
    #[error("the tree is not usable")]
    Tree(#[from] TreeError),
}

/// Why the tree in ZooKeeper cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenProblem {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<OpenProblem> for BuilderProblem {
    fn from(problem: OpenProblem) -> Self {
        match problem {
            OpenProblem::Config(error) => Self::Config(error),
            OpenProblem::Tree(error) => Self::Tree(error),
        }
    }
}

/// The providers of a server.
pub(crate) struct EngineTargets(pub(crate) Arc<Engine>);

impl Targets for EngineTargets {
    fn ids(&self) -> BTreeSet<ProviderId> {
        self.0.providers.ids()
    }

    fn get(&self, id: &ProviderId) -> Option<Arc<dyn Provider>> {
        Targets::get(&self.0.providers, id)
    }
}

/// The needs of a builder beside the configuration.
pub(crate) struct BuilderNeeds {
    /// No other process has this name.
    pub(crate) name: String,
    pub(crate) images: Arc<ImageTree>,
    pub(crate) targets: Arc<dyn Targets>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secrets: Arc<dyn SecretsReader>,
    pub(crate) live: LiveBuilds,
    /// Seals the logs that servers read. Its keys sign builds, too.
    pub(crate) seal: LogSeal,
    pub(crate) stop: CancellationToken,
}

/// Opens the builder of a process; `None`: no folder is configured.
pub(crate) async fn open(
    config: &Config,
    needs: BuilderNeeds,
) -> Result<Option<Arc<Builder>>, BuilderProblem> {
    let Some(folder) = config.image_folder() else {
        return Ok(None);
    };
    let confinement = config.images.confinement()?;
    if confinement.account.is_some() && !folder.exists() {
        // The user of builds passes through it to folders of his own.
        permissions::make_passable(&folder).map_err(BuilderProblem::ArtifactFolder)?;
    }
    let (artifacts, artifacts_name) = open_artifacts(config, &folder, &needs.clock)?;
    let address = serve_logs(config, &needs, &artifacts).await?;
    let keyring = Arc::clone(&needs.seal.keyring);
    let parts = BuilderParts {
        images: needs.images,
        clock: needs.clock,
        targets: needs.targets,
        artifacts,
        artifacts_name,
        key: ProvenanceKey::new(&keyring),
        commands: Arc::new(SupervisorProgram::own().map_err(BuilderProblem::Program)?),
        secrets: needs.secrets,
        live: needs.live,
    };
    let images = &config.images;
    let settings = BuilderSettings {
        name: needs.name,
        host: local_host(),
        folder,
        build_slots: images.builds,
        upload_slots: images.uploads,
        labels: images.labels.clone(),
        max_log_bytes: images.max_log_bytes,
        grace: images.grace(),
        upload_limit: images.upload_limit(),
        address,
        deployment: config.root_url(),
        secrets: images.secret_files(),
        confinement,
    };
    Ok(Some(Builder::open(parts, settings, needs.stop).await?))
}

/// Answers questions of servers for logs. Returns the address. It is empty with the embedded tree:
/// this is the only process then.
async fn serve_logs(
    config: &Config,
    needs: &BuilderNeeds,
    artifacts: &Arc<dyn ArtifactStore>,
) -> Result<String, BuilderProblem> {
    if config.tree.kind == TreeKind::Embedded {
        return Ok(String::new());
    }
    let address = config.images.listen;
    let failed = |error| BuilderProblem::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let source = Arc::new(LogSource {
        images: Arc::clone(&needs.images),
        live: needs.live.clone(),
        artifacts: Arc::clone(artifacts),
        seal: needs.seal.clone(),
    });
    tokio::spawn(source.serve(listener, needs.stop.clone()));
    Ok(published_address(bound, config.images.address.as_deref()))
}

/// The artifact store, and the name by which builders know that they use the same one.
pub(crate) fn open_artifacts(
    config: &Config,
    folder: &Path,
    clock: &Arc<dyn Clock>,
) -> Result<(Arc<dyn ArtifactStore>, String), BuilderProblem> {
    let named = |path: &Path| folder_store_name(path).map_err(BuilderProblem::ArtifactFolder);
    match &config.images.artifacts {
        None => {
            let path = std::path::absolute(folder.join(ARTIFACTS));
            let path = path.map_err(BuilderProblem::ArtifactFolder)?;
            permissions::make_private(&path).map_err(BuilderProblem::ArtifactFolder)?;
            let name = named(&path)?;
            Ok((Arc::new(FolderStore::new(path)), name))
        }
        Some(settings @ ArtifactStoreSettings::Folder(shared)) => {
            let name = named(&shared.path)?;
            Ok((settings.store(Arc::clone(clock))?, name))
        }
        Some(settings @ ArtifactStoreSettings::Http(http)) => {
            let bucket = http.bucket.as_deref().unwrap_or_default();
            let name = format!("{} {bucket} {}", http.url, http.prefix);
            Ok((settings.store(Arc::clone(clock))?, name))
        }
    }
}

/// Opens the tree in ZooKeeper, whose nodes are authenticated.
pub(crate) async fn open_tree(
    config: &Config,
    keyring: &Arc<Keyring>,
) -> Result<Arc<SealedTree>, OpenProblem> {
    let tree = ZookeeperTree::open(config.tree.zookeeper()?)?;
    tree.connected().await?;
    tree.check_protection(&ImagePaths::root().map_err(TreeError::from)?)
        .await?;
    Ok(Arc::new(SealedTree::new(
        Arc::new(tree),
        Arc::clone(keyring),
    )))
}

/// Like `open_tree`, but waits while the tree is away: after a power cut, all machines start at
/// once. A refused login, for instance, is a mistake in the settings.
async fn await_tree(
    config: &Config,
    keyring: &Arc<Keyring>,
) -> Result<Arc<SealedTree>, OpenProblem> {
    loop {
        match open_tree(config, keyring).await {
            Err(OpenProblem::Tree(error)) if error.is_away() => {
                tracing::warn!(%error, "waiting for the tree: {error}");
                let _ = timeout(TREE_RETRY, std::future::pending::<()>()).await;
            }
            ended => return ended,
        }
    }
}

/// A name that no other process has.
pub(crate) fn process_name(clock: &dyn Clock) -> String {
    let (host, pid) = (local_host(), std::process::id());
    format!("{host}-{pid}-{:x}", clock.now().as_millis())
}

/// Runs a builder without a server or a database, until it is stopped. `ready` is called with its
/// name as soon as it works.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(&str),
) -> Result<(), BuilderProblem> {
    config.check_builder()?;
    exposure::report(&config)
        .map_err(|file| BuilderProblem::Exposed(file.to_string(), file.advice()))?;
    // A builder mostly waits: idle, it holds 36 MiB without huge pages, and 41 MiB with them.
    if let Err(problem) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!("memory is used in huge pages: {problem}");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let keyring = Arc::new(config.builder_keyring()?);
    let providers = build_providers(&config, &keyring, &clock, Schemas::new());
    let providers = Arc::new(Providers::new(providers));
    let setting_up = tokio::spawn(set_up(Arc::clone(&providers), stop.clone()));
    let Some(tree) = stop
        .run_until_cancelled(await_tree(&config, &keyring))
        .await
    else {
        let _ = setting_up.await;
        return Ok(());
    };
    let tree = tree?;
    let images = ImageTree::new(tree, TrustedKeys::new(&keyring));
    let following = tokio::spawn({
        let images = Arc::clone(&images);
        async move { images.follow().await }
    });
    let random = StdRng::try_from_rng(&mut SysRng);
    let random = random.map_err(|error| BuilderProblem::Random(error.to_string()))?;
    let random = Arc::new(Random::new(random));
    let name = process_name(clock.as_ref());
    let needs = BuilderNeeds {
        name: name.clone(),
        images,
        targets: providers,
        secrets: image_secrets::of_builder(&config, &clock, &random)?,
        clock,
        live: LiveBuilds::default(),
        seal: LogSeal { keyring, random },
        stop: stop.clone(),
    };
    let builder = open(&config, needs).await?;
    if let Some(builder) = builder {
        ready(&name);
        builder.run().await?;
    }
    stop.cancel();
    following.abort();
    let _ = setting_up.await;
    Ok(())
}

/// Sets up the providers, and those that fail again and again.
async fn set_up(providers: Arc<Providers>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let (_, failed) = providers.set_up_missing(SET_UP_EVERY).await;
        for (id, error) in failed {
            tracing::warn!(provider = %id, %error, "provider {id} takes no images yet: {error}");
        }
        let _ = timeout(SET_UP_EVERY, stop.cancelled()).await;
    }
}
