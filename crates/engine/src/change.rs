//! One change: its transaction, its time, new ids, and the wake-ups to send after the commit.
//!
//! Workflows take a `Change` instead of `Engine` or a clock, so that their parameters show their
//! inputs and effects.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::str::FromStr;

use domain::event::{Event, EventBody, WorkerChange};
use domain::id::{PoolId, ProviderId, TaskId, WorkerKey};
use domain::phases::Phase;
use domain::time::Timestamp;
use domain::worker::Worker;
use store::Tx;

use crate::life_spans::{LifePart, LifeSpan};
use crate::phase_measures::PhaseSample;
use crate::random::Random;
use crate::taskcluster_records::{self, Record};

/// A transaction, with everything a workflow needs beside it.
pub struct Change<'a, 'tx> {
    pub tx: &'a mut Tx<'tx>,
    pub now: Timestamp,
    ids: &'a Random,
    wakeups: PendingWakeups,
}

/// Wake-ups to send after the commit. A lost wake-up only delays work.
#[derive(Debug, Default)]
pub struct PendingWakeups {
    /// Pools to plan.
    pub(super) pools: BTreeSet<PoolId>,
    /// Queues with pending tasks for waiting workers.
    pub(super) queues: BTreeSet<PoolId>,
    /// Workers that were asked to stop, whose waiting claims are answered.
    pub(super) dismissals: Vec<WorkerKey>,
    /// Tasks whose dependents may be ready to schedule.
    pub(super) releases: Vec<TaskId>,
    /// Providers with machines to end.
    pub(super) endings: BTreeSet<ProviderId>,
    /// Steps of machines to measure.
    pub(super) phases: Vec<PhaseSample>,
    /// For the log.
    pub(super) records: Vec<Record>,
    /// For traces.
    pub(super) spans: Vec<LifeSpan>,
}

impl<'a, 'tx> Change<'a, 'tx> {
    pub fn new(tx: &'a mut Tx<'tx>, now: Timestamp, ids: &'a Random) -> Self {
        Self {
            tx,
            now,
            ids,
            wakeups: PendingWakeups::default(),
        }
    }

    /// A new unique id of 22 characters.
    pub fn new_id<T: FromStr<Err: Debug>>(&self) -> T {
        let id = self.ids.slugid().parse();
        id.expect("ids of this type are slugids")
    }

    /// Writes the next state of a worker, and returns it with its new version.
    pub(crate) fn update_worker(&mut self, worker: Worker) -> store::Result<Worker> {
        let version = store::workers::update(self.tx, &worker)?;
        Ok(worker.with_version(version))
    }

    pub(crate) fn announce_worker(
        &mut self,
        worker: &Worker,
        change: WorkerChange,
    ) -> store::Result<()> {
        let worker = Box::new(worker.clone());
        self.announce([EventBody::Worker { change, worker }])
    }

    /// Writes events, which are published to clients and other processes after the commit.
    pub fn announce(&mut self, bodies: impl IntoIterator<Item = EventBody>) -> store::Result<()> {
        for body in bodies {
            self.wakeups
                .records
                .extend(taskcluster_records::of_event(&body, self.now));
            self.wakeups
                .spans
                .extend(LifeSpan::of_event(&body, self.now));
            let event = Event {
                id: self.new_id(),
                created: self.now,
                body,
            };
            store::outbox::push(self.tx, &event)?;
        }
        Ok(())
    }

    /// The demand, the config or the workers of this pool have changed.
    pub fn wake_pool(&mut self, pool: &PoolId) {
        self.wakeups.pools.insert(pool.clone());
    }

    /// This queue may have pending tasks: wakes waiting workers and the planner of the pool.
    pub fn wake_queue(&mut self, queue: &PoolId) {
        self.wakeups.queues.insert(queue.clone());
        self.wakeups.pools.insert(queue.clone());
    }

    /// These workers were asked to stop. Those that wait for tasks are answered without any, so
    /// that they soon ask whether to stop.
    pub(crate) fn dismiss(&mut self, workers: impl IntoIterator<Item = WorkerKey>) {
        self.wakeups.dismissals.extend(workers);
    }

    /// A worker of this provider is stopping: its machine can be ended.
    pub fn wake_ending(&mut self, provider: &ProviderId) {
        self.wakeups.endings.insert(provider.clone());
    }

    /// Checks the dependents of this task again after the commit, in any process.
    pub fn release_later(&mut self, task: &TaskId) -> store::Result<()> {
        store::dependencies::request_recheck(self.tx, task, self.now)?;
        self.wakeups.releases.push(task.clone());
        Ok(())
    }

    /// Measures a step of a launched machine after the commit; 0 if the clock was set back.
    pub(crate) fn measure_phase(
        &mut self,
        worker: &Worker,
        phase: Phase,
        since: Option<Timestamp>,
        until: Timestamp,
    ) {
        if let (Some(id), Some(since)) = (&worker.launch_config_id, since) {
            let took_ms = until.millis_since(since).max(0);
            let sample = PhaseSample::new(worker, id, phase, took_ms);
            self.wakeups.phases.push(sample);
            self.wakeups.spans.push(LifeSpan {
                worker: worker.key.clone(),
                part: LifePart::Step(phase),
                since,
                until,
            });
        }
    }

    pub fn into_wakeups(self) -> PendingWakeups {
        self.wakeups
    }
}
