//! The state of workers with another deployment's queue: outcomes from its broker are counted once
//! each.
//!
//! Messages have the form of Taskcluster's queue. All tests that use the broker share their
//! exchanges, so each test has a pool of its own.

use std::ops::AsyncFnMut;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use backplane::{Message, Publisher};
use domain::id::WorkerKey;
use domain::run_outcome::{CLAIM_EXCHANGE, OUTCOME_EXCHANGES};
use domain::task::EndReason;
use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Batches, OutsideOutcomes};
use server::config::OutsideQueue;
use testing::sizes_around;

use crate::broker::{PrivateBroker, address, amqp, delete_queue, unique};
use crate::database::Database;
use crate::queue_samples::task_id;
use crate::samples::{key, static_pool, worker};
use crate::world::{ROOT_URL, World};

const PATIENCE: Duration = Duration::from_secs(120);

/// A server that listens to another deployment's queue, and a publisher for that queue.
struct Two {
    world: World,
    outcomes: OutsideOutcomes,
    publisher: Publisher,
    pool: String,
    /// The inbox on the broker.
    queue: String,
    /// The maximum number of outcomes that one activation recorded.
    most: u64,
}

fn exchanges() -> Vec<String> {
    let all = OUTCOME_EXCHANGES.into_iter().chain([CLAIM_EXCHANGE]);
    all.map(str::to_owned).collect()
}

/// One run of a task in the queue's message.
struct Told {
    task: u32,
    worker: &'static str,
    reason: EndReason,
    /// How long ago it ended.
    age_ms: i64,
}

fn told(task: u32, worker: &'static str, reason: EndReason) -> Told {
    Told {
        task,
        worker,
        reason,
        age_ms: 0,
    }
}

impl Two {
    async fn start(database: Database, url: &str) -> Self {
        let name = unique("fleet");
        let world = World::open(database, |config| {
            config.root_url = Some(format!("http://{name}.example.com"));
            // The requests of a test are signed for this.
            config.root_url_aliases = vec![ROOT_URL.to_owned()];
            config.queue.taskcluster = Some(OutsideQueue {
                root_url: "http://127.0.0.1:1".to_owned(),
                client_id: "fleet".to_owned(),
                access_token: Some(Secret::new("x".repeat(44))),
                access_token_file: None,
                pulse: Some(amqp(url)),
            });
        })
        .await;
        let pool = unique("pp/p");
        let path = format!("/worker-pool/{}", pool.replace('/', "%2F"));
        world.put(&path, static_pool()).await.expect(200);
        let broker = world.app.engine.demand_source.pulse().unwrap();
        let exchanges = exchanges();
        let publisher = Publisher::connect(&broker, &exchanges).await.unwrap();
        let user = broker.user().unwrap();
        let mut two = Self {
            queue: format!("queue/{user}/fleetwright-outcomes-{name}.example.com"),
            outcomes: OutsideOutcomes::new(Arc::clone(&world.app.engine), broker),
            world,
            publisher,
            pool,
            most: 0,
        };
        // From now on the broker keeps messages.
        assert_eq!(two.activate().await, Value::Null);
        two
    }

    /// At the end of a test: the inbox would outlive it.
    async fn end(self) {
        let broker = self.world.app.engine.demand_source.pulse().unwrap();
        delete_queue(broker.url.expose(), &self.queue).await;
    }

    async fn activate(&mut self) -> Value {
        let done = self.outcomes.activate().await.unwrap();
        self.most = self.most.max(done["outcomes"].as_u64().unwrap_or(0));
        done
    }

    fn message(&self, told: &Told) -> Message {
        let at = self.world.now().plus_millis(-told.age_ms).to_string();
        let state = told.reason.state().as_str();
        let ended = json!({"runId": 0, "state": state, "reasonCreated": "scheduled",
            "reasonResolved": told.reason.as_str(), "workerGroup": "g", "workerId": told.worker,
            "takenUntil": at, "scheduled": at, "started": at, "resolved": at});
        // A lost run is reported by the message of the run that replaces it.
        let is_lost = told.reason == EndReason::WorkerShutdown;
        let waits = json!({"runId": 1, "state": "pending", "reasonCreated": "retry",
            "scheduled": at});
        let (name, run_id, runs) = if is_lost {
            ("pending", 1, json!([ended, waits]))
        } else {
            (state, 0, json!([ended]))
        };
        let body = json!({"version": 1, "runId": run_id, "workerGroup": "g",
            "workerId": told.worker, "task": {"tags": {}},
            "status": {"taskId": task_id(told.task), "provisionerId": "pp",
                "workerType": &self.pool[3..], "taskQueueId": self.pool, "schedulerId": "-",
                "projectId": "none", "taskGroupId": task_id(told.task), "deadline": at,
                "expires": at, "retriesLeft": 5, "state": state, "priority": "lowest",
                "runs": runs}});
        self.raw(name, run_id, told.task, body.to_string().into_bytes())
    }

    /// A worker has claimed a task.
    fn claim(&self, task: u32, worker: &'static str) -> Message {
        let mut message = self.message(&told(task, worker, EndReason::Completed));
        let mut body: Value = serde_json::from_slice(&message.body).unwrap();
        body["status"]["state"] = json!("running");
        let run = body["status"]["runs"][0].as_object_mut().unwrap();
        run.insert("state".to_owned(), json!("running"));
        run.remove("reasonResolved");
        run.remove("resolved");
        message.exchange = CLAIM_EXCHANGE.to_owned();
        message.body = body.to_string().into_bytes();
        message
    }

    async fn insert_running(&self, id: &str) {
        let fresh = worker(&self.pool, "g", id);
        self.world
            .insert(Worker::from_stored(StoredWorker {
                state: WorkerState::Running,
                ..fresh.into_stored()
            }))
            .await;
    }

    /// The workers without a first claim.
    async fn without_claim(&self, ids: &[&str]) -> Vec<String> {
        let keys: Vec<WorkerKey> = ids.iter().map(|id| key(&self.pool, "g", id)).collect();
        let read = self
            .world
            .read(move |tx| store::workers::without_claim(tx, &keys));
        read.await.iter().map(|key| key.id.to_string()).collect()
    }

    fn raw(&self, name: &str, run_id: u32, task: u32, body: Vec<u8>) -> Message {
        let (task, queue) = (task_id(task), self.pool.replace('/', "."));
        Message {
            exchange: format!("exchange/taskcluster-queue/v1/task-{name}"),
            routing_key: format!("primary.{task}.{run_id}.g.w.{queue}.-.{task}._"),
            routes: Vec::new(),
            id: unique("id"),
            created: self.world.now(),
            body,
        }
    }

    async fn publish(&self, messages: &[Message]) {
        assert!(self.publisher.publish(messages).await.error.is_none());
    }

    async fn tell(&self, all: &[Told]) {
        let messages: Vec<_> = all.iter().map(|told| self.message(told)).collect();
        self.publish(&messages).await;
    }

    async fn state(&self) -> Value {
        let path = format!("/worker-state/pool/{}", self.pool.replace('/', "%2F"));
        self.world.get(&path).await.expect(200)
    }

    /// How many runs were counted in the last week.
    async fn n_counted(&self) -> u64 {
        let state = self.state().await;
        let week = &state["windows"][2];
        ["completed", "failed", "exception"]
            .map(|field| week[field].as_u64().unwrap())
            .iter()
            .sum()
    }

    async fn until_counted(&mut self, count: u64) {
        self.until(async |two| two.n_counted().await >= count).await;
        assert_eq!(self.n_counted().await, count);
    }

    /// Continues until this is true.
    async fn until(&mut self, mut reached: impl AsyncFnMut(&Self) -> bool) {
        let going_on = async {
            while !reached(self).await {
                self.activate().await;
                // Failures make it wait by its clock.
                self.world.clock.advance_ms(10);
            }
        };
        tokio::time::timeout(PATIENCE, going_on).await.unwrap();
    }
}

/// Worker, task and why it ended; newest first.
fn runs(state: &Value) -> Vec<String> {
    let runs = state["taskRuns"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    runs.map(|run| {
        let task = &text(&run["taskId"])[..8];
        let number = task.trim_start_matches('0');
        let reason = text(&run["reasonResolved"]);
        format!("{} {number} {reason}", text(&run["workerId"]))
    })
    .collect()
}

fn databases() -> Vec<Database> {
    std::iter::once(Database::sqlite())
        .chain(Database::postgres())
        .collect()
}

#[tokio::test]
async fn outcomes_of_the_other_queue_are_known_here() {
    let Some(url) = address() else { return };
    for database in databases() {
        let mut two = Two::start(database, &url).await;
        let old = Told {
            age_ms: 5_000,
            ..told(1, "w", EndReason::Completed)
        };
        let lost = Told {
            age_ms: 1_000,
            ..told(4, "v", EndReason::WorkerShutdown)
        };
        let all = [
            told(2, "w", EndReason::Failed),
            lost,
            told(3, "w", EndReason::MalformedPayload),
            old,
        ];
        two.tell(&all).await;
        two.until_counted(4).await;
        let state = two.state().await;
        // In the order in which they ended, not in the order of the messages.
        assert_eq!(
            runs(&state),
            [
                "w 3 malformed-payload",
                "w 2 failed",
                "v 4 worker-shutdown",
                "w 1 completed"
            ]
        );
        assert_eq!(state["taskRuns"][2]["runId"], 0);
        assert_eq!(
            state["windows"][0]["exceptions"],
            json!({"malformed-payload": 1, "worker-shutdown": 1})
        );
        two.end().await;
    }
}

#[tokio::test]
async fn the_first_claims_of_workers_come_from_the_other_queue() {
    let Some(url) = address() else { return };
    for database in databases() {
        let mut two = Two::start(database, &url).await;
        let all = ["claims", "ends", "idle"];
        for id in all {
            two.insert_running(id).await;
        }
        assert_eq!(two.without_claim(&all).await, all);
        let elsewhere = two.claim(3, "stranger");
        let messages = [two.claim(1, "claims"), two.claim(1, "claims"), elsewhere];
        two.publish(&messages).await;
        two.until(async |two| two.without_claim(&all).await == ["ends", "idle"])
            .await;
        // A running run has no outcome, and an ended run was claimed.
        assert_eq!(two.n_counted().await, 0);
        two.tell(&[told(2, "ends", EndReason::Completed)]).await;
        two.until_counted(1).await;
        assert_eq!(two.without_claim(&all).await, ["idle"]);
        two.end().await;
    }
}

#[tokio::test]
async fn a_repeated_message_counts_once() {
    let Some(url) = address() else { return };
    for database in databases() {
        let mut two = Two::start(database, &url).await;
        let completed = |task| told(task, "w", EndReason::Completed);
        for _ in 0..3 {
            two.tell(&[completed(1), completed(2), completed(1)]).await;
        }
        two.tell(&[completed(3)]).await;
        two.until(async |two| runs(&two.state().await).contains(&"w 3 completed".to_owned()))
            .await;
        assert_eq!(two.n_counted().await, 3);
        two.end().await;
    }
}

#[tokio::test]
async fn pools_of_others_and_invalid_messages_are_ignored() {
    let Some(url) = address() else { return };
    let mut two = Two::start(Database::sqlite(), &url).await;
    let mut elsewhere = two.message(&told(1, "w", EndReason::Completed));
    let text = String::from_utf8(elsewhere.body).unwrap();
    elsewhere.body = text.replace(&two.pool, "pp/elsewhere").into_bytes();
    let nonsense = two.raw("failed", 0, 2, b"nonsense".to_vec());
    two.publish(&[elsewhere, nonsense.clone(), nonsense]).await;
    two.tell(&[told(3, "w", EndReason::Completed)]).await;
    two.until_counted(1).await;
    assert_eq!(runs(&two.state().await), ["w 3 completed"]);
    let told = two
        .world
        .log
        .lines("invalid messages about runs were dropped");
    assert!(!told.is_empty() && told.len() <= 2, "{told:?}");
    assert!(told[0].contains("expected ident"), "{told:?}");
    two.end().await;
}

#[tokio::test]
async fn messages_while_nobody_reads_are_not_missed() {
    let Some(url) = address() else { return };
    let mut two = Two::start(Database::sqlite(), &url).await;
    let broker = two.world.app.engine.demand_source.pulse().unwrap();
    let next = OutsideOutcomes::new(Arc::clone(&two.world.app.engine), broker);
    drop(std::mem::replace(&mut two.outcomes, next));
    let all: Vec<_> = (1..=1_200)
        .map(|task| told(task, "w", EndReason::Completed))
        .collect();
    two.tell(&all).await;
    two.until_counted(1_200).await;
    two.end().await;
}

#[tokio::test]
async fn messages_are_recorded_in_batches() {
    const LIMIT: usize = 5;
    let Some(url) = address() else { return };
    for database in databases() {
        let mut two = Two::start(database, &url).await;
        let broker = two.world.app.engine.demand_source.pulse().unwrap();
        let batches = Batches { size: 5, most: 1 };
        two.outcomes =
            OutsideOutcomes::in_batches(Arc::clone(&two.world.app.engine), broker, batches);
        let mut n_told = 0;
        for count in sizes_around("server::background::outcomes::outside::BATCH", LIMIT) {
            let count = u32::try_from(count).unwrap();
            let all: Vec<_> = (n_told..n_told + count)
                .map(|task| told(task, "w", EndReason::Completed))
                .collect();
            n_told += count;
            two.tell(&all).await;
            two.until(async |two| two.n_counted().await >= u64::from(n_told))
                .await;
            assert_eq!(two.n_counted().await, u64::from(n_told));
        }
        assert!(two.most <= LIMIT as u64, "{} in one activation", two.most);
        two.end().await;
    }
}

#[tokio::test]
async fn two_processes_share_the_work_and_the_count() {
    let Some(url) = address() else { return };
    for database in databases() {
        let mut two = Two::start(database, &url).await;
        let broker = two.world.app.engine.demand_source.pulse().unwrap();
        let mut other = OutsideOutcomes::new(Arc::clone(&two.world.app.engine), broker);
        other.activate().await.unwrap();
        let all: Vec<_> = (1..=300)
            .map(|task| told(task, "w", EndReason::Completed))
            .collect();
        two.tell(&all).await;
        let going_on = async {
            while two.n_counted().await < 300 {
                let (one, two) = tokio::join!(two.outcomes.activate(), other.activate());
                one.and(two).unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, going_on).await.unwrap();
        assert_eq!(two.n_counted().await, 300);
        two.end().await;
    }
}

#[tokio::test]
async fn a_broker_that_was_unreachable_is_read_again_and_repeats_count_once() {
    let Some(private) = PrivateBroker::start() else {
        return;
    };
    let mut two = Two::start(Database::sqlite(), &private.url).await;
    // The library says so when a connection breaks.
    two.world.errors_expected.set(true);
    two.tell(&[told(1, "w", EndReason::Completed)]).await;
    two.until_counted(1).await;
    private.control("kill").await;
    two.until(async |two| {
        !two.world
            .log
            .lines("cannot read outcomes of runs from the queue's broker")
            .is_empty()
    })
    .await;
    private.control("start").await;
    // The queue is still there, with whatever had not been done with.
    let broker = two.world.app.engine.demand_source.pulse().unwrap();
    two.publisher = Publisher::connect(&broker, &exchanges()).await.unwrap();
    let again = [
        told(1, "w", EndReason::Completed),
        told(2, "w", EndReason::Failed),
    ];
    two.tell(&again).await;
    two.until_counted(2).await;
    assert_eq!(
        two.world
            .log
            .lines("cannot read outcomes of runs from the queue's broker")
            .len(),
        1
    );
    assert_eq!(
        two.world.log.lines("outcomes of runs arrive again").len(),
        1
    );
}
