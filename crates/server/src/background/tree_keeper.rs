//! Opens the tree, and keeps the process among its members.

use std::sync::Arc;
use std::time::Duration;

use api_client::with_causes;
use backplane::tree::{Member, Membership, SealedTree, SessionState, Tree, TreeError};
use cloud::image::TrustedKeys;
use engine::tree::{OpenTreeError, OwnedTree};
use images::{ImagePaths, ImageTree, TreeOwnership};
use store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::app::App;
use crate::build_logs::LogSeal;
use crate::builder::{self, BuilderNeeds, BuilderProblem, EngineTargets, process_name};
use crate::config::{Role, TreeKind};
use crate::image_secrets::EngineSecrets;

/// Pause between two attempts to open the tree.
const RETRY: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
enum TreeProblem {
    #[error(transparent)]
    Embedded(#[from] OpenTreeError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Open(#[from] builder::OpenProblem),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "it belongs to the database {theirs}, and the database of this server is {ours}: use another \
         `tree.root`, or let this database take the tree over with `fleetwright tree adopt`"
    )]
    OtherDatabase { theirs: String, ours: String },
    #[error("another process took the embedded tree over")]
    TakenOver,
}

/// Keeps the tree of the app open until it stops. A problem is logged once.
pub async fn keep(app: Arc<App>, stop: CancellationToken) {
    let mut reported = String::new();
    while let Some(ended) = stop.run_until_cancelled(open(&app)).await {
        let problem = match ended {
            Ok(opened) => {
                reported.clear();
                match opened.serve(&app, &stop).await {
                    Ok(()) => return,
                    Err(problem) => problem,
                }
            }
            Err(problem) => problem,
        };
        let text = with_causes(&problem);
        app.tree.note_problem(text.clone());
        if text != reported {
            tracing::warn!(error = %text, "the tree is not usable, and is tried again: {text}");
            reported = text;
        }
        let _ = timeout(RETRY, stop.cancelled()).await;
    }
}

struct OpenedTree {
    tree: Arc<dyn Tree>,
    /// The same tree, if its nodes carry seals.
    sealed: Option<Arc<SealedTree>>,
    /// The embedded tree is ours until we close it.
    owned: Option<OwnedTree>,
}

async fn open(app: &App) -> Result<OpenedTree, TreeProblem> {
    match app.config.tree.kind {
        TreeKind::Embedded => {
            let owned = engine::tree::open(&app.engine.store, &app.engine.clock).await?;
            let tree = Arc::new(owned.tree.session());
            let (owned, sealed) = (Some(owned), None);
            Ok(OpenedTree {
                tree,
                sealed,
                owned,
            })
        }
        TreeKind::Zookeeper => {
            let sealed = builder::open_tree(&app.config, &app.builder_keys).await?;
            let tree: Arc<dyn Tree> = Arc::clone(&sealed) as _;
            claim(app, &tree).await?;
            let (owned, sealed) = (None, Some(sealed));
            Ok(OpenedTree {
                tree,
                sealed,
                owned,
            })
        }
    }
}

/// Fails if the tree belongs to another database: a server would take images that its own database
/// lacks for deleted, and those of the same name for its own.
async fn claim(app: &App, tree: &Arc<dyn Tree>) -> Result<(), TreeProblem> {
    let id = app.engine.random.slugid();
    let ours = app.engine.store.write("database_identity", move |tx| {
        store::database_identity::get_or_insert(tx, &id)
    });
    let ours = ours.await?;
    match images::claim_tree(tree, &ours).await? {
        TreeOwnership::Ours => Ok(()),
        TreeOwnership::Other(theirs) => Err(TreeProblem::OtherDatabase { theirs, ours }),
    }
}

impl OpenedTree {
    /// Lets others use the tree until the process stops, or the tree is lost for good.
    async fn serve(self, app: &Arc<App>, stop: &CancellationToken) -> Result<(), TreeProblem> {
        let name = process_name(app.engine.clock.as_ref());
        let membership = match Membership::join(&self.tree, &name, &member(app)).await {
            Ok(membership) => membership,
            Err(error) => {
                if let Some(owned) = self.owned {
                    let _ = owned.close().await;
                }
                return Err(error.into());
            }
        };
        let images = ImageTree::new(Arc::clone(&self.tree), TrustedKeys::new(&app.builder_keys));
        let following = tokio::spawn({
            let images = Arc::clone(&images);
            async move { images.follow().await }
        });
        app.tree.open(Arc::clone(&images));
        let waking = tokio::spawn({
            let (app, mut revision) = (Arc::clone(app), images.revision());
            async move {
                // Definitions may have changed while there was no tree.
                if revision.wait_for(|revision| *revision > 0).await.is_ok() {
                    app.engine.wakeups.images.notify_one();
                }
                while revision.changed().await.is_ok() {
                    app.engine.wakeups.image_rollouts.notify_one();
                }
            }
        });
        let mirroring = tokio::spawn(follow_outages(Arc::clone(app), self.tree.session()));
        let sealing = self.sealed.map(|sealed| {
            let app = Arc::clone(app);
            AbortOnDropHandle::new(tokio::spawn(async move { seal_again(&app, &sealed).await }))
        });
        let building = build(app, name, images, stop.child_token());
        let mut state = self.tree.session();
        let is_embedded = self.owned.is_some();
        // A lost session with ZooKeeper is followed by the next one.
        let lost = state.wait_for(|state| is_embedded && *state == SessionState::Lost);
        let is_stopped = tokio::select! {
            () = stop.cancelled() => true,
            _ = lost => false,
        };
        app.tree.close();
        if let Some((building, stop)) = building {
            stop.cancel();
            let _ = building.await;
        }
        following.abort();
        waking.abort();
        mirroring.abort();
        drop(sealing);
        if !is_stopped {
            return Err(TreeProblem::TakenOver);
        }
        // If this fails, the session or its lease ends a little later.
        let _ = membership.leave().await;
        drop(self.tree);
        if let Some(owned) = self.owned {
            let _ = owned.close().await;
        }
        Ok(())
    }
}

/// Seals nodes again that an older key sealed, so that the key can be removed.
async fn seal_again(app: &App, sealed: &SealedTree) {
    if app.builder_keys.older_ids().next().is_none() {
        return;
    }
    let Ok(root) = ImagePaths::root() else {
        return;
    };
    match sealed.seal_again(&root).await {
        Ok(n_nodes) => tracing::info!(n_nodes, "sealed {n_nodes} nodes of the tree again"),
        Err(error) => {
            tracing::warn!(%error, "not all nodes of the tree are sealed with the first key: {error}");
        }
    }
}

/// Notes since when the tree is not reachable. Afterwards, definitions are written again that
/// changed meanwhile.
async fn follow_outages(app: Arc<App>, mut state: watch::Receiver<SessionState>) {
    let is_connected = |state: &SessionState| state.connected().is_some();
    while state.wait_for(|state| !is_connected(state)).await.is_ok() {
        app.tree.note_away(Some(app.engine.clock.now()));
        if state.wait_for(is_connected).await.is_err() {
            return;
        }
        app.tree.note_away(None);
        app.engine.wakeups.images.notify_one();
    }
}

/// Starts the builder of this process, if it has that role. Returns how to stop it.
fn build(
    app: &Arc<App>,
    name: String,
    images: Arc<ImageTree>,
    stop: CancellationToken,
) -> Option<(JoinHandle<()>, CancellationToken)> {
    if !app.config.roles.include(Role::Builder) {
        return None;
    }
    let needs = BuilderNeeds {
        name,
        images,
        targets: Arc::new(EngineTargets(Arc::clone(&app.engine))),
        clock: Arc::clone(&app.engine.clock),
        secrets: Arc::new(EngineSecrets(Arc::clone(&app.engine))),
        live: app.live_builds.clone(),
        seal: LogSeal::of(app),
        stop: stop.clone(),
    };
    let app = Arc::clone(app);
    let building = tokio::spawn(async move {
        let ended = match builder::open(&app.config, needs).await {
            Ok(Some(builder)) => builder.run().await.map_err(BuilderProblem::from),
            Ok(None) => {
                tracing::info!(
                    "this process builds no images: neither `data` nor `images.folder` is configured"
                );
                Ok(())
            }
            Err(problem) => Err(problem),
        };
        if let Err(problem) = ended {
            let text = with_causes(&problem);
            tracing::error!(error = %text, "this process builds no images: {text}");
        }
    });
    Some((building, stop))
}

fn member(app: &App) -> Member {
    Member {
        role: app.config.roles.names(),
        address: app.config.root_url(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
