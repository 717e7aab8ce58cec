//! Actions of people: pools created, changed and deleted; tasks created and cancelled; workers
//! quarantined.

use std::sync::Arc;

use domain::id::PoolId;
use domain::pool::PoolDefinition;
use http::Method;
use serde_json::{Value, json};
use store::StoreError;

use crate::checks;
use crate::world::World;

pub(crate) const POOLS: [&str; 4] = ["p/a", "p/b", "p/c", "p/d"];
const HOUR_MS: i64 = 3_600_000;

/// How each pool begins. In some worlds most pools learn.
fn beginning(pool: &str, learns: bool) -> Value {
    let small = |id: &str, max: u32| {
        json!({"workerConfig": {"fleetwright": {"idleTimeoutSeconds": 60}}, "region": "r1",
            "workerManager": {"launchConfigId": id, "maxCapacity": max}})
    };
    let idle = json!({"fleetwright": {"idleTimeoutSeconds": 120}});
    let double = json!({"workerConfig": idle, "capacityPerInstance": 2});
    let slow = json!({"workerConfig": idle, "bootSeconds": 90, "price": 0.5});
    let scarce = json!({"workerConfig": idle, "region": "r2", "stock": 2, "price": 0.1});
    let (provider, min, max, configs) = match pool {
        "p/a" => ("one", 0, 4, vec![small("first", 2), small("second", 3)]),
        "p/b" => ("one", 1, 5, vec![double]),
        "p/c" => ("two", 0, 6, vec![slow]),
        _ => ("two", 0, 3, vec![scarce, small("spare", 2)]),
    };
    let strategy = match pool {
        "p/d" => "aws-provisioner",
        _ if learns => "balanced",
        _ => "weighted",
    };
    definition(provider, min, max, strategy, configs)
}

fn definition(provider: &str, min: u32, max: u32, strategy: &str, configs: Vec<Value>) -> Value {
    json!({
        "providerId": provider, "description": "", "owner": "ops@example.com", "emailOnError": false,
        "config": {
            "minCapacity": min, "maxCapacity": max, "strategy": strategy, "launchConfigs": configs,
            "lifecycle": {"registrationTimeout": 900, "queueInactivityTimeout": 1800,
                "reregistrationTimeout": 14400},
        },
    })
}

fn path(pool: &str) -> String {
    format!("/worker-pool/{}", pool.replace('/', "%2F"))
}

impl World {
    pub(crate) async fn make_pools(&self) {
        for pool in POOLS {
            let body = beginning(pool, self.learns());
            let made = self.ask(Method::PUT, &path(pool), Some(&body)).await;
            made.expect("nothing fails yet").expect(200);
            self.state().pools.insert(pool, Some(body));
        }
    }

    /// Changes one thing about one pool.
    pub(crate) async fn edit_pool(self: &Arc<Self>) {
        let pool = *self.chance.pick(&POOLS).expect("there are some");
        let known = self.state().pools[pool].clone();
        let Some(mut body) = known else {
            self.store_pool(pool, beginning(pool, self.learns())).await;
            return;
        };
        let config = &mut body["config"];
        match self.chance.below(7) {
            0 | 1 => config["maxCapacity"] = json!(self.chance.between(1, 7)),
            2 => config["minCapacity"] = json!(self.chance.between(0, 2)),
            3 => {
                let configs = config["launchConfigs"].as_array_mut().expect("a list");
                let n_known = configs.len();
                configs.push(
                    json!({"workerConfig": {"n": n_known, "seed": self.chance.below(3)},
                    "capacityPerInstance": self.chance.between(1, 2)}),
                );
            }
            4 => {
                let configs = config["launchConfigs"].as_array_mut().expect("a list");
                if configs.len() > 1 {
                    configs.remove(self.chance.below(configs.len()));
                }
            }
            5 => {
                let other = if body["providerId"] == "one" {
                    "two"
                } else {
                    "one"
                };
                body["providerId"] = json!(other);
            }
            _ => {
                self.note(format!("{pool} is deleted"));
                let deleted = self.ask(Method::DELETE, &path(pool), None).await;
                if deleted.is_some() {
                    self.state().pools.insert(pool, None);
                }
                return;
            }
        }
        if self.store_pool(pool, body).await && self.seed.is_multiple_of(3) {
            self.spread(pool).await;
        }
    }

    /// From now on every second launch config comes from the other cloud, until the next edit. Only
    /// worker configurations make such pools.
    async fn spread(&self, pool: &'static str) {
        let (id, now): (PoolId, _) = (pool.parse().expect("it is a pool's"), self.now());
        let written = self.observer.write("spread", move |tx| {
            let configs = store::launch_configs::active_between(tx, &id, &id)?;
            let Some(mut pool) = store::pools::get(tx, &id)?.filter(|_| configs.len() > 1) else {
                return Ok(false);
            };
            let other = match pool.definition.provider_id.as_str() {
                "one" => "two",
                _ => "one",
            };
            let definition = PoolDefinition {
                further_provider_ids: vec![other.parse().expect("it is a cloud's")],
                ..pool.definition.clone()
            };
            pool.redefine(definition, now);
            store::pools::update(tx, &pool)?;
            for mut config in configs.into_iter().skip(1).step_by(2) {
                let steering = config.configuration.entry("workerManager");
                steering.or_insert_with(|| json!({}))["providerId"] = json!(other);
                store::launch_configs::update(tx, &config)?;
            }
            Ok(true)
        });
        let written: Result<bool, StoreError> = written.await;
        if written.expect("the observer's database works") {
            self.note(format!("{pool} has both clouds"));
        }
    }

    /// Creates or updates the pool; only the named fields change (I16).
    ///
    /// `false`: no process answered.
    pub(crate) async fn store_pool(&self, pool: &'static str, body: Value) -> bool {
        self.note(format!("{pool} becomes {body}"));
        let before = checks::launch_configs(&self.observer, pool).await;
        let mut answer = self.ask(Method::POST, &path(pool), Some(&body)).await;
        if answer.as_ref().is_some_and(|answer| answer.status == 404) {
            answer = self.ask(Method::PUT, &path(pool), Some(&body)).await;
        }
        let Some(answer) = answer else { return false };
        match answer.status {
            200 => {
                self.check_edit(pool, &body, &before).await;
                self.state().pools.insert(pool, Some(body));
            }
            // A launch config with an id of other content, or the same one twice.
            400 | 409 => self.note(format!("{pool} stays: {}", answer.text)),
            other => self.problem(format!("an edit of {pool} is answered {other}")),
        }
        true
    }

    pub(crate) async fn create_tasks(&self) {
        let pool = *self.chance.pick(&POOLS).expect("there are some");
        let count = self.chance.between(1, 4);
        self.create_tasks_for(pool, count).await;
    }

    pub(crate) async fn create_tasks_for(&self, pool: &str, count: i64) {
        for _ in 0..count {
            let deadline_ms = self.chance.between(HOUR_MS, 12 * HOUR_MS);
            self.create_task(pool, deadline_ms).await;
        }
        self.note(format!("tasks for {pool}"));
    }

    pub(crate) async fn create_task(&self, pool: &str, deadline_ms: i64) {
        let (id, now) = (self.fresh_token().to_string(), self.now());
        let body = json!({
            "taskQueueId": pool, "created": now.to_string(), "retries": 5, "payload": {},
            "deadline": now.plus_millis(deadline_ms).to_string(),
            "expires": now.plus_millis(48 * HOUR_MS).to_string(),
            "metadata": {"name": "", "description": "", "owner": "o@example.com",
                "source": "https://x.example"},
        });
        let path = format!("queue:/task/{id}");
        match self.ask(Method::PUT, &path, Some(&body)).await {
            Some(answer) if answer.status == 200 => self.state().tasks.push(id),
            Some(answer) => self.problem(format!("a task is not taken: {}", answer.text)),
            None => {}
        }
    }

    pub(crate) async fn cancel_task(&self) {
        let task = self.chance.pick(&self.state().tasks).cloned();
        if let Some(task) = task {
            self.note(format!("{task} is cancelled"));
            let path = format!("queue:/task/{task}/cancel");
            self.ask(Method::POST, &path, None).await;
        }
    }

    pub(crate) async fn quarantine(&self) {
        let worker = self.chance.pick(&self.state().workers).cloned();
        if let Some(worker) = worker.filter(|worker| worker.credentials.is_some()) {
            let minutes = self.chance.between(-60, 600);
            self.quarantine_for(&worker.key, minutes).await;
        }
    }

    pub(crate) async fn quarantine_for(&self, key: &domain::id::WorkerKey, minutes: i64) {
        let (provisioner, worker_type) = key.pool_id.parts();
        let path = format!(
            "queue:/provisioners/{provisioner}/worker-types/{worker_type}/workers/{}/{}",
            key.group, key.id
        );
        let until = self.now().plus_millis(minutes * 60_000);
        self.note(format!("{key} is quarantined until {until}"));
        let body = json!({"quarantineUntil": until.to_string()});
        self.ask(Method::PUT, &path, Some(&body)).await;
    }

    /// All deleted pools are restored to their first definition, and need no worker without work.
    pub(crate) async fn restore_pools(self: &Arc<Self>) {
        for pool in POOLS {
            let mut body = beginning(pool, self.learns());
            body["config"]["minCapacity"] = json!(0);
            // A process that answers may still die as arranged before; its successor does not.
            while !self.store_pool(pool, body.clone()).await {
                self.bury_the_dead().await;
            }
        }
    }
}
