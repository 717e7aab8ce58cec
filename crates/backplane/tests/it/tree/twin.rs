//! The two implementations, as tests use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{
    CallLimits, EmbeddedSession, EmbeddedTree, MemoryStorage, SessionId, SessionState, Tree,
    TreeLimits, TreePath, TreeStorage, ZookeeperSettings, ZookeeperTree,
};
use domain::time::{Clock, Timestamp};

use super::proxy::Proxy;
use crate::broker::{WAIT_LIMIT, unique};

/// Sessions of tests with ZooKeeper end this long after their last contact.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

pub(crate) enum Twin {
    Embedded(EmbeddedTree),
    Zookeeper(Server, TreePath),
}

/// A session, and what it takes to end it.
pub(crate) struct TestSession {
    pub(crate) tree: Arc<dyn Tree>,
    end: EndSession,
}

enum EndSession {
    Embedded(EmbeddedSession),
    Zookeeper(Proxy),
}

/// A server of `scripts/with-zookeeper`.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
}

pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }
}

impl Twin {
    pub(crate) async fn embedded() -> Self {
        Self::Embedded(open_embedded(Arc::new(MemoryStorage::default())).await)
    }

    /// `None`, with a printed note, if no server is configured.
    pub(crate) fn zookeeper() -> Option<Self> {
        let root = format!("/{}", unique("contract"));
        Some(Self::Zookeeper(Server::main()?, root.parse().unwrap()))
    }

    pub(crate) async fn session(&self) -> TestSession {
        match self {
            Self::Embedded(tree) => {
                let session = tree.session();
                TestSession {
                    tree: Arc::new(session.clone()),
                    end: EndSession::Embedded(session),
                }
            }
            Self::Zookeeper(server, root) => {
                let proxy = Proxy::to(&server.address()).await;
                let mut settings = server.settings(root);
                settings.servers = proxy.address.clone();
                let tree = connect(settings).await;
                let end = EndSession::Zookeeper(proxy);
                TestSession { tree, end }
            }
        }
    }
}

impl TestSession {
    /// Ends the session as a lost connection does, and waits for the next one.
    pub(crate) async fn expire(&self) -> SessionId {
        let mut state = self.tree.session();
        let before = state.borrow().connected().unwrap();
        match &self.end {
            EndSession::Embedded(session) => session.expire(),
            EndSession::Zookeeper(proxy) => {
                proxy.cut(true);
                let ended = state.wait_for(|state| !state.may_be(before));
                within(ended).await.unwrap();
                proxy.cut(false);
            }
        }
        let is_new = |state: &SessionState| state.connected().is_some_and(|id| id != before);
        let state = within(state.wait_for(is_new)).await.unwrap();
        state.connected().unwrap()
    }
}

pub(crate) async fn open_embedded(storage: Arc<dyn TreeStorage>) -> EmbeddedTree {
    let (tree_limits, limits) = (TreeLimits::default(), CallLimits::default());
    let opened = EmbeddedTree::open(storage, Arc::new(FixedClock), tree_limits, limits);
    opened.await.unwrap()
}

pub(crate) async fn connect(settings: ZookeeperSettings) -> Arc<dyn Tree> {
    let tree = ZookeeperTree::open(settings).unwrap();
    // The limits of some tests are shorter than a busy machine takes to connect.
    let mut state = tree.session();
    within(state.wait_for(|state| state.connected().is_some()))
        .await
        .unwrap();
    Arc::new(tree)
}

impl Server {
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    pub(crate) fn main() -> Option<Self> {
        let Ok(folder) = std::env::var("TEST_ZOOKEEPER") else {
            println!("skipped: TEST_ZOOKEEPER is not set");
            return None;
        };
        let (folder, name) = (folder.into(), "main".to_owned());
        Some(Self { folder, name })
    }

    /// A server of its own, for tests that stop it.
    pub(crate) async fn spawn() -> Option<Self> {
        let main = Self::main()?;
        let name = main.control(&["spawn"]).await;
        Some(Self { name, ..main })
    }

    /// Runs the program that controls servers, and returns its output.
    pub(crate) async fn control(&self, arguments: &[&str]) -> String {
        let program = std::env::var("TEST_ZOOKEEPER_CONTROL").unwrap();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let output = tokio::task::spawn_blocking(move || {
            // A server that it starts keeps its standard error open, so it is not read.
            std::process::Command::new(program)
                .args(arguments)
                .stderr(std::process::Stdio::inherit())
                .output()
        });
        let output = output.await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) async fn kill(&self) {
        self.control(&["kill", &self.name]).await;
    }

    pub(crate) async fn start(&self) {
        self.control(&["start", &self.name]).await;
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap()
    }

    pub(crate) fn address(&self) -> String {
        self.read(&format!("{}/address", self.name))
    }

    pub(crate) fn settings(&self, root: &TreePath) -> ZookeeperSettings {
        ZookeeperSettings {
            servers: self.address(),
            root: root.clone(),
            creates_root: true,
            session: SESSION,
            call_limit: WAIT_LIMIT,
            login: None,
            tls: None,
        }
    }
}

pub(crate) fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

/// Waits for a future within the time limit of tests.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(WAIT_LIMIT, future).await;
    result.unwrap_or_else(|_| panic!("nothing within {WAIT_LIMIT:?}"))
}
