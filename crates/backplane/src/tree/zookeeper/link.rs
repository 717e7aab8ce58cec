//! The session with ZooKeeper: made, watched, and made again after its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, Client, CreateMode, Error};

use super::answers::{call_error, session_error};
use super::settings::ZookeeperSettings;
use crate::tree::error::TreeError;
use crate::tree::path::TreePath;
use crate::tree::session::{SessionId, SessionState};

/// The current client, or why none exists.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub(super) client: Option<Client>,
    pub(super) problem: Option<TreeError>,
}

impl Link {
    /// Whether waiting for a session will most likely not help.
    pub(super) fn is_refused(&self) -> bool {
        let Some(problem) = &self.problem else {
            return false;
        };
        !problem.is_outcome_unknown() && !matches!(problem, TreeError::Disconnected { .. })
    }
}

/// Makes sessions until the tree is dropped.
pub(super) struct Keeper {
    settings: ZookeeperSettings,
    acls: Arc<Vec<Acl>>,
    link: watch::Sender<Link>,
    state: watch::Sender<SessionState>,
}

/// Pauses between attempts to connect double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The server gets this long to take note of the end of a session.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

impl Keeper {
    pub(super) fn new(
        settings: ZookeeperSettings,
        acls: Arc<Vec<Acl>>,
        link: watch::Sender<Link>,
        state: watch::Sender<SessionState>,
    ) -> Self {
        Self {
            settings,
            acls,
            link,
            state,
        }
    }

    pub(super) async fn run(self, mut stopped: oneshot::Receiver<()>) {
        tokio::select! {
            _ = &mut stopped => {}
            () = self.keep() => {}
        }
        let client = self.link.send_replace(Link::default()).client;
        let _ = self.state.send(SessionState::Lost);
        if let Some(client) = client {
            close(client).await;
        }
    }

    async fn keep(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(client) => {
                    pause = FIRST_PAUSE;
                    self.serve(client).await;
                }
                Err(problem) => {
                    let client = None;
                    let problem = Some(problem);
                    self.link.send_replace(Link { client, problem });
                    let _ = timeout(pause, std::future::pending::<()>()).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<Client, TreeError> {
        let connector = self.settings.connector()?;
        let servers = self.settings.servers.replace(' ', "");
        let connected = async {
            if self.settings.tls.is_some() {
                connector.secure_connect(&servers).await
            } else {
                connector.connect(&servers).await
            }
        };
        let limit = self.settings.session.max(Duration::from_secs(5));
        let unreachable = |detail: &str| TreeError::Disconnected {
            limit_ms: limit.as_millis(),
            reason: format!("no server of {servers} accepts the connection{detail}"),
        };
        let client = match timeout(limit, connected).await {
            Ok(Ok(client)) => client,
            Ok(Err(Error::NoHosts | Error::ConnectionLoss | Error::Timeout)) => {
                let tls = "; check the certificates of both sides";
                return Err(unreachable(if self.settings.tls.is_some() {
                    tls
                } else {
                    ""
                }));
            }
            Ok(Err(error)) => return Err(session_error(error)),
            Err(_) => return Err(unreachable(" in time")),
        };
        let made_root = timeout(limit, self.make_root(&client)).await;
        made_root.unwrap_or_else(|_| Err(unreachable(" in time")))?;
        let root = self.settings.root.as_str().to_owned();
        let client = client.chroot(root);
        client.map_err(|_| TreeError::BadSettings("root is not a path".to_owned()))
    }

    /// Creates the root with its parents, so that nobody else can write to them.
    async fn make_root(&self, client: &Client) -> Result<(), TreeError> {
        let root = &self.settings.root;
        let mut missing = Vec::new();
        let mut next = Some(root.clone());
        while let Some(path) = next.filter(|path| !path.is_root()) {
            let stat = client.check_stat(path.as_str()).await;
            if stat.map_err(|error| call_error(error, &path))?.is_some() {
                break;
            }
            next = path.parent();
            missing.push(path);
        }
        if !self.settings.creates_root && !missing.is_empty() {
            return Err(TreeError::NoNode(root.clone()));
        }
        for path in missing.into_iter().rev() {
            self.make_node(client, &path).await?;
        }
        Ok(())
    }

    async fn make_node(&self, client: &Client, path: &TreePath) -> Result<(), TreeError> {
        let options = CreateMode::Persistent.with_acls(Acls::new(&self.acls));
        match client.create(path.as_str(), b"", &options).await {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(call_error(error, path)),
        }
    }

    /// Follows the state of a session until it ends.
    async fn serve(&self, client: Client) {
        let id = SessionId(client.session_id().0);
        let mut watcher = client.state_watcher();
        let mut state = client.state();
        let (client, problem) = (Some(client), None);
        self.link.send_replace(Link { client, problem });
        loop {
            use zookeeper_client::SessionState as State;
            let seen = match state {
                State::SyncConnected | State::ConnectedReadOnly => SessionState::Connected(id),
                State::Disconnected => SessionState::Suspended(id),
                State::AuthFailed | State::Expired | State::Closed => break,
            };
            let _ = self.state.send(seen);
            state = watcher.changed().await;
        }
        let _ = self.state.send(SessionState::Lost);
        self.link.send_replace(Link::default());
    }
}

/// Closes the session, so that its ephemeral nodes end at once.
async fn close(client: Client) {
    let mut watcher = client.state_watcher();
    drop(client);
    let closed = async { while !watcher.changed().await.is_terminated() {} };
    let _ = timeout(CLOSE_LIMIT, closed).await;
}
