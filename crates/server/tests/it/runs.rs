//! Tasks whose runs are as far as a test needs them.

use domain::id::{TaskId, WorkerGroup, WorkerId};
use domain::task::{ExceptionReason, Task, TaskDocument, Transition};
use domain::time::Timestamp;
use serde_json::json;

use crate::samples::DAY_MS;
use crate::world::World;

pub(crate) const TASK: &str = "fN1SbArXTPSVFNUvaOlinQ";
pub(crate) const OTHER_TASK: &str = "fN1SbArXTPSVFNUvaOlinA";
/// The queue of these tasks, and who claims them.
pub(crate) const QUEUE: &str = "pp/ee";

fn task_id() -> TaskId {
    TASK.parse().unwrap()
}

fn defined(now: Timestamp) -> Task {
    let document: TaskDocument = serde_json::from_value(json!({
        "taskQueueId": QUEUE,
        "schedulerId": "-",
        "projectId": "none",
        "dependencies": [],
        "requires": "all-completed",
        "routes": ["index.a"],
        "priority": "lowest",
        "retries": 5,
        "created": now.to_string(),
        "deadline": now.plus_millis(DAY_MS).to_string(),
        "expires": now.plus_millis(30 * DAY_MS).to_string(),
        "scopes": [],
        "payload": {},
        "metadata": {"name": "n", "description": "d", "owner": "o@example.com", "source": "https://x"},
        "tags": {},
        "extra": {},
    }))
    .unwrap();
    let definition = document.define(&task_id()).unwrap();
    Task::new(task_id(), definition)
}

impl World {
    /// A task without runs.
    pub(crate) async fn unscheduled_task(&self) {
        let task = defined(self.now());
        assert!(
            self.write(move |tx| store::tasks::insert(tx, &task, task.definition.created))
                .await
        );
    }

    /// A task whose run 0 waits.
    pub(crate) async fn pending_task(&self) {
        let now = self.now();
        let task = defined(now).schedule(now).unwrap().task;
        assert!(
            self.write(move |tx| store::tasks::insert(tx, &task, task.definition.created))
                .await
        );
    }

    /// A task whose run 0 is claimed.
    pub(crate) async fn running_task(&self) {
        self.pending_task().await;
        self.claim_run(0).await;
    }

    pub(crate) async fn claim_run(&self, run_id: u32) {
        let group: WorkerGroup = "g".parse().unwrap();
        let worker: WorkerId = "w".parse().unwrap();
        let until = self.now().plus_millis(1_200_000);
        self.move_task(move |task, now| task.claim(run_id, &group, &worker, now, until).unwrap())
            .await;
    }

    pub(crate) async fn complete_run(&self, run_id: u32) {
        self.move_task(move |task, now| task.report(run_id, true, now).unwrap())
            .await;
    }

    /// Ends the run so that it is tried again.
    pub(crate) async fn lose_run(&self, run_id: u32) {
        let lost = ExceptionReason::WorkerShutdown;
        self.move_task(move |task, now| task.report_exception(run_id, lost, now).unwrap())
            .await;
    }

    async fn move_task(&self, step: impl Fn(Task, Timestamp) -> Transition + Send + 'static) {
        let now = self.now();
        self.write(move |tx| {
            let before = store::tasks::get(tx, &task_id())?.unwrap();
            let after = step(before.clone(), now).task;
            store::tasks::update(tx, &before, &after)
        })
        .await;
    }
}
