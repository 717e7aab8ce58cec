//! The tree of a ZooKeeper deployment.

mod access;
mod answers;
mod link;
mod protection;
mod servers;
mod settings;
mod subtree;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acl, Acls, Client, CreateMode};

use super::Tree;
use super::error::TreeError;
use super::node::{Lifetime, Node, Op, OpResult, Stat};
use super::node::{check_not_root, check_ops, check_size, sequential_path, unnumbered_path};
use super::path::TreePath;
use super::session::{SessionId, SessionState};
use super::watch::{NodeWatch, SUBTREE_EVENTS, SubtreeWatch, subtree_watch};
use answers::{call_error, create_error, multi_error, node_event, to_result, to_stat};
use link::Link;

pub use servers::check_servers;
pub use settings::{TreeLogin, TreeTls, ZookeeperSettings};

/// A client that makes a new session whenever one ended.
///
/// The session is closed when the last handle is dropped.
#[derive(Clone)]
pub struct ZookeeperTree {
    link: watch::Receiver<Link>,
    state: watch::Receiver<SessionState>,
    acls: Arc<Vec<Acl>>,
    has_login: bool,
    /// Whether our nodes are below a node of ours, and not below the root of ZooKeeper.
    has_root: bool,
    limit: Duration,
    /// Its drop ends the task that keeps the session.
    _stop: Arc<oneshot::Sender<()>>,
}

impl ZookeeperTree {
    /// Starts to connect. Calls wait for the session.
    pub fn open(settings: ZookeeperSettings) -> Result<Self, TreeError> {
        settings.check()?;
        let acls = Arc::new(access::acls(settings.login.as_ref()));
        let limit = settings.call_limit;
        let (has_login, has_root) = (settings.login.is_some(), !settings.root.is_root());
        let (link_sender, link) = watch::channel(Link::default());
        let (state_sender, state) = watch::channel(SessionState::Lost);
        let (stop, stopped) = oneshot::channel();
        let keeper = link::Keeper::new(settings, Arc::clone(&acls), link_sender, state_sender);
        tokio::spawn(keeper.run(stopped));
        Ok(Self {
            link,
            state,
            acls,
            has_login,
            has_root,
            limit,
            _stop: Arc::new(stop),
        })
    }

    /// Waits for the first session, at most for the time limit of calls. A login that the server
    /// refuses is an error at once.
    pub async fn connected(&self) -> Result<SessionId, TreeError> {
        let mut link = self.link.clone();
        let until = Instant::now() + self.limit;
        let settled = link.wait_for(|link| link.client.is_some() || link.is_refused());
        match timeout_at(until, settled).await {
            Ok(Ok(link)) => match (&link.client, &link.problem) {
                (Some(client), _) => Ok(SessionId(client.session_id().0)),
                (None, Some(problem)) => Err(problem.clone()),
                (None, None) => Err(self.disconnected()),
            },
            Ok(Err(_)) | Err(_) => Err(self.disconnected()),
        }
    }

    fn disconnected(&self) -> TreeError {
        let reason = match &self.link.borrow().problem {
            Some(TreeError::Disconnected { reason, .. }) => reason.clone(),
            Some(problem) => problem.to_string(),
            None => "no server answered".to_owned(),
        };
        let limit_ms = self.limit.as_millis();
        TreeError::Disconnected { limit_ms, reason }
    }

    /// Calls with the current client, within the time limit.
    async fn call<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, TreeError>
    where
        F: Future<Output = Result<T, TreeError>>,
    {
        let until = Instant::now() + self.limit;
        // Without a clone if a session exists, so that calls are sent in the order of their polls.
        let current = self.link.borrow().client.clone();
        let client = match current {
            Some(client) => client,
            None => {
                let mut link = self.link.clone();
                let connected = link.wait_for(|link| link.client.is_some());
                match timeout_at(until, connected).await {
                    Ok(Ok(link)) => link.client.clone().ok_or_else(|| self.disconnected())?,
                    Ok(Err(_)) | Err(_) => return Err(self.disconnected()),
                }
            }
        };
        let limit_ms = self.limit.as_millis();
        let result = timeout_at(until, call(client)).await;
        result.unwrap_or(Err(TreeError::TimedOut { limit_ms }))
    }
}

impl fmt::Debug for ZookeeperTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZookeeperTree")
            .field(&*self.state.borrow())
            .finish()
    }
}

fn mode(lifetime: Lifetime, is_sequential: bool) -> CreateMode {
    match (lifetime, is_sequential) {
        (Lifetime::Persistent, false) => CreateMode::Persistent,
        (Lifetime::Persistent, true) => CreateMode::PersistentSequential,
        (Lifetime::Ephemeral, false) => CreateMode::Ephemeral,
        (Lifetime::Ephemeral, true) => CreateMode::EphemeralSequential,
    }
}

#[async_trait]
impl Tree for ZookeeperTree {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        check_not_root(path, "created")?;
        check_size(path, data.len())?;
        let created = self.call(|client| async move {
            let options = mode(lifetime, false).with_acls(Acls::new(&self.acls));
            let created = client.create(path.as_str(), data, &options).await;
            created.map_err(|error| create_error(error, path))
        });
        let (stat, _) = created.await?;
        Ok(to_stat(&stat))
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        check_size(parent, data.len())?;
        sequential_path(parent, prefix, 0)?;
        let created = self.call(|client| async move {
            let options = mode(lifetime, true).with_acls(Acls::new(&self.acls));
            let path = unnumbered_path(parent, prefix);
            let created = client.create(&path, data, &options).await;
            created.map_err(|error| call_error(error, parent))
        });
        let (stat, sequence) = created.await?;
        let number = u32::try_from(sequence.into_i64());
        let number = number.map_err(|_| TreeError::SequenceUsedUp(parent.clone()))?;
        Ok((sequential_path(parent, prefix, number)?, to_stat(&stat)))
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        let read = self.call(|client| async move {
            let read = client.get_data(path.as_str()).await;
            read.map_err(|error| call_error(error, path))
        });
        let (data, stat) = read.await?;
        let stat = to_stat(&stat);
        let forged = None;
        Ok(Node { data, stat, forged })
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        check_size(path, data.len())?;
        let set = self.call(|client| async move {
            let set = client.set_data(path.as_str(), data, expected).await;
            set.map_err(|error| call_error(error, path))
        });
        Ok(to_stat(&set.await?))
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        check_not_root(path, "deleted")?;
        let deleted = self.call(|client| async move {
            let deleted = client.delete(path.as_str(), expected).await;
            deleted.map_err(|error| call_error(error, path))
        });
        deleted.await
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        let read = self.call(|client| async move {
            let read = client.check_stat(path.as_str()).await;
            read.map_err(|error| call_error(error, path))
        });
        Ok(read.await?.as_ref().map(to_stat))
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        let read = self.call(|client| async move {
            let read = client.list_children(path.as_str()).await;
            read.map_err(|error| call_error(error, path))
        });
        let mut names = read.await?;
        names.sort();
        Ok(names)
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        check_ops(ops)?;
        let written = self.call(|client| async move {
            let mut writer = client.new_multi_writer();
            for op in ops {
                let added = self.add_op(&mut writer, op);
                added.map_err(|error| call_error(error, op.path()))?;
            }
            let written = writer.commit().await;
            written.map_err(|error| multi_error(error, ops))
        });
        written.await?.into_iter().map(to_result).collect()
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        let read = self.call(|client| async move {
            let read = client.check_and_watch_stat(path.as_str()).await;
            read.map_err(|error| call_error(error, path))
        });
        let (stat, watcher) = read.await?;
        let path = path.clone();
        let watch = NodeWatch::of(async move { node_event(watcher.changed().await, &path) });
        Ok((stat.as_ref().map(to_stat), watch))
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        let read = self.call(|client| async move {
            let read = client.list_and_watch_children(path.as_str()).await;
            read.map_err(|error| call_error(error, path))
        });
        let (mut names, watcher) = read.await?;
        names.sort();
        let path = path.clone();
        let watch = NodeWatch::of(async move { node_event(watcher.changed().await, &path) });
        Ok((names, watch))
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        let set = self.call(|client| subtree::watch(client, path.clone()));
        let (watcher, session) = set.await?;
        let (sender, watch) = subtree_watch(SUBTREE_EVENTS);
        let link = self.link.clone();
        tokio::spawn(subtree::forward(
            link,
            path.clone(),
            watcher,
            session,
            sender,
        ));
        Ok(watch)
    }

    fn session(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }
}

impl ZookeeperTree {
    fn add_op(
        &self,
        writer: &mut zookeeper_client::MultiWriter<'_>,
        op: &Op,
    ) -> Result<(), zookeeper_client::Error> {
        match op {
            Op::Create {
                path,
                data,
                lifetime,
            } => {
                let options = mode(*lifetime, false).with_acls(Acls::new(&self.acls));
                writer.add_create(path.as_str(), data, &options)
            }
            Op::CreateSequential {
                parent,
                prefix,
                data,
                lifetime,
            } => {
                let options = mode(*lifetime, true).with_acls(Acls::new(&self.acls));
                writer.add_create(&unnumbered_path(parent, prefix), data, &options)
            }
            Op::Set {
                path,
                data,
                expected,
            } => writer.add_set_data(path.as_str(), data, *expected),
            Op::Delete { path, expected } => writer.add_delete(path.as_str(), *expected),
            Op::Check { path, expected } => {
                writer.add_check_version(path.as_str(), expected.unwrap_or(-1))
            }
        }
    }
}
