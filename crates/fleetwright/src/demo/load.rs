//! Creates the tasks of the demo over the API, at a rate that changes.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::Arc;
use std::time::Duration;

use access::slugid;
use api_client::{Call, CallError, Credentials, QUEUE};
use domain::time::{Clock, DAY_MS, HOUR_MS, SECOND_MS, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::api::{Api, Cast, text};
use super::scene::{Push, Scene, TaskScene};
use crate::machine;

const TICK: Duration = Duration::from_secs(1);
/// The rate rises and falls in this time, down to this share of the highest.
const WAVE_MS: i64 = 8 * 60 * SECOND_MS;
const LOWEST: f64 = 0.15;
/// A queue with this many waiting tasks gets no more.
const MAX_WAITING: u64 = 24;
/// How often the waiting tasks are counted, in ticks.
const COUNTED_EVERY: u32 = 4;
const TASK_DEADLINE_MS: i64 = HOUR_MS;

/// Tasks that belong together.
struct TaskGroup {
    id: String,
    name: String,
}

pub(crate) struct Load {
    scene: Scene,
    people: BTreeMap<String, Credentials>,
    api: Arc<Api>,
    clock: Arc<dyn Clock>,
    random: StdRng,
    /// How many tasks wait in each queue.
    waiting: BTreeMap<String, u64>,
}

impl Load {
    pub(crate) fn new(
        scene: &Scene,
        cast: &Cast,
        api: Arc<Api>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Self {
        Self {
            scene: scene.clone(),
            people: cast.people.clone(),
            api,
            clock,
            random: StdRng::seed_from_u64(seed),
            waiting: BTreeMap::new(),
        }
    }

    /// Creates tasks for ever, at most `rate` a second. Calls that fail are left out.
    pub(crate) async fn run(mut self, rate: f64) {
        let mut budget = 0.0;
        for tick in 0_u32.. {
            if tick.is_multiple_of(COUNTED_EVERY) {
                self.count_waiting().await;
            }
            budget += rate * level(self.clock.now());
            while budget >= 1.0 {
                budget -= f64::from(self.create_push().await.max(1));
            }
            machine::pause(TICK).await;
        }
    }

    /// Creates each group of the scene this many times.
    pub(super) async fn create_each(&mut self, n: usize) {
        for push in self.scene.load.clone() {
            for _ in 0..n {
                self.create_group(&push).await;
            }
        }
    }

    /// Creates tasks that wait for nothing, as many as this, in one queue.
    pub(super) async fn create_in(&mut self, queue: &str, n: usize) {
        let tasks = self.scene.load.iter().flat_map(|push| &push.tasks);
        let mut tasks = tasks.filter(|task| task.queue == queue);
        let Some(task) = tasks.next().cloned() else {
            return;
        };
        for _ in 0..n {
            let id = slugid::nice(&mut self.random);
            let group = TaskGroup {
                id: id.clone(),
                name: task.name.clone(),
            };
            // The running server gets more tasks anyway.
            let _ = self.create(&id, &group, None, &task).await;
        }
    }

    /// Creates a group of tasks, unless too many wait already. Returns how many.
    async fn create_push(&mut self) -> u32 {
        let Some(push) = self.draw_push() else {
            return 0;
        };
        let waiting = |task: &TaskScene| self.waiting.get(&task.queue).copied().unwrap_or(0);
        if push.tasks.iter().any(|task| waiting(task) >= MAX_WAITING) {
            return 0;
        }
        self.create_group(&push).await
    }

    /// Creates the tasks of a group. Returns how many.
    async fn create_group(&mut self, push: &Push) -> u32 {
        let group = TaskGroup {
            id: slugid::nice(&mut self.random),
            name: push.name.clone(),
        };
        let mut made: Vec<Option<String>> = Vec::new();
        let mut n_made = 0;
        for task in &push.tasks {
            let first = made.len();
            made.push(None);
            if !self.random.random_bool(task.chance) {
                continue;
            }
            let after = task
                .after
                .and_then(|place| made.get(place).cloned().flatten());
            for _ in 0..task.count {
                let id = slugid::nice(&mut self.random);
                if self
                    .create(&id, &group, after.as_deref(), task)
                    .await
                    .is_err()
                {
                    return n_made;
                }
                if after.is_none() {
                    *self.waiting.entry(task.queue.clone()).or_default() += 1;
                }
                made[first] = Some(id);
                n_made += 1;
            }
        }
        n_made
    }

    fn draw_push(&mut self) -> Option<Push> {
        let total: f64 = self.scene.load.iter().map(|push| push.share).sum();
        let mut left = self.random.random_range(0.0..total);
        let mut pushes = self.scene.load.iter();
        let drawn = pushes.find(|push| {
            left -= push.share;
            left < 0.0
        });
        drawn.cloned()
    }

    async fn create(
        &mut self,
        id: &str,
        group: &TaskGroup,
        after: Option<&str>,
        task: &TaskScene,
    ) -> Result<Value, CallError> {
        let now = self.clock.now();
        let draw: f64 = self.random.random();
        let outcome = match draw {
            draw if draw < task.broken => "broken",
            draw if draw < task.broken + task.failed => "failed",
            _ => "completed",
        };
        let seconds = task.seconds.draw_ms(&mut self.random) / SECOND_MS;
        let by = self.people.get(&task.owner);
        let owner = by.map_or("unknown", |by| by.client_id.as_str());
        let body = json!({
            "taskQueueId": task.queue,
            "taskGroupId": group.id,
            "schedulerId": "demo",
            "dependencies": after.into_iter().collect::<Vec<_>>(),
            "priority": task.priority.as_str(),
            "retries": 3,
            "created": now.to_string(),
            "deadline": now.plus_millis(TASK_DEADLINE_MS).to_string(),
            "expires": now.plus_millis(2 * DAY_MS).to_string(),
            "payload": {
                "command": ["./run", task.name],
                "maxRunTime": 3_600,
                "demo": {"seconds": seconds, "outcome": outcome},
            },
            "metadata": {
                "name": task.name,
                "description": format!("Made up by the demo: {}", group.name),
                "owner": format!("{}@example.com", task.owner),
                "source": format!("https://example.com/firefly/{}", group.id),
            },
            "tags": {"createdForUser": owner},
        });
        self.api
            .call(&Call::put(QUEUE, &["task", id], &body), by)
            .await
    }

    /// Counts the waiting tasks of all queues of the scene.
    async fn count_waiting(&mut self) {
        let tasks = self.scene.load.iter().flat_map(|push| &push.tasks);
        let mut queues: Vec<&str> = tasks.map(|task| task.queue.as_str()).collect();
        queues.sort_unstable();
        queues.dedup();
        let call = Call::post(
            QUEUE,
            &["task-queues", "counts"],
            &json!({"taskQueueIds": queues}),
        );
        let by = self.people.values().next();
        let Ok(reply) = self.api.call(&call, by).await else {
            return;
        };
        for counts in reply["taskQueueCounts"].as_array().into_iter().flatten() {
            let queue = text(counts, "taskQueueId").to_owned();
            let waiting = counts["pendingTasks"].as_u64().unwrap_or(0);
            self.waiting.insert(queue, waiting);
        }
    }
}

/// The share of the highest rate at this moment.
fn level(now: Timestamp) -> f64 {
    let part = now.as_millis().rem_euclid(WAVE_MS) as f64 / WAVE_MS as f64;
    LOWEST + (1.0 - LOWEST) * (0.5 - 0.5 * (2.0 * PI * part).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_stays_between_its_bounds() {
        let levels = (0..WAVE_MS).step_by(10_000);
        let levels = levels.map(|at| level(Timestamp::from_millis(at)));
        let (mut lowest, mut highest) = (f64::MAX, f64::MIN);
        for level in levels {
            (lowest, highest) = (lowest.min(level), highest.max(level));
        }
        assert!((LOWEST..LOWEST + 0.01).contains(&lowest), "{lowest}");
        assert!((0.99..=1.0).contains(&highest), "{highest}");
    }
}
