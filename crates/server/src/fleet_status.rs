//! The state of the fleet, read at most once a second for all callers.

use std::sync::{Arc, PoisonError, RwLock};

use domain::status::{
    FleetProblem, LatePart, of_part, of_standing, of_step, of_unreadable, sort_worst_first,
};
use domain::time::{Clock, Timestamp};
use engine::Engine;
use engine::status::{self, FleetStatus};
use images::ImageTree;
use tokio::sync::Mutex;

/// How long a status counts as current.
const FRESH_MS: i64 = 1_000;

/// The last status. Callers at the same time wait for the same one.
#[derive(Default)]
pub struct LastStatus {
    last: RwLock<Option<Arc<FleetStatus>>>,
    /// Held while a status is read.
    turn: Mutex<()>,
}

/// From where a status is read.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) engine: Arc<Engine>,
    pub(crate) images: Option<Arc<ImageTree>>,
}

impl LastStatus {
    /// The state of all pools and the problems, the worst first, for a caller who asked then. A
    /// status that was read while the caller waited is as good. A caller that accepts an older one
    /// does not wait: a newer one is read for the next caller.
    pub(crate) async fn read(
        self: &Arc<Self>,
        from: Sources,
        asked: Timestamp,
        most_ms: i64,
    ) -> store::Result<Arc<FleetStatus>> {
        let now = from.engine.clock.now();
        if let Some(known) = self.known(now, asked, FRESH_MS) {
            return Ok(known);
        }
        let Some(known) = self.known(now, asked, most_ms) else {
            return self.read_again(&from, asked).await;
        };
        if self.turn.try_lock().is_ok() {
            let last = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = last.read_again(&from, asked).await {
                    tracing::debug!(%error, "cannot read the state of the fleet: {error}");
                }
            });
        }
        Ok(known)
    }

    async fn read_again(
        &self,
        from: &Sources,
        asked: Timestamp,
    ) -> store::Result<Arc<FleetStatus>> {
        let _turn = self.turn.lock().await;
        let now = from.engine.clock.now();
        if let Some(known) = self.known(now, asked, FRESH_MS) {
            return Ok(known);
        }
        let mut status = status::read(&from.engine, now).await?;
        if let Some(images) = &from.images {
            status.problems.extend(of_images(images, now));
        }
        status.problems.extend(of_clock(from.engine.clock.as_ref()));
        sort_worst_first(&mut status.problems);
        let status = Arc::new(status);
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(&status));
        Ok(status)
    }

    /// The last status, for a caller who asked then and is content with one of this age.
    fn known(&self, now: Timestamp, asked: Timestamp, most_ms: i64) -> Option<Arc<FleetStatus>> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref()?;
        // After the clock was set back, the last status is in the future, and is read again.
        let is_known = last.now <= now && asked.millis_since(last.now) < most_ms;
        is_known.then(|| Arc::clone(last))
    }
}

/// Facts about the clock of this process.
fn of_clock(clock: &dyn Clock) -> Vec<FleetProblem> {
    let texts = clock.doubt().into_iter().chain(clock.warnings());
    texts
        .map(|text| of_part(LatePart::Clock, None, &text))
        .collect()
}

fn of_images(images: &ImageTree, now: Timestamp) -> Vec<FleetProblem> {
    let mut problems = Vec::new();
    for name in images.names() {
        let error = images.image(&name, images::ImageNode::problem).flatten();
        if let Some(error) = error {
            problems.push(of_unreadable(&name, &error));
            continue;
        }
        let Some(view) = images.view(&name, now) else {
            continue;
        };
        problems.extend(view.steps().iter().filter_map(|step| of_step(&name, step)));
        let newest = view.builds.iter().map(|build| build.number).max();
        problems.extend(of_standing(&name, newest, &view.standing));
    }
    problems
}
