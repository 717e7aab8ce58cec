//! The programs on the machines: they register, work, ask whether they should stop, and stop; or do
//! not.

use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::worker::WorkerState;
use http::Method;
use serde_json::{Value, json};
use store::StoreError;

use crate::ask::Who;
use crate::state::SimulatedWorker;
use crate::world::{CLOUDS, World};

/// A worker that is refused more often gives up.
const MAX_REFUSALS: u32 = 6;

impl World {
    /// Every worker takes its next step.
    pub(crate) async fn workers_act(&self) {
        self.meet_workers();
        let workers = self.state().workers.clone();
        for mut worker in workers {
            if worker.is_silent || (self.makes_trouble() && self.chance.percent(20)) {
                continue;
            }
            self.worker_acts(&mut worker).await;
            let mut state = self.state();
            let known = state
                .workers
                .iter_mut()
                .find(|known| known.key == worker.key);
            if let Some(known) = known {
                *known = worker;
            }
        }
    }

    /// Started machines begin to work; stopped ones do not.
    fn meet_workers(&self) {
        let mut workers = std::mem::take(&mut self.state().workers);
        workers.retain(|worker| self.clouds[worker.cloud].is_up(&worker.key));
        for (place, cloud) in self.clouds.iter().enumerate() {
            for machine in cloud.machines() {
                let is_known = workers.iter().any(|worker| worker.key == machine.key);
                if machine.is_up && machine.token.is_some() && !is_known {
                    workers.push(SimulatedWorker {
                        cloud: place,
                        key: machine.key,
                        credentials: None,
                        claims: Vec::new(),
                        is_silent: self.makes_trouble() && self.chance.percent(6),
                        n_refused: 0,
                    });
                }
            }
        }
        self.state().workers = workers;
    }

    async fn worker_acts(&self, worker: &mut SimulatedWorker) {
        let Some(credentials) = worker.credentials.clone() else {
            self.register(worker).await;
            return;
        };
        if self.makes_trouble() && self.chance.percent(3) {
            self.note(format!("{} falls silent", worker.key));
            worker.is_silent = true;
            return;
        }
        if let Some(claim) = worker.claims.pop() {
            self.report(worker, claim).await;
            return;
        }
        let (pool, key) = (worker.key.pool_id.as_str().replace('/', "%2F"), &worker.key);
        let path = format!("/workers/{pool}/{}/{}/should-terminate", key.group, key.id);
        let answer = self.ask_as(&credentials, Method::GET, &path, None).await;
        let Some(answer) = answer else { return };
        if answer.status != 200 {
            // Its credentials have expired, or it is not known any more.
            self.note(format!("{key} is answered {} and goes", answer.status));
            self.clouds[worker.cloud].kill(key);
        } else if answer.body()["terminate"] == json!(true) {
            self.leave(worker, &credentials).await;
        } else {
            self.claim(worker, &credentials).await;
        }
    }

    async fn register(&self, worker: &mut SimulatedWorker) {
        let token = self.clouds[worker.cloud].identity_token(&worker.key);
        let claim = registration(&worker.key, worker.cloud, token.expose());
        let answer = self
            .ask(Method::POST, "/worker/register", Some(&claim))
            .await;
        match answer {
            Some(answer) if answer.status == 200 => {
                self.note(format!("{} registers", worker.key));
                worker.credentials = Some(Who::registered(&answer.body()));
                if !self.state().registered.insert(worker.key.clone()) {
                    self.problem(format!("{} got credentials twice", worker.key));
                }
            }
            // Its row may not exist yet; or it registered, and the answer was lost.
            Some(_) | None => {
                worker.n_refused += 1;
                worker.is_silent = worker.n_refused > MAX_REFUSALS;
            }
        }
    }

    async fn claim(&self, worker: &mut SimulatedWorker, credentials: &Who) {
        let key = &worker.key;
        // There, an answer that does not come is waited for in real time.
        if self.is_postgres() && self.pending(&key.pool_id).await == 0 {
            return;
        }
        let path = format!(
            "queue:/claim-work/{}",
            key.pool_id.as_str().replace('/', "%2F")
        );
        let body =
            json!({"workerGroup": key.group.as_str(), "workerId": key.id.as_str(), "tasks": 1});
        let answer = self
            .ask_as(credentials, Method::POST, &path, Some(&body))
            .await;
        let Some(answer) = answer.filter(|answer| answer.status == 200) else {
            return;
        };
        let claims = answer.body()["tasks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for claim in &claims {
            self.note(format!("{key} claims {}", claim["status"]["taskId"]));
        }
        worker.claims = claims;
        let (wanted, now) = (key.clone(), self.now());
        let read = self
            .observer
            .read("claimant", move |tx| store::workers::get(tx, &wanted));
        let row: Result<_, StoreError> = read.await;
        if row.is_ok_and(|row| row.is_some_and(|row| row.state < WorkerState::Stopping)) {
            self.state().active.insert(key.clone(), now);
        }
    }

    pub(crate) async fn pending(&self, pool: &PoolId) -> u64 {
        let (pool, now) = (pool.clone(), self.now());
        let read = self
            .observer
            .read("pending", move |tx| store::demand::of(tx, &pool, now));
        let demand: Result<_, StoreError> = read.await;
        demand.unwrap().pending
    }

    async fn report(&self, worker: &mut SimulatedWorker, claim: Value) {
        let what = match self.chance.below(6) {
            _ if !self.makes_trouble() => "completed",
            0 => "failed",
            1 | 2 => "reclaim",
            _ => "completed",
        };
        let id = claim["status"]["taskId"].as_str().expect("it has an id");
        let path = format!("queue:/task/{id}/runs/{}/{what}", claim["runId"]);
        let who = Who::registered(&claim);
        let answer = self.ask_as(&who, Method::POST, &path, None).await;
        self.note(format!("{}: {id} {what}", worker.key));
        match answer {
            Some(answer) if answer.status == 200 && what == "reclaim" => {
                let mut renewed = claim;
                renewed["credentials"] = answer.body()["credentials"].clone();
                worker.claims.push(renewed);
            }
            // Done, or taken from it meanwhile.
            Some(_) => {}
            None => worker.claims.push(claim),
        }
    }

    async fn leave(&self, worker: &mut SimulatedWorker, credentials: &Who) {
        let key = &worker.key;
        self.note(format!("{key} goes"));
        // Some announce it, some just shut down.
        if self.chance.percent(60) {
            let pool = key.pool_id.as_str().replace('/', "%2F");
            let path = format!("/workers/{pool}/{}/{}", key.group, key.id);
            self.ask_as(credentials, Method::DELETE, &path, None).await;
        }
        self.clouds[worker.cloud].kill(key);
        worker.is_silent = true;
    }

    /// A wrong proof gets nothing (I19).
    pub(crate) async fn register_wrongly(self: &Arc<Self>) {
        let way = self.chance.below(3);
        let registered = self.state().registered.clone();
        let all = self.clouds.iter().flat_map(|cloud| cloud.machines());
        // A foreign token comes before the machine's own, which is valid once.
        let machines: Vec<_> = all
            .filter(|machine| match way {
                0 => !registered.contains(&machine.key),
                1 => true,
                _ => registered.contains(&machine.key),
            })
            .collect();
        let Some(machine) = self.chance.pick(&machines).cloned() else {
            return;
        };
        let cloud = self.chance.below(CLOUDS.len());
        let mut other = machine.key.clone();
        other.id = "somebody-else".parse().expect("an id");
        let right = self.clouds[cloud].identity_token(&machine.key);
        let wrong = self.clouds[cloud].identity_token(&other);
        let claim = match way {
            0 => registration(&machine.key, cloud, wrong.expose()),
            1 => registration(&other, cloud, wrong.expose()),
            _ => registration(&machine.key, cloud, right.expose()),
        };
        self.note(format!("{} is claimed wrongly", machine.key));
        let answer = self
            .ask(Method::POST, "/worker/register", Some(&claim))
            .await;
        if answer.is_some_and(|answer| answer.status == 200) {
            self.problem(format!("a wrong claim got credentials: {}", machine.key));
        }
    }
}

fn registration(key: &WorkerKey, cloud: usize, token: &str) -> Value {
    json!({"workerPoolId": key.pool_id.as_str(), "providerId": CLOUDS[cloud].0,
        "workerGroup": key.group.as_str(), "workerId": key.id.as_str(),
        "workerIdentityProof": {"token": token}})
}
