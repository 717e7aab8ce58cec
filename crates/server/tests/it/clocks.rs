//! Processes whose machines have a wrong clock: their time is that of the database. A process that
//! does not know the time rests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use domain::time::{Clock, Timestamp};
use engine::clock::SystemClock;
use engine::database_clock::DatabaseClock;
use engine::random::Random;
use http::Method;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::app::App;
use server::background::driver::{BackgroundTask, Driver};
use server::background::{Housekeeping, Outcomes, QueueClaims, QueueDeadlines, QueueHousekeeping};
use server::start::{start, start_with};
use store::probe::DatabaseTime;
use tokio_util::sync::CancellationToken;

use crate::ask::{Ask, Who};
use crate::database::on_both;
use crate::queue_samples::{HOUR_MS, new_task, task_id};
use crate::samples::{STATIC_SECRET, static_pool, static_worker};
use crate::world::{START_MS, TestClock, World};

/// A claim lasts this long.
const CLAIM_MS: i64 = 1_200_000;
const WRONG: [i64; 4] = [2 * HOUR_MS, -2 * HOUR_MS, 8 * HOUR_MS, -8 * HOUR_MS];

/// The clocks of a machine beside the database of a world, whose clock is right.
struct Local {
    database: Arc<TestClock>,
    ahead_ms: AtomicI64,
    /// How much of the time the monotonic clock has not counted.
    suspended_ms: AtomicI64,
}

impl Clock for Local {
    fn now(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::SeqCst);
        self.database.now().plus_millis(ahead_ms)
    }

    fn steady_ms(&self) -> i64 {
        self.database.now().as_millis() - START_MS - self.suspended_ms.load(Ordering::SeqCst)
    }
}

/// Another process on the database of a world.
struct Process {
    app: Arc<App>,
    server: Arc<Server>,
    local: Arc<Local>,
    clock: Arc<DatabaseClock>,
}

impl Process {
    async fn start(world: &World, ahead_ms: i64) -> Self {
        let local = Arc::new(Local {
            database: Arc::clone(&world.clock),
            ahead_ms: AtomicI64::new(ahead_ms),
            suspended_ms: AtomicI64::new(0),
        });
        let clock = Arc::new(DatabaseClock::new(Arc::clone(&local) as _));
        measure(world, &clock).await;
        let app = started(world, Arc::clone(&clock) as _).await;
        let server = Arc::new(Server::new(Arc::clone(&app)));
        Self {
            app,
            server,
            local,
            clock,
        }
    }

    fn ask(&self, world: &World, method: Method, path: &str) -> Ask {
        let ask = Ask::new(Arc::clone(&self.server), method, path, world.now());
        ask.by(&world.root())
    }

    /// All that ends tasks because of the time; what each did.
    async fn end_what_is_over(&self) -> [Value; 2] {
        end_what_is_over(&self.app).await
    }

    /// The machine sleeps, or on SQLite its clock is set forward: what the database shows moves,
    /// and the monotonic clock does not.
    fn is_suspended_for_ms(&self, world: &World, millis: i64) {
        self.local.suspended_ms.fetch_add(millis, Ordering::SeqCst);
        world.clock.advance_ms(millis);
    }
}

async fn started(world: &World, clock: Arc<dyn Clock>) -> Arc<App> {
    // Each process has another name.
    static N_STARTED: AtomicU64 = AtomicU64::new(100);
    let seed = N_STARTED.fetch_add(1, Ordering::SeqCst);
    let random = Random::new(StdRng::seed_from_u64(seed));
    let config = world.app.config.clone();
    let started = start_with(config, clock, random, Vec::new());
    Box::pin(started).await.unwrap()
}

async fn end_what_is_over(app: &Arc<App>) -> [Value; 2] {
    let engine = || Arc::clone(&app.engine);
    [
        QueueClaims(engine()).activate().await.unwrap(),
        QueueDeadlines(engine()).activate().await.unwrap(),
    ]
}

async fn measure(world: &World, clock: &DatabaseClock) {
    let now = world.now();
    let theirs = DatabaseTime {
        earliest: now,
        latest: now,
    };
    let reading = std::future::ready(Ok::<_, Infallible>(theirs));
    clock.measure(reading).await.unwrap();
}

const NOTHING: [Value; 2] = [Value::Null, Value::Null];

on_both!(
    a_process_whose_clock_is_hours_off_takes_nothing_from_anybody,
    |world| {
        let deadline = world.now().plus_millis(HOUR_MS / 2).to_string();
        world.created(1, json!({"deadline": deadline})).await;
        let claim = world.claim("w", 1).await.remove(0);
        world.clock.advance_ms(CLAIM_MS - 1);
        for ahead_ms in WRONG {
            let wrong = Process::start(world, ahead_ms).await;
            assert_eq!(wrong.end_what_is_over().await, NOTHING, "{ahead_ms}");
            // It may be set again at any time.
            wrong.local.ahead_ms.store(-ahead_ms, Ordering::SeqCst);
            assert_eq!(wrong.end_what_is_over().await, NOTHING, "{ahead_ms}");
        }
        assert_eq!(world.state(1).await, "running");
        world
            .report(&claim, "completed", json!({}))
            .await
            .expect(200);
        // By the clock of its machine, a process would have ended them.
        world.created(2, json!({"deadline": deadline})).await;
        world.claim("w", 1).await;
        let local = Local {
            database: Arc::clone(&world.clock),
            ahead_ms: AtomicI64::new(2 * HOUR_MS),
            suspended_ms: AtomicI64::new(0),
        };
        let by_itself = started(world, Arc::new(local)).await;
        assert_ne!(end_what_is_over(&by_itself).await, NOTHING);
        assert_eq!(world.state(2).await, "exception");
    }
);

on_both!(
    a_process_whose_clock_is_hours_off_serves_workers_and_clients_like_the_others,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", static_pool())
            .await
            .expect(200);
        world
            .put("/workers/pp%2Fee/g/w", static_worker())
            .await
            .expect(200);
        for (number, ahead_ms) in WRONG.into_iter().enumerate() {
            let wrong = Process::start(world, ahead_ms).await;
            let ready = wrong.ask(world, Method::GET, "root:/ready");
            let ready = ready.anonymously().await;
            let said = format!(
                "warning: the clock of this machine is {} s ",
                ahead_ms.abs() / 1_000
            );
            assert_eq!(ready.status, 200);
            assert!(ready.text.contains(&said), "{}", ready.text);
            // It accepts those whose clocks are right, and they get what others accept.
            let proof = json!({
                "workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
                "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET},
            });
            let register = wrong.ask(world, Method::POST, "/worker/register");
            let reply = register.json(&proof).anonymously().await.expect(200);
            let worker = Who::registered(&reply);
            let number = u32::try_from(number).unwrap();
            let path = format!("queue:/task/{}", task_id(number));
            let created = wrong.ask(world, Method::PUT, &path);
            created.json(&new_task(world, json!({}))).await.expect(200);
            let claims = world.asking_for_work("w", 1).by(&worker).await.expect(200);
            let claim = &claims["tasks"][0];
            assert_eq!(claim["status"]["taskId"], task_id(number), "{claims}");
            let path = format!("queue:/task/{}/runs/0/reclaim", task_id(number));
            let reclaim = wrong.ask(world, Method::POST, &path);
            let reply = reclaim.by(&Who::registered(claim)).await.expect(200);
            let until = world.now().plus_millis(CLAIM_MS).to_string();
            assert_eq!(reply["takenUntil"], until);
            let status = world.status(number).await;
            assert_eq!(status["runs"][0]["started"], world.now().to_string());
        }
    }
);

/// Counts its activations.
struct Counted(Arc<AtomicI64>);

#[async_trait::async_trait]
impl BackgroundTask for Counted {
    fn name(&self) -> String {
        "counted".to_owned()
    }

    async fn activate(&mut self) -> server::background::driver::ActivationResult {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    }
}

on_both!(a_process_that_does_not_know_the_time_rests, |world| {
    world.created(1, json!({})).await;
    let process = Process::start(world, 0).await;
    let ready = async || {
        let ask = process.ask(world, Method::GET, "root:/ready");
        let answer = ask.anonymously().await;
        (answer.status, answer.text)
    };
    assert_eq!(ready().await, (200, "ready\n".to_owned()));
    process.is_suspended_for_ms(world, 10_000);
    let (status, text) = ready().await;
    assert_eq!(status, 503);
    assert!(text.contains("this machine was suspended"), "{text}");
    let claim = json!({"workerGroup": "g", "workerId": "w"});
    let claim = || {
        process
            .ask(world, Method::POST, "queue:/claim-work/pp%2Fee")
            .json(&claim)
    };
    let refused = claim().await;
    assert_eq!(refused.header("retry-after"), "5");
    refused.refused_with(503, "ClockUnknown", "waits for the time of its database");
    let n_activated = Arc::new(AtomicI64::new(0));
    let stop = CancellationToken::new();
    let mut driver = Driver::of(&process.clock, stop.clone());
    let counted = Counted(Arc::clone(&n_activated));
    let mut handle = driver.start(Duration::from_millis(1), counted);
    for _ in 0..100 {
        handle.wake();
        world.trip().await;
    }
    assert_eq!(n_activated.load(Ordering::SeqCst), 0);
    measure(world, &process.clock).await;
    handle.finished(2).await;
    stop.cancel();
    driver.join().await;
    assert_eq!(ready().await.0, 200);
    let claimed = claim().await.expect(200);
    assert_eq!(claimed["tasks"][0]["status"]["taskId"], task_id(1));
});

on_both!(
    a_worker_that_waits_for_work_gets_none_while_the_time_is_unknown,
    |world| {
        let process = Process::start(world, 0).await;
        let body = json!({"workerGroup": "g", "workerId": "w"});
        let waiting = process.ask(world, Method::POST, "queue:/claim-work/pp%2Fee");
        let waiting = tokio::spawn(waiting.json(&body).send());
        let queue = "pp/ee".parse().unwrap();
        let dispatcher = &process.app.engine.queue.dispatcher;
        while dispatcher.n_waiting(&queue) == 0 {
            tokio::task::yield_now().await;
        }
        process.is_suspended_for_ms(world, 10_000);
        world.created(1, json!({})).await;
        for _ in 0..100 {
            dispatcher.wake(&process.app.engine, &queue);
            world.trip().await;
        }
        assert_eq!(world.state(1).await, "pending");
        measure(world, &process.clock).await;
        let claimed = waiting.await.unwrap().expect(200);
        let until = world.now().plus_millis(CLAIM_MS).to_string();
        assert_eq!(claimed["tasks"][0]["takenUntil"], until);
    }
);

on_both!(
    after_a_step_of_the_time_nothing_ends_before_workers_could_claim_again,
    |world| {
        let process = Process::start(world, 0).await;
        let deadline = world.now().plus_millis(HOUR_MS).to_string();
        let expires = world.now().plus_millis(2 * HOUR_MS - 1).to_string();
        let short = json!({"deadline": deadline, "expires": expires});
        for (number, worker) in [(1, "alive"), (2, "dead")] {
            world.created(number, short.clone()).await;
            world.claim(worker, 1).await;
        }
        let begun = world.now();
        process.is_suspended_for_ms(world, 8 * HOUR_MS);
        measure(world, &process.clock).await;
        let engine = || Arc::clone(&process.app.engine);
        for passed_ms in [0, CLAIM_MS - 1] {
            world.clock.advance_ms(passed_ms);
            assert_eq!(process.end_what_is_over().await, NOTHING, "{passed_ms}");
            let mut forgetting = QueueHousekeeping::new(engine());
            assert_eq!(forgetting.activate().await.unwrap(), Value::Null);
            let mut forgetting = Housekeeping::new(Arc::clone(&process.app));
            assert_eq!(forgetting.activate().await.unwrap(), Value::Null);
        }
        // The step is undone: nothing has happened.
        let back_ms = begun.millis_since(world.now());
        process.is_suspended_for_ms(world, back_ms);
        measure(world, &process.clock).await;
        world.clock.advance_ms(CLAIM_MS - 1);
        assert_eq!(process.end_what_is_over().await, NOTHING);
        let path = format!("queue:/task/{}/runs/0/reclaim", task_id(1));
        world.ask(Method::POST, &path).await.expect(200);
        world.clock.advance_ms(1);
        let one = json!({"claims_expired": 1});
        assert_eq!(process.end_what_is_over().await, [one, Value::Null]);
        assert_eq!(world.state(1).await, "running");
        assert_eq!(
            world.status(2).await["runs"][0]["reasonResolved"],
            "claim-expired"
        );
    }
);

on_both!(a_process_that_ends_leaves_its_readers_to_others, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world.events().await;
    let (first, second) = (
        Process::start(world, 0).await,
        Process::start(world, 0).await,
    );
    let collect = async |process: &Process| {
        let mut outcomes = Outcomes(Arc::clone(&process.app));
        outcomes.activate().await.unwrap()
    };
    let ended = async |number| {
        let claim = world.running(number, "w").await;
        world
            .report(&claim, "completed", json!({}))
            .await
            .expect(200);
        world.events().await;
    };
    let one = json!({"outcomes": 1});
    ended(1).await;
    assert_eq!(collect(&first).await, one);
    ended(2).await;
    assert_eq!(collect(&second).await, Value::Null);
    server::background::leave_readers(&first.app).await.unwrap();
    assert_eq!(collect(&second).await, one);
    // The clock was hours ahead, is set back, and the process starts again under another name.
    for ahead_ms in WRONG {
        world.clock.advance_ms(ahead_ms);
        let (before, after) = (
            Process::start(world, 0).await,
            Process::start(world, 0).await,
        );
        let number = u32::try_from(ahead_ms / HOUR_MS + 20).unwrap();
        ended(number).await;
        assert_eq!(collect(&before).await, one, "{ahead_ms}");
        ended(number + 100).await;
        world.clock.advance_ms(-ahead_ms);
        world.clock.advance_ms(20_000);
        assert_eq!(collect(&after).await, one, "{ahead_ms}");
        world.clock.advance_ms(20_000);
    }
});

/// The clock of this machine, this far ahead.
struct Ahead(i64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_millis(self.0)
    }

    fn steady_ms(&self) -> i64 {
        SystemClock.steady_ms()
    }
}

on_both!(a_server_starts_with_the_time_of_its_database, |world| {
    let theirs = async || {
        let read = world.app.engine.store.read("clock", store::probe::clock);
        read.await.unwrap()
    };
    for ahead_ms in WRONG {
        let clock = Arc::new(DatabaseClock::new(Arc::new(Ahead(ahead_ms))));
        let random = Random::new(StdRng::seed_from_u64(12));
        let config = world.app.config.clone();
        let starting = start(config, Arc::clone(&clock), random, Vec::new());
        let before = theirs().await.earliest;
        let app = Box::pin(starting).await.unwrap();
        let now = app.engine.clock.now();
        let after = theirs().await.latest;
        // SQLite reads full seconds: the time may be one off, and a millisecond of a reading.
        let is_between = before.plus_millis(-1_001) <= now && now <= after.plus_millis(1_001);
        assert!(is_between, "{before} {now} {after}");
        app.engine.store.close().await;
    }
});
