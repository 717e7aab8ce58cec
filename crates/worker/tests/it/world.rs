//! A simulated server, a folder, and workers in it.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use domain::time::{Clock, Timestamp};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;
use worker::{Identity, Kind, Machine, Names, Proof, Stop, Stops, Worker, WorkerError};

use crate::fleet::{Fleet, GROUP, POOL, PROOF, PROVIDER, State};

/// Time limit for everything that tests wait for.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the clock of these tests")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
    }
}

pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) folder: TempDir,
}

/// A running worker, ended with its tasks when it is dropped.
pub(crate) struct RunningWorker {
    pub(crate) stops: Stops,
    task: AbortOnDropHandle<Result<(), WorkerError>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self {
            fleet: Fleet::start().await,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The worker that the server expects.
    pub(crate) fn identity(&self) -> Identity {
        let names = Names {
            provider_id: PROVIDER,
            pool: POOL,
            group: GROUP,
            id: "w1",
        };
        let proof = Proof::Token(Secret::new(PROOF));
        let identity = Identity::of(names, self.fleet.url(), proof).unwrap();
        Identity {
            kind: Kind::Launched,
            ..identity.working_in(self.folder.path().join("work"))
        }
    }

    pub(crate) fn start(&self) -> RunningWorker {
        self.start_as(self.identity(), Duration::from_secs(10))
    }

    pub(crate) fn start_as(&self, identity: Identity, drain_grace: Duration) -> RunningWorker {
        let stops = Stops::default();
        let worker = Worker {
            identity,
            machine: machine(),
            stops: stops.clone(),
            drain_grace,
            instance: None,
        };
        RunningWorker {
            stops,
            task: AbortOnDropHandle::new(tokio::spawn(worker.run())),
        }
    }

    /// Runs one task with a new worker, and returns the reported outcome and the log.
    pub(crate) async fn run(&self, payload: Value) -> (String, String) {
        let working = self.start();
        let outcome = self.outcome_of(payload).await;
        working.end().await.unwrap();
        outcome
    }

    /// Runs one task with an existing worker.
    pub(crate) async fn outcome_of(&self, payload: Value) -> (String, String) {
        let task = self.fleet.add_task(payload);
        self.fleet
            .until("the task is resolved", |state| {
                state.run(&task).is_resolved()
            })
            .await;
        self.fleet.look(|state| {
            let run = state.run(&task);
            (run.outcome.clone().unwrap(), run.log_text())
        })
    }

    /// The content of the folders of tasks and logs.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let work = self.folder.path().join("work");
        ["worker-tasks", "worker-logs"]
            .iter()
            .flat_map(|name| std::fs::read_dir(work.join(name)).unwrap())
            .map(|entry| entry.unwrap().path().display().to_string())
            .collect()
    }
}

impl RunningWorker {
    /// Asks it to stop, and waits until it has.
    pub(crate) async fn end(self) -> Result<(), WorkerError> {
        self.stops.ask(Stop::Drain);
        self.ended().await
    }

    /// Waits until it exits by itself.
    pub(crate) async fn ended(self) -> Result<(), WorkerError> {
        let ended = tokio::time::timeout(LIMIT, self.task).await;
        ended.expect("the worker does not end").unwrap()
    }
}

pub(crate) fn machine() -> Machine {
    Machine::new(Arc::new(SystemClock), StdRng::seed_from_u64(7))
}

impl Fleet {
    /// Waits until the condition holds.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.changes();
        let reached = async {
            while !self.look(&wanted) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(LIMIT, reached).await.is_err() {
            panic!("not reached: {what}; {}", self.look(State::to_text));
        }
    }
}
