//! Known bugs of similar systems, each as a scenario that must not happen here.
//!
//! Two are among the ordinary tests: a registration between reading a machine and judging it (B5,
//! in `fleet_scan`), and a registration storm, which needs threads (B20, in `fleet_storm`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cloud::{Call, CloudError, LaunchOutcome};
use domain::id::WorkerKey;
use domain::launch::{Cause, LaunchState};
use domain::time::Timestamp;
use domain::worker::WorkerState;
use engine::fleet;
use http::Method;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::background::driver::{ActivationResult, BackgroundTask, Driver};
use server::telemetry::TASK_AGE;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::ask::Ask;
use crate::measuring::measure_here;
use crate::picture::Picture;
use crate::run::Kind;
use crate::world::{Process, World};

const MINUTE_MS: i64 = 60_000;

/// A world without failures.
async fn quiet() -> Arc<World> {
    let world = World::open(Kind::Usual, 0, None, None).await;
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

    /// Started machines register, and take no work: a failed launch config is tried with one
    /// machine until that has started.
    async fn register_all(&self) {
        self.workers_act().await;
        for worker in &mut self.state().workers {
            worker.is_silent |= worker.credentials.is_some();
        }
    }

    async fn tasks(&self, pool: &str, count: usize) {
        for _ in 0..count {
            self.create_task(pool, 12 * 60 * MINUTE_MS).await;
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

    /// The workers of the pool that are asked to stop when they are next idle.
    async fn told_to_go(&self, pool: &str) -> Vec<WorkerKey> {
        let picture = self.picture().await;
        let id = pool.parse().unwrap();
        let draining = picture
            .workers_of(&id)
            .filter(|worker| worker.terms.is_draining());
        draining.map(|worker| worker.key.clone()).collect()
    }

    /// This many tasks are done or running, each by a worker of its own.
    async fn busy(&self, pool: &str, count: usize) {
        self.tasks(pool, count).await;
        self.plan_all().await;
        self.workers_act().await;
        self.workers_act().await;
        let claims = |world: &Self| {
            world
                .state()
                .workers
                .iter()
                .filter(|w| !w.claims.is_empty())
                .count()
        };
        assert_eq!(claims(self), count);
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
    world.clouds[0].next_launches([LaunchOutcome::AnswerLost]);
    for _ in 0..6 {
        world.plan_all().await;
        world.look_around().await;
        world.advance_ms(MINUTE_MS);
    }
    assert_eq!(world.machines_of("p/a").len(), 1);
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
}

#[tokio::test]
async fn a_region_that_cannot_be_listed_delays_only_its_own_launches() {
    let world = quiet().await;
    let cloud = &world.clouds[0];
    let closed = "r1".parse().unwrap();
    let denied = CloudError::Credentials("not allowed there".to_owned());
    cloud.set_unlisted(&closed, Some(denied));
    // Both are made, and both answers are lost: p/a in the closed region, p/b elsewhere.
    cloud.next_launches([LaunchOutcome::AnswerLost, LaunchOutcome::AnswerLost]);
    world.tasks("p/a", 1).await;
    for _ in 0..6 {
        world.plan_all().await;
        world.look_around().await;
        world.advance_ms(MINUTE_MS);
    }
    assert_eq!(world.states_of("p/b").await, [WorkerState::Requested]);
    // Its machine cannot be found, so the task gets another one.
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
    assert_eq!(world.machines_of("p/a").len(), 2);
    cloud.set_unlisted(&closed, None);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested; 2]);
    assert_eq!(world.machines_of("p/a").len(), 2);
}

#[tokio::test]
async fn b03_a_machine_that_never_starts_is_ended_without_its_help() {
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 1).await;
    world.clouds[0].next_launches([LaunchOutcome::NeverUp]);
    world.plan_all().await;
    let dead = world.machines_of("p/a").remove(0);
    world.listen_ms(16 * MINUTE_MS);
    world.look_around().await;
    world.look_around().await;
    assert!(!world.machines_of("p/a").contains(&dead));
    assert_eq!(
        world.picture().await.workers[&dead].state,
        WorkerState::Stopped
    );
}

#[tokio::test]
async fn b04_a_fresh_machine_that_the_cloud_does_not_show_yet_is_not_lost() {
    let world = quiet().await;
    world.clouds[0].set_lag_ms(2 * MINUTE_MS);
    world.tasks("p/a", 1).await;
    world.plan_all().await;
    world.advance_ms(MINUTE_MS);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
    // After a request to stop, a missing machine is the expected result.
    let key = world.machines_of("p/a").remove(0);
    world.clouds[0].kill(&key);
    world.advance_ms(20 * MINUTE_MS);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Stopped]);
}

#[tokio::test]
async fn b04_a_process_that_is_delayed_after_a_read_judges_by_the_time_of_the_read() {
    // Before and after each call of a scan.
    for n_points in 0.. {
        let world = quiet().await;
        world.clouds[0].set_lag_ms(2 * MINUTE_MS);
        world.tasks("p/a", 1).await;
        world.plan_all().await;
        let process = world.process();
        process.life.freeze_at_point(n_points);
        let scanning = world.lets(&process, |process| async move { process.scan().await });
        scanning.await;
        let is_frozen = process.life.is_frozen();
        world.advance_ms(20 * MINUTE_MS);
        process.life.thaw();
        world.let_things_happen().await;
        let states = world.states_of("p/a").await;
        assert_eq!(states, [WorkerState::Requested], "after {n_points} points");
        if !is_frozen {
            assert!(n_points > 4, "the scan calls the cloud");
            return;
        }
    }
}

#[tokio::test]
async fn b04_a_machine_that_is_found_while_the_clocks_are_set_back_is_not_late_afterwards() {
    const STEP_MS: i64 = 120 * MINUTE_MS;
    let world = quiet().await;
    world.tasks("p/a", 1).await;
    world.clouds[0].next_launches([LaunchOutcome::AnswerLost]);
    world.plan_all().await;
    world.set_clocks_by_ms(-STEP_MS);
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
    world.set_clocks_by_ms(STEP_MS);
    world.plan_all().await;
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
    assert_eq!(world.machines_of("p/a").len(), 1);
}

#[tokio::test]
async fn b05_a_worker_that_is_needed_since_the_read_is_not_asked_to_stop() {
    let world = quiet().await;
    world.plan_all().await;
    world.busy("p/a", 1).await;
    world.workers_act().await;
    world.advance_ms(2 * MINUTE_MS);
    let process = world.process();
    let idle = world.facts(&process, "p/a").await.unwrap();
    world.tasks("p/a", 1).await;
    fleet::decide(&process.app.engine, idle.clone())
        .await
        .unwrap();
    assert_eq!(world.told_to_go("p/a").await, []);
    world.workers_act().await;
    fleet::decide(&process.app.engine, idle.clone())
        .await
        .unwrap();
    assert_eq!(world.told_to_go("p/a").await, []);
    // Without a task, that judgement would have been right.
    world.workers_act().await;
    world.advance_ms(2 * MINUTE_MS);
    let idle = world.facts(&process, "p/a").await.unwrap();
    fleet::decide(&process.app.engine, idle.clone())
        .await
        .unwrap();
    assert_eq!(world.told_to_go("p/a").await, world.machines_of("p/a"));
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
    world.clouds[0].next_launches([
        LaunchOutcome::Refused(Cause::Quota),
        LaunchOutcome::CallLost,
    ]);
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
async fn b09_a_cloud_that_is_down_delays_no_pool_of_another() {
    let world = quiet().await;
    world.set_down(0, true);
    world.tasks("p/a", 2).await;
    world.tasks("p/c", 2).await;
    world.plan_all().await;
    assert_eq!(world.machines_of("p/a").len(), 0);
    assert_eq!(world.machines_of("p/c").len(), 2);
}

#[tokio::test]
async fn b10_a_pool_of_which_every_launch_has_failed_is_still_tried() {
    const ENOUGH: usize = 100;
    let world = quiet().await;
    world.plan_all().await;
    world.tasks("p/a", 1).await;
    world.clouds[0].next_launches([Cause::Capacity; ENOUGH].map(LaunchOutcome::Refused));
    let n_tries = || world.clouds[0].n_calls(Call::Launch);
    for _ in 0..10 {
        let before = n_tries();
        for _ in 0..9 {
            world.plan_all().await;
            world.look_around().await;
            world.advance_ms(MINUTE_MS);
        }
        let tries = n_tries() - before;
        assert!((1..=9).contains(&tries), "{tries} tries in 9 minutes");
    }
    assert_eq!(world.machines_of("p/a").len(), 0);
    world.clouds[0].behave();
    world.advance_ms(9 * MINUTE_MS);
    world.plan_all().await;
    assert_eq!(world.machines_of("p/a").len(), 1);
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
async fn b12_a_preview_decides_the_same_and_changes_nothing() {
    let world = quiet().await;
    world.tasks("p/a", 4).await;
    let process = world.process();
    let facts = world.facts(&process, "p/a").await.unwrap();
    let (events, place) = (
        world.picture().await.n_waiting_events,
        process.random.place(),
    );
    let foreseen = fleet::preview(&process.app.engine, facts.clone())
        .await
        .unwrap();
    let (_, foreseen) = foreseen.expect("it can be planned");
    let picture = world.picture().await;
    assert_eq!(
        (picture.launches.len(), picture.n_waiting_events),
        (0, events)
    );
    assert_eq!(world.clouds[0].n_calls(Call::Launch), 0);
    let same = world.facts(&process, "p/a").await.unwrap();
    assert_eq!(format!("{same:?}"), format!("{facts:?}"));

    // The same randomness, as far as possible.
    process.random.wind_back(place);
    let decided = fleet::decide(&process.app.engine, facts.clone())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(decided.plan, foreseen);
    assert_eq!(
        (decided.number, decided.launches.len()),
        (1, foreseen.awards.len())
    );
}

#[tokio::test]
async fn b13_a_worker_that_the_minimum_needs_or_that_is_busy_is_not_asked_to_stop() {
    let world = quiet().await;
    world.plan_all().await;
    world.register_all().await;
    let only = world.machines_of("p/b");
    assert_eq!(only.len(), 1);
    world.advance_ms(10 * MINUTE_MS);
    world.plan_all().await;
    assert_eq!(world.told_to_go("p/b").await, []);

    world.busy("p/a", 2).await;
    let mut body = world.state().pools["p/a"].clone().unwrap();
    body["config"]["maxCapacity"] = json!(1);
    assert!(world.store_pool("p/a", body).await);
    world.advance_ms(10 * MINUTE_MS);
    world.plan_all().await;
    assert_eq!(world.told_to_go("p/a").await, []);
    assert_eq!(world.states_of("p/a").await, [WorkerState::Running; 2]);
    world.is_right();
}

/// Takes as long as the test lets it, and counts its concurrent activations.
struct Slow {
    go: Arc<Semaphore>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

#[async_trait]
impl BackgroundTask for Slow {
    fn name(&self) -> String {
        "slow".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.go.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Value::Null)
    }
}

#[tokio::test]
async fn b14_a_loop_that_is_slow_never_overlaps_itself_and_shows_its_age() {
    let world = quiet().await;
    tokio::time::pause();
    let (go, most) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let task = Slow {
        go: Arc::clone(&go),
        running: Arc::default(),
        most: Arc::clone(&most),
    };
    let (app, stop, bell) = (
        Arc::clone(&world.process().app),
        CancellationToken::new(),
        Arc::new(Notify::new()),
    );
    let _measuring = measure_here(&app.telemetry);
    let mut driver = Driver::new(Arc::clone(&app.engine.clock), stop.clone());
    let mut handle = driver.start_woken(Duration::from_secs(1), Arc::clone(&bell), task);
    for _ in 0..10 {
        bell.notify_one();
        tokio::time::advance(Duration::from_secs(10)).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    go.add_permits(3);
    assert!(handle.finished(3).await.finished >= 3);
    assert_eq!(most.load(Ordering::SeqCst), 1);

    let server = Arc::new(Server::new(app));
    let ask = Ask::new(server, Method::GET, "root:/metrics", world.now());
    let metrics = ask.locally().await.text;
    let (name, then) = (TASK_AGE, world.now().as_millis() / 1_000);
    let age = format!("{name}{{name=\"slow\"}} {then}");
    assert!(metrics.contains(&age), "{metrics}");
    stop.cancel();
    go.add_permits(1);
    driver.join().await;
}

#[tokio::test]
async fn b14_a_cloud_that_never_answers_is_given_up_after_a_minute() {
    let world = quiet().await;
    tokio::time::pause();
    world.clouds[0].set_answer_delay_ms(1_000 * MINUTE_MS);
    world.tasks("p/a", 1).await;
    world.tasks("p/c", 1).await;
    world.plan_all().await;
    assert_eq!(world.states_of("p/c").await, [WorkerState::Requested]);
    tokio::time::advance(Duration::from_secs(61)).await;
    world.let_things_happen().await;
    let picture = world.picture().await;
    let launch = picture
        .launches
        .values()
        .find(|launch| launch.pool_id.as_str() == "p/a");
    assert!(matches!(launch.unwrap().state, LaunchState::Unknown { .. }));
    world.look_around().await;
    assert_eq!(world.states_of("p/a").await, [WorkerState::Requested]);
}

#[tokio::test]
async fn b15_a_machine_of_somebody_else_is_not_touched() {
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
async fn b16_a_lost_wake_up_only_delays() {
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
