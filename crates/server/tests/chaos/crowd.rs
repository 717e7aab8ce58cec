//! More workers than one transaction serves wait on one queue, together with all other failures.
//! Each task is claimed once, none waits beside a waiting worker, and no worker waits too long.
//!
//! Meanwhile the runtime's time stands still and is moved by hand, so that no timer of the queue
//! depends on the speed of the test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::id::PoolId;
use http::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::ask::Answer;
use crate::clouds::Mutant;
use crate::world::{Process, World};

/// No pool has this queue, so its workers are no pool's supply.
const QUEUE: &str = "p/crowd";
/// Every world of this many gets a crowd.
pub(crate) const CROWD_EVERY: u64 = 20;
/// Which of them: not those on PostgreSQL, where answers take real time.
pub(crate) const CROWD_AT: u64 = 7;
/// How many workers the queue serves in one transaction.
const SERVED_AT_ONCE: usize = 64;
const MOST_WORKERS: i64 = 100;
/// Turns of the executor within which all batches are served.
const TURNS: usize = 400;
/// Maximum time until the queue looks for tasks that were not announced.
const LOOK_AGAIN: Duration = Duration::from_millis(1_600);
/// Maximum time that a worker waits for work.
const PATIENCE: Duration = Duration::from_secs(21);

/// A worker that asks for work.
struct Asking {
    process: Arc<Process>,
    /// `None`: it has hung up, or it has its answer.
    call: Option<JoinHandle<Answer>>,
}

#[derive(Default)]
struct Crowd {
    asking: Vec<Asking>,
    /// The runs that were handed out, by task and number.
    claimed: BTreeSet<(String, u64)>,
}

impl World {
    pub(crate) fn has_crowd(&self) -> bool {
        self.seed % CROWD_EVERY == CROWD_AT && !self.is_postgres()
    }

    pub(crate) async fn crowd_waits(self: &Arc<Self>) {
        self.bury_the_dead().await;
        let processes = self.processes();
        // Requests to a process that freezes are answered when it goes on, and not before.
        if processes.iter().any(|process| process.life.may_freeze()) {
            return;
        }
        tokio::time::pause();
        let mut crowd = self.gather(&processes);
        crowd.turns().await;
        crowd.some_hang_up(self);
        let n_tasks = self.chance.between(1, MOST_WORKERS);
        self.create_tasks_for(QUEUE, n_tasks).await;
        crowd.turns().await;
        tokio::time::advance(LOOK_AGAIN).await;
        crowd.turns().await;
        crowd.read_answers(self, false).await;
        self.check_crowd(&crowd, &processes).await;
        tokio::time::advance(PATIENCE).await;
        crowd.turns().await;
        crowd.read_answers(self, true).await;
        tokio::time::resume();
    }

    fn gather(&self, processes: &[Arc<Process>]) -> Crowd {
        let count = self.chance.between(SERVED_AT_ONCE as i64 + 1, MOST_WORKERS);
        self.note(format!("{count} workers wait on {QUEUE}"));
        let mut crowd = Crowd::default();
        for number in 0..count {
            let Some(process) = self.chance.pick(processes) else {
                break;
            };
            let body =
                json!({"workerGroup": "g", "workerId": format!("crowd-{number}"), "tasks": 1});
            let path = format!("queue:/claim-work/{}", QUEUE.replace('/', "%2F"));
            let ask = self.request(process, Method::POST, &path, &body);
            let is_passed_over =
                self.mutant == Some(Mutant::ServesOneBatch) && crowd.asking.len() >= SERVED_AT_ONCE;
            let call = if is_passed_over {
                tokio::spawn(std::future::pending())
            } else {
                tokio::spawn(ask.send())
            };
            crowd.asking.push(Asking {
                process: Arc::clone(process),
                call: Some(call),
            });
        }
        crowd
    }

    /// No task waits beside a worker that could claim it, and the queue examines no worker without
    /// need.
    async fn check_crowd(&self, crowd: &Crowd, processes: &[Arc<Process>]) {
        let queue: PoolId = QUEUE.parse().expect("it is a queue's name");
        let n_tasks = self.pending(&queue).await;
        for process in processes.iter().filter(|process| !process.life.is_over()) {
            let n_waiting = crowd.waiting_at(process);
            let number = process.number;
            self.note(format!(
                "process {number}: {n_waiting} workers wait beside {n_tasks} tasks"
            ));
            if n_waiting > 0 && n_tasks > 0 && !self.state().is_full {
                self.problem(format!(
                    "queue: tasks wait beside {n_waiting} workers: {n_tasks}"
                ));
            }
            let n_known = process.app.engine.queue.dispatcher.n_waiting(&queue);
            if n_known != n_waiting {
                self.problem(format!(
                    "queue: {n_waiting} workers wait, and at rest are {n_known}"
                ));
            }
        }
    }
}

impl Crowd {
    fn waiting_at(&self, process: &Arc<Process>) -> usize {
        let is_there =
            |asking: &&Asking| asking.call.is_some() && Arc::ptr_eq(&asking.process, process);
        self.asking.iter().filter(is_there).count()
    }

    async fn turns(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Connections break while their workers wait.
    fn some_hang_up(&mut self, world: &World) {
        for asking in &mut self.asking {
            if world.chance.percent(10)
                && let Some(call) = asking.call.take()
            {
                call.abort();
            }
        }
    }

    /// Takes the answers that have come. `is_over`: all must have.
    async fn read_answers(&mut self, world: &World, is_over: bool) {
        for asking in &mut self.asking {
            let Some(call) = asking.call.take_if(|call| is_over || call.is_finished()) else {
                continue;
            };
            if !call.is_finished() {
                call.abort();
                world.problem("queue: a worker waits on though its time is over");
                continue;
            }
            let answer = call.await.expect("no request panics");
            if answer.status == 200 {
                let n_tasks = note_claims(&mut self.claimed, world, &answer);
                if n_tasks == 0 && !is_over {
                    world.problem("queue: a worker is sent away before its time is over");
                }
            } else if !asking.process.life.is_over()
                && !world.state().is_full
                && answer.body()["code"] != "ClockUnknown"
            {
                world.problem(format!("queue: a claim is answered {}", answer.status));
            }
        }
    }
}

/// Each run is handed out once.
fn note_claims(claimed: &mut BTreeSet<(String, u64)>, world: &World, answer: &Answer) -> usize {
    let body = answer.body();
    let tasks = body["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    for claim in tasks {
        let task = claim["status"]["taskId"].as_str().expect("it has an id");
        let run = claim["runId"].as_u64().expect("it has a number");
        if !claimed.insert((task.to_owned(), run)) {
            world.problem(format!("queue: run {run} of {task} was handed out twice"));
        }
    }
    tasks.len()
}
