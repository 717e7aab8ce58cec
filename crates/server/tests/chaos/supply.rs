//! The planner's supply (I8): workers that are not quarantined, asked to stop, silent or only
//! requested.

use domain::id::WorkerKey;
use domain::plan::Snapshot;
use domain::supply::{Horizon, Presence, Signs};
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use store::StoreError;

use crate::picture::Picture;
use crate::world::{Process, World};

/// Running units of a pool, as the database has them.
#[derive(Debug, Default)]
struct Running {
    all: u64,
    quarantined: u64,
    /// Not quarantined, and without a recent sign, whether or not they work.
    quiet: u64,
    /// Of these, those without a task.
    silent: u64,
}

impl World {
    /// Compares the planner's counts with the database.
    pub(crate) async fn check_supply(&self, process: &Process, snapshot: &Snapshot) {
        let now = snapshot.now;
        let listening_since = process.app.engine.availability.since(now);
        let horizon = Horizon::new(now, Some(listening_since));
        let picture = Picture::take(&self.observer, now).await;
        let workers = picture.workers_of(&snapshot.pool_id);
        let workers = workers.filter(|worker| worker.state == WorkerState::Running);
        let mut running = Running::default();
        for worker in workers {
            let has_task = self.has_task(&worker.key).await;
            running.add(&picture, worker, has_task, &horizon);
        }
        let capacity = &snapshot.capacity;
        // Later decisions may have changed which workers are asked to stop, and nothing else.
        let all = capacity.running + capacity.draining + capacity.quarantined + capacity.silent;
        let no_supply = running.quarantined + running.silent;
        let is_right = all == running.all
            && capacity.running + no_supply <= running.all
            && capacity.silent <= running.quiet;
        if !is_right {
            self.problem(format!(
                "I8: {capacity:?} is counted, and there are {running:?}"
            ));
        }
    }
}

impl World {
    /// Whether it keeps a claim, though that may have run out.
    async fn has_task(&self, key: &WorkerKey) -> bool {
        let key = key.clone();
        let read = self.observer.read("claims", move |tx| {
            store::claimed_tasks::list_of_worker(tx, &key, 1)
        });
        let claims: Result<_, StoreError> = read.await;
        !claims.expect("the observer's database works").is_empty()
    }
}

impl Running {
    fn add(&mut self, picture: &Picture, worker: &Worker, has_task: bool, horizon: &Horizon) {
        let units = u64::from(worker.capacity);
        let seen = picture.seen.get(&worker.key);
        self.all += units;
        if seen.is_some_and(|seen| seen.is_quarantined(horizon.now)) {
            self.quarantined += units;
            return;
        }
        let registered = worker.terms.registered_at.map(Timestamp::from_millis);
        let signs = Signs {
            registered: registered.unwrap_or(worker.created),
            last_asked: seen.and_then(|seen| seen.last_date_active),
            last_task_ended: seen.and_then(|seen| seen.last_task_ended),
            has_task: false,
        };
        if horizon.presence(&signs) == Presence::Silent {
            self.quiet += units;
            if !has_task {
                self.silent += units;
            }
        }
    }
}
