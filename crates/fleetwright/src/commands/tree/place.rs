//! Where a tree is: in the database of a configuration, or in ZooKeeper.

use std::path::PathBuf;
use std::sync::Arc;

use access::seal::Keyring;
use access::slugid;
use api_client::with_causes;
use backplane::tree::{EmbeddedSession, SealedTree, Tree, TreeError, TreePath, ZookeeperTree};
use clap::{Args, ValueEnum};
use domain::time::{Clock, Timestamp};
use engine::tree::{OpenTreeError, OwnedTree, open, open_to_read};
use server::config::{Config, TreeAuthentication, TreeCertificates, TreeKind};
use store::{Options, Store, StoreError};

use crate::commands::{serve, up};
use crate::data_folder::DataFolder;
use crate::failure::{Exit, Failure};
use crate::machine;

#[derive(Args, Debug)]
#[command(next_help_heading = "Tree")]
pub(crate) struct Place {
    /// Configuration file of the server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "servers"])]
    config: Option<PathBuf>,
    /// Data folder of `up` (default: in your data folder)
    #[arg(long, value_name = "DIR", conflicts_with = "servers")]
    data: Option<PathBuf>,
    /// Servers of ZooKeeper: host:port,host:port
    #[arg(long, value_name = "LIST")]
    servers: Option<String>,
    /// The node in ZooKeeper that all paths are below
    #[arg(long, value_name = "PATH")]
    root: Option<TreePath>,
    /// User who owns the nodes
    #[arg(
        long,
        value_name = "NAME",
        requires = "password_file",
        requires = "servers"
    )]
    user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// How the user logs in
    #[arg(long, value_name = "KIND", requires = "user", default_value = "digest")]
    authentication: Authentication,
    /// Authorities (PEM) that sign the servers' certificates; encrypts the connection
    #[arg(long, value_name = "FILE", requires = "servers")]
    tls_ca: Option<PathBuf>,
    /// Our certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the keys of the deployment or of a builder, by which nodes are authenticated
    #[arg(long, value_name = "FILE", requires = "servers")]
    keys: Option<PathBuf>,
    /// Key of our certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Authentication {
    Digest,
    Sasl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// The commands live while changes come, so the embedded tree is no place for them.
    Watch,
    Write,
}

/// An open tree. Keep it until the work is done.
pub(super) struct OpenedTree {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) root: TreePath,
    /// The same tree, if it is in ZooKeeper.
    pub(super) zookeeper: Option<ZookeeperTree>,
    /// Whether nodes are authenticated.
    pub(super) is_sealed: bool,
    owned: Option<OwnedTree>,
}

struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        machine::now()
    }
}

impl Place {
    pub(super) async fn open(&self, access: Access) -> Result<OpenedTree, Failure> {
        let config = self.configuration()?;
        match config.tree.kind {
            TreeKind::Embedded => self.open_embedded(&config, access).await,
            TreeKind::Zookeeper => self.open_zookeeper(&config, access).await,
        }
    }

    fn configuration(&self) -> Result<Config, Failure> {
        let mut config = match (&self.config, &self.servers) {
            (Some(file), _) => serve::read(file)?,
            (None, Some(servers)) => self.of_flags(servers),
            (None, None) => {
                let path = match &self.data {
                    Some(path) => path.clone(),
                    None => DataFolder::default_path()?,
                };
                up::configuration(None, &DataFolder::inspect(&path)?)?
            }
        };
        if let Some(root) = &self.root {
            config.tree.root = root.to_string();
        }
        let checked = config.tree.check();
        checked.map_err(|error| Failure::usage(with_causes(&error)))?;
        Ok(config)
    }

    fn of_flags(&self, servers: &str) -> Config {
        let mut config = Config::default();
        config.keys.file = self.keys.clone().unwrap_or_default();
        let tree = &mut config.tree;
        tree.kind = TreeKind::Zookeeper;
        tree.servers = servers.to_owned();
        tree.user.clone_from(&self.user);
        tree.password_file.clone_from(&self.password_file);
        tree.authentication = match self.authentication {
            Authentication::Digest => TreeAuthentication::Digest,
            Authentication::Sasl => TreeAuthentication::Sasl,
        };
        tree.tls = self.tls_ca.clone().map(|ca| TreeCertificates {
            ca,
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        });
        config
    }

    /// The id by which a tree knows the database of the configuration.
    pub(super) async fn database_identity(&self) -> Result<String, Failure> {
        let config = self.configuration()?;
        let store = open_store(&config)?;
        let new = slugid::nice(&mut machine::random_source());
        let read = store.write("database_identity", move |tx| {
            store::database_identity::get_or_insert(tx, &new)
        });
        read.await.map_err(|error| store_failure(&error))
    }

    async fn open_embedded(&self, config: &Config, access: Access) -> Result<OpenedTree, Failure> {
        if self.root.is_some() {
            return Err(Failure::usage(
                "--root needs ZooKeeper: this tree is embedded",
            ));
        }
        if access == Access::Watch {
            let text = "changes of the embedded tree cannot be watched from another process";
            let hint = "use `fleetwright tree ls`, or ZooKeeper (`[tree] kind = \"zookeeper\"`)";
            return Err(Failure::usage(text).with_hint(hint));
        }
        let store = open_store(config)?;
        let clock: Arc<dyn Clock> = Arc::new(MachineClock);
        let root = TreePath::root();
        if access == Access::Read {
            let tree = open_to_read(&store, &clock).await.map_err(open_failure)?;
            return Ok(embedded(tree.session(), root, None));
        }
        let owned = open(&store, &clock).await.map_err(open_failure)?;
        Ok(embedded(owned.tree.session(), root, Some(owned)))
    }

    async fn open_zookeeper(&self, config: &Config, access: Access) -> Result<OpenedTree, Failure> {
        let settings = config.tree.zookeeper();
        let mut settings = settings.map_err(|error| Failure::usage(with_causes(&error)))?;
        settings.creates_root = access == Access::Write;
        let root = settings.root.clone();
        let keyring = keyring(config)?;
        let tree = ZookeeperTree::open(settings).map_err(failure)?;
        tree.connected().await.map_err(failure)?;
        let (zookeeper, is_sealed) = (Some(tree.clone()), keyring.is_some());
        let tree: Arc<dyn Tree> = match keyring {
            Some(keyring) => Arc::new(SealedTree::new(Arc::new(tree), Arc::new(keyring))),
            None => Arc::new(tree),
        };
        Ok(OpenedTree {
            tree,
            root,
            zookeeper,
            is_sealed,
            owned: None,
        })
    }
}

fn embedded(session: EmbeddedSession, root: TreePath, owned: Option<OwnedTree>) -> OpenedTree {
    OpenedTree {
        tree: Arc::new(session),
        root,
        zookeeper: None,
        is_sealed: false,
        owned,
    }
}

/// The keys with which servers and builders authenticate nodes; `None`: none are configured.
fn keyring(config: &Config) -> Result<Option<Keyring>, Failure> {
    if config.keys.file.as_os_str().is_empty() {
        return Ok(None);
    }
    // A builder's configuration has them already.
    let keyring = match config.builder_keyring() {
        Ok(keyring) => Ok(keyring),
        Err(_) => config.keyring().map(|keyring| keyring.of_builders()),
    };
    keyring
        .map(Some)
        .map_err(|error| Failure::usage(with_causes(&error)))
}

impl OpenedTree {
    pub(super) async fn close(self) -> Result<(), Failure> {
        drop(self.tree);
        match self.owned {
            Some(owned) => owned.close().await.map_err(|error| store_failure(&error)),
            None => Ok(()),
        }
    }
}

fn open_store(config: &Config) -> Result<Store, Failure> {
    if config.database.url.is_empty() {
        let text = "database.url: is missing: give sqlite:<path> or postgres://…";
        return Err(Failure::usage(text));
    }
    let options = Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    if let Some(file) = options.missing_file() {
        let text = format!("the database {} does not exist", file.display());
        return Err(Failure::new(Exit::NotFound, text));
    }
    Store::open(&options).map_err(|error| store_failure(&error))
}

fn store_failure(error: &StoreError) -> Failure {
    Failure::failed(with_causes(error))
}

fn open_failure(error: OpenTreeError) -> Failure {
    match error {
        OpenTreeError::InUse(_) => Failure::new(Exit::Conflict, error.to_string()),
        OpenTreeError::Store(error) => store_failure(&error),
        OpenTreeError::Tree(error) => failure(error),
    }
}

/// The failure of a command because of the tree.
pub(super) fn failure(error: TreeError) -> Failure {
    let exit = match &error {
        TreeError::NoNode(_) => Exit::NotFound,
        TreeError::NotPermitted(_) | TreeError::LoginRefused(_) | TreeError::Unprotected { .. } => {
            Exit::NotAllowed
        }
        TreeError::NodeExists(_)
        | TreeError::BadVersion(_)
        | TreeError::NotEmpty(_)
        | TreeError::TakenOver(_) => Exit::Conflict,
        TreeError::Disconnected { .. }
        | TreeError::TimedOut { .. }
        | TreeError::ConnectionLost
        | TreeError::SessionLost => Exit::Unreachable,
        TreeError::BadSettings(_) | TreeError::BadPath(_) => Exit::Usage,
        TreeError::EphemeralParent(_)
        | TreeError::Root(_)
        | TreeError::TooLarge { .. }
        | TreeError::MultiTooLarge(_)
        | TreeError::TooManyOps(_)
        | TreeError::SequenceUsedUp(_)
        | TreeError::Full(_)
        | TreeError::Operation { .. }
        | TreeError::Storage(_)
        | TreeError::Unexpected(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
