//! A copy of the nodes about images, kept by one watch of the tree.
//!
//! The events of a watch come in the order of the changes. So a process that sees its own lock in
//! the copy also sees everything that happened before it took the lock.

mod known;
mod node;
mod provenance;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use backplane::tree::{MAX_WALKED, Node, SubtreeWatch, Tree, TreeError, TreeEvent, TreePath, walk};
use cloud::image::TrustedKeys;
use domain::id::{ImageName, ProviderId};
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

pub use self::known::Changes;
use self::known::Known;
pub(crate) use self::known::says_removed;
pub(crate) use self::node::DefinitionText;
pub use self::node::{
    BuildNode, BuilderNode, CancelNote, Contender, ImageNode, MirroredDefinition, Note, TargetNode,
    UploadNode,
};
pub use self::view::OwnedView;
use crate::paths::{ImagePaths, Place};

/// Reads at once.
const READS_AT_ONCE: usize = 64;
/// Events that are applied together.
const BATCH: usize = 1_000;
/// Pause after a failed read.
const RETRY: Duration = Duration::from_millis(500);

/// A copy of the nodes about images.
#[derive(Debug)]
pub struct ImageTree {
    tree: Arc<dyn Tree>,
    known: RwLock<Known>,
    /// The revision of the copy; 0: nothing has been read yet.
    revision: watch::Sender<u64>,
}

impl ImageTree {
    /// An empty copy, which `follow` fills. Builds count only with a record that one of the keys
    /// signed.
    pub fn new(tree: Arc<dyn Tree>, trusted: TrustedKeys) -> Arc<Self> {
        Arc::new(Self {
            tree,
            known: RwLock::new(Known::new(Arc::new(trusted))),
            revision: watch::channel(0).0,
        })
    }

    pub fn tree(&self) -> &Arc<dyn Tree> {
        &self.tree
    }

    /// Keeps the copy until the tree is closed. Failed reads are repeated.
    pub async fn follow(&self) {
        loop {
            match self.follow_once().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the images in the tree, trying again: {error}");
                    let _ = timeout(RETRY, std::future::pending::<()>()).await;
                }
            }
        }
    }

    /// Returns when the tree is closed.
    async fn follow_once(&self) -> Result<(), TreeError> {
        let mut watch = self.tree.watch_subtree(&ImagePaths::root()?).await?;
        self.read_all().await?;
        while let Some(event) = watch.next().await {
            match dirty(event, &mut watch) {
                Some(paths) => self.read(paths).await?,
                None => self.read_all().await?,
            }
        }
        Ok(())
    }

    async fn read_all(&self) -> Result<(), TreeError> {
        let mut read = self.known().empty();
        for root in [
            ImagePaths::images()?,
            ImagePaths::builders()?,
            Place::Providers.path()?,
        ] {
            for (path, node) in walk(&self.tree, &root, MAX_WALKED).await? {
                if let Some(place) = Place::of(&path) {
                    read.note(&place, Some(&node));
                }
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        read.follow(&known);
        *known = read;
        self.revision.send_replace(known.revision);
        Ok(())
    }

    async fn read(&self, paths: BTreeMap<TreePath, bool>) -> Result<(), TreeError> {
        let places = paths.into_iter().filter_map(|(path, exists)| {
            let place = Place::of(&path)?;
            Some((place, path, exists))
        });
        let reads = places.map(|(place, path, exists)| async move {
            let node = match exists {
                true => read_node(&self.tree, &path).await?,
                false => None,
            };
            Ok::<_, TreeError>((place, node))
        });
        let read: Vec<(Place, Option<Node>)> = stream::iter(reads)
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await?;
        if read.is_empty() {
            return Ok(());
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for (place, node) in &read {
            known.note(place, node.as_ref());
        }
        self.revision.send_replace(known.revision);
        Ok(())
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes with each change of the copy; 0 until everything has been read once.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The images that changed after this revision.
    pub fn changed_since(&self, revision: u64) -> Changes {
        self.known().changed_since(revision)
    }

    /// Looks at an image; `None`: the tree has no such image.
    pub fn image<T>(&self, name: &ImageName, look: impl FnOnce(&ImageNode) -> T) -> Option<T> {
        self.known().images.get(name).map(look)
    }

    /// How many images wait for a build that was asked for, and how many are being built.
    pub fn count_requested_and_building(&self) -> (usize, usize) {
        let known = self.known();
        let images = known.images.values();
        let requested = images.clone().filter(|image| image.request.is_some());
        (
            requested.count(),
            images.filter(|image| image.running().is_some()).count(),
        )
    }

    pub fn names(&self) -> Vec<ImageName> {
        self.known().images.keys().cloned().collect()
    }

    pub fn builders(&self) -> BTreeMap<String, BuilderNode> {
        self.known().builders.clone()
    }

    /// The configured providers; empty if no server has said which they are.
    pub fn providers(&self) -> BTreeSet<ProviderId> {
        self.known().providers.clone().unwrap_or_default()
    }

    /// The tokens of all uploads.
    pub(crate) fn tokens(&self) -> BTreeSet<String> {
        let known = self.known();
        let builds = known
            .images
            .values()
            .flat_map(|image| image.builds.values());
        let uploads = builds
            .flat_map(|build| build.targets.values())
            .flat_map(|target| target.uploads.values());
        let records = uploads.filter_map(|upload| upload.record.as_ref());
        records.filter_map(|record| record.token.clone()).collect()
    }

    /// Waits until the image is as expected. Returns whether that came in time.
    pub async fn wait_for(
        &self,
        name: &ImageName,
        limit: Duration,
        mut is_expected: impl FnMut(Option<&ImageNode>) -> bool,
    ) -> bool {
        let mut revision = self.revision();
        let found = async {
            loop {
                revision.mark_unchanged();
                if is_expected(self.known().images.get(name)) {
                    return true;
                }
                if revision.changed().await.is_err() {
                    return false;
                }
            }
        };
        timeout(limit, found).await.unwrap_or(false)
    }
}

/// The nodes of this event and of those that wait, and whether each may exist; `None`: read all.
fn dirty(first: TreeEvent, watch: &mut SubtreeWatch) -> Option<BTreeMap<TreePath, bool>> {
    let mut paths = BTreeMap::new();
    let mut event = first;
    loop {
        match event {
            TreeEvent::Created(path) | TreeEvent::Changed(path) => drop(paths.insert(path, true)),
            TreeEvent::Deleted(path) => drop(paths.insert(path, false)),
            // Its children are reported one by one.
            TreeEvent::Children(_) => {}
            TreeEvent::Resync => return None,
        }
        if paths.len() >= BATCH {
            return Some(paths);
        }
        match watch.next().now_or_never() {
            Some(Some(next)) => event = next,
            Some(None) | None => return Some(paths),
        }
    }
}

async fn read_node(tree: &Arc<dyn Tree>, path: &TreePath) -> Result<Option<Node>, TreeError> {
    match tree.get(path).await {
        Ok(node) => Ok(Some(node)),
        Err(TreeError::NoNode(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
