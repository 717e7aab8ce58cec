//! The two trees, as these tests use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backplane::tree::{
    CallLimits, EmbeddedSession, EmbeddedTree, MemoryStorage, SealedTree, SessionId, SessionState,
    Tree, TreeLimits, TreePath, ZookeeperSettings, ZookeeperTree,
};
use domain::time::Clock;

use super::clock::TestClock;
use super::proxy::Proxy;
use super::{WAIT_LIMIT, keyring, within};

/// Sessions with ZooKeeper end this long after their last contact. On a busy machine, a shorter one
/// would end by itself.
const SESSION: Duration = Duration::from_secs(6);

pub(crate) enum Twin {
    Embedded(EmbeddedTree, Arc<TestClock>),
    /// The address of a server, and the root for one test.
    Zookeeper(String, TreePath, Arc<TestClock>),
}

/// A session, and what it takes to end it.
pub(crate) struct TestSession {
    /// As the program has it in ZooKeeper: with seals.
    pub(crate) tree: Arc<dyn Tree>,
    /// The same tree for somebody who has no keys.
    pub(crate) raw: Arc<dyn Tree>,
    end: EndSession,
}

enum EndSession {
    Embedded(EmbeddedSession),
    Zookeeper(Proxy),
}

impl Twin {
    pub(crate) async fn embedded() -> Self {
        let clock = Arc::new(TestClock::start());
        let opened = EmbeddedTree::open(
            Arc::new(MemoryStorage::default()),
            Arc::clone(&clock) as Arc<dyn Clock>,
            TreeLimits::default(),
            CallLimits::default(),
        );
        Self::Embedded(opened.await.unwrap(), clock)
    }

    /// `None`, with a printed note, if no server is configured.
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    pub(crate) fn zookeeper() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let Ok(folder) = std::env::var("TEST_ZOOKEEPER") else {
            println!("skipped: TEST_ZOOKEEPER is not set");
            return None;
        };
        let address = PathBuf::from(folder).join("main/address");
        let address = std::fs::read_to_string(address).unwrap();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let root = format!("/images-{}-{number}", std::process::id());
        let clock = Arc::new(TestClock::start());
        Some(Self::Zookeeper(address, root.parse().unwrap(), clock))
    }

    pub(crate) fn clock(&self) -> &Arc<TestClock> {
        match self {
            Self::Embedded(_, clock) | Self::Zookeeper(_, _, clock) => clock,
        }
    }

    pub(crate) async fn session(&self) -> TestSession {
        match self {
            Self::Embedded(tree, _) => {
                let session = tree.session();
                TestSession::new(Arc::new(session.clone()), EndSession::Embedded(session))
            }
            Self::Zookeeper(address, root, _) => {
                let proxy = Proxy::to(address).await;
                let tree = ZookeeperTree::open(ZookeeperSettings {
                    servers: proxy.address.clone(),
                    root: root.clone(),
                    creates_root: true,
                    session: SESSION,
                    call_limit: WAIT_LIMIT,
                    login: None,
                    tls: None,
                });
                let tree = tree.unwrap();
                let mut state = tree.session();
                let connected = state.wait_for(|state| state.connected().is_some());
                within("a session", connected).await.unwrap();
                TestSession::new(Arc::new(tree), EndSession::Zookeeper(proxy))
            }
        }
    }
}

impl TestSession {
    fn new(raw: Arc<dyn Tree>, end: EndSession) -> Self {
        let tree = Arc::new(SealedTree::new(Arc::clone(&raw), keyring()));
        Self { tree, raw, end }
    }

    /// Ends the connection for good, so that the server ends the session.
    pub(crate) fn vanish(self) {
        match &self.end {
            EndSession::Embedded(session) => session.expire(),
            EndSession::Zookeeper(proxy) => proxy.cut(true),
        }
    }

    /// Loses the session: its ephemeral nodes end, and a new session follows.
    pub(crate) async fn expire(&self) -> SessionId {
        let mut state = self.tree.session();
        let before = state.borrow().connected().unwrap();
        match &self.end {
            EndSession::Embedded(session) => session.expire(),
            EndSession::Zookeeper(proxy) => {
                proxy.cut(true);
                let ended = state.wait_for(|state| !state.may_be(before));
                within("the end of the session", ended).await.unwrap();
                proxy.cut(false);
            }
        }
        let is_new = |state: &SessionState| state.connected().is_some_and(|id| id != before);
        let state = within("a new session", state.wait_for(is_new))
            .await
            .unwrap();
        state.connected().unwrap()
    }
}
