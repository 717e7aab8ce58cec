//! The mistakes that others made in this field, each as a story that must not happen here.
//!
//! What cannot be told as a story is checked after every step of every seeded run (B5, B10, B12: see `checks`,
//! `recovery` and `steps`). That nobody is told to go who would be missed (B13) is a law of `domain`'s planner; that
//! a loop never overlaps itself (B14) is tested with the driver of the tasks.

use std::sync::Arc;

use cloud::Fate;
use domain::id::WorkerKey;
use domain::launch::Cause;
use domain::time::Timestamp;
use domain::worker::WorkerState;
use http::Method;
use serde_json::json;

use crate::picture::Picture;
use crate::world::{Process, World};

const MINUTE_MS: i64 = 60_000;

/// A world in which nothing goes wrong by itself.
async fn quiet() -> Arc<World> {
    let world = World::open(0, None, None).await;
    world.end_trouble();
    world.make_pools().await;
    world
}

impl World {
    fn process(&self) -> Arc<Process> {
        self.any_process().expect("one lives")
    }

    async fn plan_all(&self) {
        self.process().round().await;
        self.let_things_happen().await;
    }

    async fn look_around(&self) {
        self.process().scan().await;
        self.process().end().await;
        self.let_things_happen().await;
    }

    /// Those that are up prove themselves, and take no work: a launch config that failed is tried with one machine
    /// until that has come up.
    async fn register_all(&self) {
        self.workers_act().await;
        for worker in &mut self.state().workers {
            worker.is_silent |= worker.credentials.is_some();
        }
    }

    async fn tasks(&self, pool: &str, count: usize) {
        for _ in 0..count {
            let (id, now) = (self.fresh_token(), self.now());
            let body = json!({"taskQueueId": pool, "created": now.to_string(), "payload": {},
                "deadline": now.plus_millis(12 * 60 * MINUTE_MS).to_string(),
                "metadata": {"name": "", "description": "", "owner": "o@example.com",
                    "source": "https://x.example"}});
            let path = format!("queue:/task/{id}");
            let made = self.ask(Method::PUT, &path, Some(&body)).await;
            made.unwrap().expect(200);
        }
    }

    fn machines_of(&self, pool: &str) -> Vec<WorkerKey> {
        let machines = self.clouds.iter().flat_map(|cloud| cloud.machines());
        let of_pool = machines.filter(|machine| machine.key.pool_id.as_str() == pool);
        of_pool.map(|machine| machine.key).collect()
    }

    async fn picture(&self) -> Picture {
        Picture::take(&self.observer, self.now()).await
    }

    async fn states_of(&self, pool: &str) -> Vec<WorkerState> {
        let picture = self.picture().await;
        let id = pool.parse().unwrap();
        picture.workers_of(&id).map(|worker| worker.state).collect()
    }

    async fn crash(self: &Arc<Self>) {
        self.process().life.die_after_writes(0);
        self.bury_the_dead().await;
    }

    #[track_caller]
    fn is_right(&self) {
        assert_eq!(self.state().problems, Vec::<String>::new());
    }
}

#[tokio::test]
async fn b01_the_maximum_holds_also_after_a_crash_between_intent_and_call() {
    let world = quiet().await;
    world.tasks("p/a", 9).await;
    world.process().life.die_after_writes(1);
    world.plan_all().await;
    world.bury_the_dead().await;
    let mut most = 0;
    for _ in 0..40 {
        world.plan_all().await;
        world.look_around().await;
        world.check().await;
        most = most.max(world.machines_of("p/a").len());
        world.advance_ms(MINUTE_MS / 2);
        world.register_all().await;
    }
    assert_eq!(most, 4);
    world.is_right();
}

#[tokio::test]
async fn b02_a_task_whose_launch_was_not_answered_does_not_cost_two_machines() {
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 1).await;
    world.clouds[0].next_launches([Fate::AnswerLost]);
    for _ in 0..6 {
        world.plan_all().await;
        world.look_around().await;
        world.advance_ms(MINUTE_MS);
    }
    assert_eq!(world.machines_of("p/a").len(), 1);
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
}

#[tokio::test]
async fn b03_a_machine_that_never_comes_up_goes_without_its_help() {
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 1).await;
    world.clouds[0].next_launches([Fate::NeverUp]);
    world.plan_all().await;
    let dead = world.machines_of("p/a").remove(0);
    world.advance_ms(16 * MINUTE_MS);
    world.look_around().await;
    world.look_around().await;
    assert!(!world.machines_of("p/a").contains(&dead));
    assert_eq!(
        world.picture().await.workers[&dead].state,
        WorkerState::Stopped
    );
}

#[tokio::test]
async fn b04_a_fresh_machine_that_the_cloud_does_not_show_yet_is_not_gone() {
    let world = quiet().await;
    world.clouds[0].set_lag_ms(2 * MINUTE_MS);
    world.tasks("p/a", 1).await;
    world.plan_all().await;
    world.advance_ms(MINUTE_MS);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
    // Told to go, not being found is what was wanted.
    let key = world.machines_of("p/a").remove(0);
    world.clouds[0].kill(&key);
    world.advance_ms(20 * MINUTE_MS);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Stopped]);
}

#[tokio::test]
async fn b06_a_restart_adopts_every_machine_and_ends_none() {
    let world = quiet().await;
    world.tasks("p/a", 2).await;
    world.plan_all().await;
    world.workers_act().await;
    let before = (world.machines_of("p/a"), world.states_of("p/a").await);
    assert_eq!(before.1, [WorkerState::Running; 2]);
    for _ in 0..3 {
        world.crash().await;
        world.look_around().await;
        world.plan_all().await;
    }
    assert_eq!(
        (world.machines_of("p/a"), world.states_of("p/a").await),
        before
    );
}

#[tokio::test]
async fn b07_launches_that_failed_take_up_no_capacity() {
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 4).await;
    world.clouds[0].next_launches([Fate::Refused(Cause::Quota), Fate::CallLost]);
    world.plan_all().await;
    let mut most = 0;
    for _ in 0..40 {
        world.advance_ms(MINUTE_MS / 2);
        world.look_around().await;
        world.plan_all().await;
        most = most.max(world.machines_of("p/a").len());
        world.register_all().await;
    }
    assert_eq!(most, 4);
    let picture = world.picture().await;
    assert!(
        picture
            .launches
            .values()
            .all(|launch| !launch.state.is_pending())
    );
}

#[tokio::test]
async fn b08_a_quarantined_worker_is_no_supply() {
    let world = quiet().await;
    world.plan_all().await;
    world.workers_act().await;
    world.workers_act().await;
    let only = world.machines_of("p/b");
    assert_eq!(only.len(), 1);
    world.plan_all().await;
    assert_eq!(world.machines_of("p/b"), only);
    world.quarantine_for(&only[0], 60).await;
    world.plan_all().await;
    assert_eq!(world.machines_of("p/b").len(), 2);
}

#[tokio::test]
async fn b09_a_cloud_that_is_down_holds_up_no_pool_of_another() {
    let world = quiet().await;
    world.set_down(0, true);
    world.tasks("p/a", 2).await;
    world.tasks("p/c", 2).await;
    world.plan_all().await;
    assert_eq!(world.machines_of("p/a").len(), 0);
    assert_eq!(world.machines_of("p/c").len(), 2);
}

#[tokio::test]
async fn b11_from_nothing_and_back_to_nothing_more_than_once() {
    let world = quiet().await;
    for _ in 0..2 {
        for pool in ["p/a", "p/b", "p/c", "p/d"] {
            world.tasks(pool, 3).await;
        }
        world.recover().await;
        world.is_right();
        assert_eq!(
            world
                .clouds
                .iter()
                .map(|cloud| cloud.n_machines())
                .sum::<u64>(),
            0
        );
    }
}

#[tokio::test]
async fn b15_a_machine_of_somebody_else_is_left_alone() {
    let world = quiet().await;
    let foreign = WorkerKey {
        pool_id: "p/a".parse().unwrap(),
        group: "r1".parse().unwrap(),
        id: "theirs".parse().unwrap(),
    };
    world.clouds[0].add_foreign(foreign.clone());
    world.tasks("p/a", 1).await;
    for _ in 0..3 {
        world.plan_all().await;
        world.look_around().await;
        world.advance_ms(60 * MINUTE_MS);
    }
    assert!(world.machines_of("p/a").contains(&foreign));
    assert!(!world.picture().await.workers.contains_key(&foreign));
}

#[tokio::test]
async fn b16_a_lost_bell_only_delays() {
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 1).await;
    world.process().provision(false).await;
    world.let_things_happen().await;
    assert_eq!(world.machines_of("p/a").len(), 0);
    world.plan_all().await;
    assert_eq!(world.machines_of("p/a").len(), 1);
}

#[tokio::test]
async fn b17_an_edit_that_changes_the_maximum_keeps_every_launch_config() {
    let world = quiet().await;
    let ids = |picture: &Picture| {
        let ids = picture
            .configs
            .iter()
            .map(|config| (config.id.clone(), config.created));
        ids.collect::<Vec<(_, Timestamp)>>()
    };
    let before = ids(&world.picture().await);
    world.advance_ms(MINUTE_MS);
    let mut body = world.state().pools["p/a"].clone().unwrap();
    body["config"]["maxCapacity"] = json!(2);
    assert!(world.store_pool("p/a", body).await);
    assert_eq!(ids(&world.picture().await), before);
    world.is_right();
}
