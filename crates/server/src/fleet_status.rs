//! The state of the fleet, read at most once a second for all callers.

use std::sync::Arc;

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
pub struct LastStatus(Mutex<Option<Arc<FleetStatus>>>);

impl LastStatus {
    /// The state of all pools and the problems, the worst first, for a caller who asked then. A
    /// status that was read while the caller waited is as good.
    pub(crate) async fn read(
        &self,
        engine: &Arc<Engine>,
        images: Option<Arc<ImageTree>>,
        asked: Timestamp,
    ) -> store::Result<Arc<FleetStatus>> {
        let mut last = self.0.lock().await;
        let now = engine.clock.now();
        // After the clock was set back, the last status is in the future, and is read again.
        if let Some(last) = &*last
            && last.now <= now
            && asked.millis_since(last.now) < FRESH_MS
        {
            return Ok(Arc::clone(last));
        }
        let mut status = status::read(engine, now).await?;
        if let Some(images) = images {
            status.problems.extend(of_images(&images, now));
        }
        status.problems.extend(of_clock(engine.clock.as_ref()));
        sort_worst_first(&mut status.problems);
        let status = Arc::new(status);
        *last = Some(Arc::clone(&status));
        Ok(status)
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
