//! Tasks to create, and the actions of workers, through the API.

use std::sync::{Arc, mpsc};

use domain::id::{PoolId, TaskId};
use domain::task::{StoredTask, Task, TaskDefinition, TaskDocument};
use serde_json::{Value, json};

use crate::ask::{Answer, Ask, Who};
use crate::samples::DAY_MS;
use crate::world::World;

pub(crate) const QUEUE: &str = "pp/ee";
pub(crate) const HOUR_MS: i64 = 3_600_000;

/// The id of a task, by a number.
pub(crate) fn task_id(number: u32) -> String {
    format!("{number:08}QACAAAAAAAAAAA")
}

/// The body of `createTask`, with these changes.
pub(crate) fn new_task(world: &World, changes: Value) -> Value {
    let now = world.now();
    let mut task = json!({
        "taskQueueId": QUEUE,
        "created": now.to_string(),
        "deadline": now.plus_millis(HOUR_MS).to_string(),
        "expires": now.plus_millis(DAY_MS).to_string(),
        "payload": {"command": ["true"]},
        "metadata": {
            "name": "n", "description": "d", "owner": "o@example.com", "source": "https://x.example",
        },
    });
    for (key, value) in changes.as_object().unwrap() {
        task[key] = value.clone();
    }
    task
}

/// A task as it would be stored, for those who need many.
pub(crate) fn stored_task(world: &World) -> Task {
    let left_out = json!({
        "schedulerId": "-", "dependencies": [], "requires": "all-completed", "routes": [],
        "priority": "lowest", "retries": 5, "scopes": [], "tags": {}, "extra": {},
    });
    let document: TaskDocument = serde_json::from_value(new_task(world, left_out)).unwrap();
    let id: TaskId = task_id(0).parse().unwrap();
    let definition = document.define(&id).unwrap();
    Task::new(id, definition)
}

/// The same task with the id of this number.
pub(crate) fn numbered(task: &Task, number: u32) -> Task {
    with_id(task, task_id(number).parse().unwrap())
}

pub(crate) fn with_id(task: &Task, id: TaskId) -> Task {
    let stored = task.clone().into_stored();
    Task::from_stored(StoredTask { id, ..stored })
}

/// The same task with another definition.
pub(crate) fn redefined(task: Task, change: impl FnOnce(&mut TaskDefinition)) -> Task {
    let mut stored = task.into_stored();
    change(Arc::make_mut(&mut stored.definition));
    Task::from_stored(stored)
}

impl World {
    pub(crate) fn create_task(&self, number: u32, changes: Value) -> Ask {
        let path = format!("queue:/task/{}", task_id(number));
        self.put(&path, new_task(self, changes))
    }

    /// Creates a task that must not be refused; returns its status.
    pub(crate) async fn created(&self, number: u32, changes: Value) -> Value {
        self.create_task(number, changes).await.expect(200)["status"].clone()
    }

    pub(crate) fn about_task(&self, number: u32, what: &str) -> Ask {
        let path = format!("queue:/task/{}/{what}", task_id(number));
        self.ask(http::Method::POST, &path)
    }

    pub(crate) async fn status(&self, number: u32) -> Value {
        let path = format!("queue:/task/{}/status", task_id(number));
        self.get(&path).await.expect(200)["status"].clone()
    }

    pub(crate) async fn state(&self, number: u32) -> String {
        self.status(number).await["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn asking_for_work(&self, worker: &str, tasks: u32) -> Ask {
        let body = json!({"workerGroup": "g", "workerId": worker, "tasks": tasks});
        self.post("queue:/claim-work/pp%2Fee", body)
    }

    /// Claims pending tasks.
    pub(crate) async fn claim(&self, worker: &str, tasks: u32) -> Vec<Value> {
        let reply = self.asking_for_work(worker, tasks).await.expect(200);
        reply["tasks"].as_array().unwrap().clone()
    }

    /// A task that a worker has claimed.
    pub(crate) async fn running(&self, number: u32, worker: &str) -> Value {
        self.created(number, json!({})).await;
        let mut claims = self.claim(worker, 1).await;
        assert_eq!(claims[0]["status"]["taskId"], task_id(number));
        claims.remove(0)
    }

    /// Says how a run went, with the credentials of the claim.
    pub(crate) async fn report(&self, claim: &Value, what: &str, body: Value) -> Answer {
        let id = claim["status"]["taskId"].as_str().unwrap();
        let path = format!("queue:/task/{id}/runs/{}/{what}", claim["runId"]);
        self.post(&path, body).by(&Who::registered(claim)).await
    }

    /// The exchanges of the published events, with the run for tasks.
    pub(crate) async fn news(&self) -> Vec<String> {
        let rows = self.events().await;
        let line = |row: &store::outbox::OutboxRow| {
            let name = row.topic.rsplit('/').next().unwrap();
            let number = row.payload["status"]["taskId"].as_str();
            let number = number.map(|id| id[..8].trim_start_matches('0').to_owned());
            match (number, row.payload.get("runId")) {
                (Some(number), Some(run_id)) => format!("{name} {number}/{run_id}"),
                (Some(number), None) => format!("{name} {number}"),
                (None, _) => name.to_owned(),
            }
        };
        rows.iter().map(line).collect()
    }

    /// Waits until this many workers wait for tasks, and no sweep is running.
    pub(crate) async fn until_waiting(&self, count: usize) {
        const LIMIT: usize = 50_000_000;
        let queue: PoolId = QUEUE.parse().unwrap();
        for _ in 0..LIMIT {
            if self.app.engine.queue.dispatcher.n_waiting(&queue) == count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!(
            "{} wait",
            self.app.engine.queue.dispatcher.n_waiting(&queue)
        );
    }
}

/// While this exists, no timer of the runtime fires; afterwards they fire as soon as nothing else
/// can run.
pub(crate) struct StoppedTime(#[expect(dead_code, reason = "dropped to go on")] mpsc::Sender<()>);

impl StoppedTime {
    /// Time goes on as it does on the wall.
    pub(crate) fn resume(self) {
        tokio::time::resume();
    }
}

pub(crate) fn stop_time() -> StoppedTime {
    tokio::time::pause();
    let (go_on, stopped) = mpsc::channel::<()>();
    // Time only runs by itself while nothing else does.
    tokio::task::spawn_blocking(move || stopped.recv().is_err());
    StoppedTime(go_on)
}
