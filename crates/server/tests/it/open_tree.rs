//! The embedded tree of a server in a test, and the records that builders would write into it.

use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{Lifetime, create_parents};
use domain::id::ImageName;
use domain::image::{BuildNumber, UploadNumber, UploadTargetId};
use images::{ImageTree, Place};
use serde_json::{Value, json};
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{ImageMirror, tree_keeper};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::world::START_MS;

const LIMIT: Duration = Duration::from_secs(120);

/// The tree of a server, until it is closed.
pub(crate) struct OpenTree {
    pub(crate) images: Arc<ImageTree>,
    stop: CancellationToken,
    keeping: JoinHandle<()>,
}

impl OpenTree {
    pub(crate) async fn of(app: &Arc<App>) -> Self {
        let stop = CancellationToken::new();
        let keeping = tokio::spawn(tree_keeper::keep(Arc::clone(app), stop.clone()));
        let read = || {
            let images = app.tree.images()?;
            let is_read = *images.revision().borrow() > 0;
            is_read.then_some(images)
        };
        let images = until("the tree is read", read).await;
        Self {
            images,
            stop,
            keeping,
        }
    }

    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.keeping.await.unwrap();
    }

    /// Writes the record of a build, and waits until the copy has it.
    pub(crate) async fn write_build(&self, number: u64, record: &Value) {
        let (image, number) = ("linux".parse().unwrap(), BuildNumber(number));
        let path = Place::Build(image, number).path().unwrap();
        let data = record.to_string();
        let tree = self.images.tree();
        match tree
            .create(&path, data.as_bytes(), Lifetime::Persistent)
            .await
        {
            Ok(_) => {}
            Err(_) => drop(tree.set(&path, data.as_bytes(), None).await.unwrap()),
        }
        let state = record["state"].as_str().unwrap();
        let image = "linux".parse().unwrap();
        until("the copy has the build", || {
            let known = self.images.image(&image, |image| {
                let record = image.builds.get(&number)?.record.clone()?;
                Some(record.state.as_str() == state)
            });
            (known.flatten() == Some(true)).then_some(())
        })
        .await;
    }
}

impl OpenTree {
    /// Mirrors all definitions, and waits until the copy has this one.
    pub(crate) async fn mirror(&self, app: &Arc<App>, image: &str) {
        self.mirror_all(app).await;
        let image = image.parse().unwrap();
        until("the definition is in the copy", || {
            let is_there = self.images.image(&image, |it| it.definition.is_some());
            (is_there == Some(true)).then_some(())
        })
        .await;
    }

    pub(crate) async fn mirror_all(&self, app: &Arc<App>) {
        ImageMirror::new(Arc::clone(app)).activate().await.unwrap();
    }

    /// Writes a ready build with a ready upload, and waits until the copy has them.
    pub(crate) async fn write_uploaded(
        &self,
        image: &str,
        number: u64,
        target: &str,
        external_id: &str,
    ) {
        let (image, number) = (image.parse::<ImageName>().unwrap(), BuildNumber(number));
        let target: UploadTargetId = target.parse().unwrap();
        let build = Place::Build(image.clone(), number).path().unwrap();
        let uploads = Place::Uploads(image.clone(), number, target.clone());
        let upload = Place::Upload(image.clone(), number, target.clone(), UploadNumber(1));
        let tree = self.images.tree();
        for path in [uploads.path().unwrap(), upload.path().unwrap()] {
            create_parents(tree, &path).await.unwrap();
        }
        tree.set(&build, record("ready").to_string().as_bytes(), None)
            .await
            .unwrap();
        let record = json!({
            "state": "ready",
            "state_time": START_MS / 1_000,
            "external_id": external_id,
            "format": "raw",
        });
        let (path, data) = (upload.path().unwrap(), record.to_string());
        tree.create(&path, data.as_bytes(), Lifetime::Persistent)
            .await
            .unwrap();
        until("the copy has the upload", || {
            let is_there = self.images.image(&image, |image| {
                let build = image.builds.get(&number)?;
                build.record.as_ref()?;
                build
                    .targets
                    .get(&target)?
                    .uploads
                    .values()
                    .next()?
                    .record
                    .clone()
            });
            is_there.flatten().map(drop)
        })
        .await;
    }
}

/// Waits for a level. The tasks of the server run meanwhile.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            let pause = Duration::from_millis(5);
            // Time: between looks.
            let _ = timeout(pause, std::future::pending::<()>()).await;
        }
    };
    let found = timeout(LIMIT, looking).await;
    found.unwrap_or_else(|_| panic!("not reached: {what}"))
}

pub(crate) fn record(state: &str) -> Value {
    json!({
        "state": state,
        "state_time": START_MS / 1_000,
        "started": START_MS / 1_000 - 60,
        "finished": START_MS / 1_000,
        "builder": "elsewhere",
        "builder_id": "disk-1",
        "formats": "raw",
        "attempt": 1,
        "fence": 1,
        "reason": "no build is ready",
    })
}
