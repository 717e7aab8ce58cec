//! A machine registers before its provider has answered the launch that makes it.

use std::sync::Arc;
use std::time::Duration;

use cloud::LaunchOutcome;
use domain::id::{LaunchToken, WorkerKey};
use domain::launch::Cause;
use http::Method;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::app::App;
use server::background::driver::BackgroundTask as _;
use server::background::{EventPublisher, Provision};
use tokio::task::JoinHandle;

use crate::ask::{Answer, Ask};
use crate::database::Database;
use crate::fleet_two_processes::second;
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test, plain_pool};
use crate::queue_samples::stop_time;

const ANSWER_MS: i64 = 1_000;
/// How long a registration waits for the answer of its launch.
const PATIENCE: Duration = Duration::from_secs(5);
const LIMIT: usize = 50_000_000;

/// A machine that is up, while the cloud has not answered its launch.
async fn early_machine(fleet: &Fleet) -> (WorkerKey, LaunchToken) {
    fleet.one.fake.set_answer_delay_ms(ANSWER_MS);
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    let done = Provision::new(Arc::clone(&fleet.app.engine))
        .activate()
        .await;
    assert_eq!(done.unwrap()["launches"], 1);
    for _ in 0..LIMIT {
        if let Some(machine) = fleet.machines().pop() {
            return (machine.key, machine.token.unwrap());
        }
        tokio::task::yield_now().await;
    }
    panic!("no machine was made");
}

async fn until_waiting(app: &App, token: &LaunchToken, registering: &JoinHandle<Answer>) {
    for _ in 0..LIMIT {
        if app.engine.launch_answers.n_waiting(token) == 1 {
            return;
        }
        assert!(!registering.is_finished(), "it was answered at once");
        tokio::task::yield_now().await;
    }
    panic!("no registration waits");
}

fn claim(fleet: &Fleet, key: &WorkerKey) -> Value {
    let token = fleet.one.fake.identity_token(key);
    json!({"workerPoolId": key.pool_id.as_str(), "providerId": "one",
        "workerGroup": key.group.as_str(), "workerId": key.id.as_str(),
        "workerIdentityProof": {"token": token.expose()}})
}

/// A registration that has not ended after this many trips to the database never will.
const MAX_TRIPS: usize = 5_000;

fn registering(server: &Arc<Server>, fleet: &Fleet, claim: &Value) -> JoinHandle<Answer> {
    let server = Arc::clone(server);
    let ask = Ask::new(server, Method::POST, "/worker/register", fleet.now()).json(claim);
    tokio::spawn(ask.send())
}

fleet_test!(
    a_machine_that_registers_before_the_answer_waits_for_it,
    |fleet| {
        let (key, token) = early_machine(fleet).await;
        // No timer fires: the answer itself wakes the registration.
        let _stopped = stop_time();
        let registering = registering(&fleet.server, fleet, &claim(fleet, &key));
        until_waiting(&fleet.app, &token, &registering).await;
        assert_eq!(fleet.states(POOL).await, "");
        fleet.pass_ms(ANSWER_MS);
        registering.await.unwrap().expect(200);
        assert_eq!(fleet.states(POOL).await, "1 running");
        assert_eq!(fleet.app.engine.launch_answers.n_waiting(&token), 0);
    }
);

fleet_on_sqlite_first!(
    a_registration_whose_launch_is_not_answered_is_to_be_tried_again,
    |fleet| {
        let (key, token) = early_machine(fleet).await;
        let stopped = stop_time();
        let waiting = registering(&fleet.server, fleet, &claim(fleet, &key));
        until_waiting(&fleet.app, &token, &waiting).await;
        let began = tokio::time::Instant::now();
        for n_trips in 0.. {
            if waiting.is_finished() {
                break;
            }
            assert!(n_trips < MAX_TRIPS, "it waits on");
            // It may still be on its way to wait, or to answer, which takes no time here.
            fleet.trip().await;
            if began.elapsed() < 2 * PATIENCE {
                tokio::time::advance(PATIENCE / 100).await;
            }
        }
        assert!(began.elapsed() >= PATIENCE);
        let answer = waiting.await.unwrap();
        stopped.resume();
        let text = "The launch of this worker was not answered yet; try again";
        answer.refused(503, "LaunchPending", text);
        let logged = fleet.log.lines("refused to register");
        assert_eq!(logged.len(), 1);
        assert!(logged[0].contains("its launch was not answered yet"));
        fleet.pass_ms(ANSWER_MS);
        fleet.app.engine.launch_tracker.finish().await;
        let again = registering(&fleet.server, fleet, &claim(fleet, &key));
        again.await.unwrap().expect(200);
    }
);

fleet_on_sqlite_first!(names_that_no_launch_offered_are_refused_at_once, |fleet| {
    let (key, token) = early_machine(fleet).await;
    let _stopped = stop_time();
    let right = claim(fleet, &key);
    let mut stolen = right.clone();
    stolen["workerId"] = json!(format!("{token}-1"));
    let mut forged = right.clone();
    forged["workerIdentityProof"] = json!({"token": "forged"});
    let mut secret = right.clone();
    secret["workerIdentityProof"] = json!({"staticSecret": "s".repeat(44)});
    let mut own = key.clone();
    own.id = "chosen-by-itself".parse().unwrap();
    let mut unknown = key.clone();
    unknown.id = "fN1SbArXTPSVFNUvaOlinQ-0".parse().unwrap();
    for wrong in [
        stolen,
        forged,
        secret,
        claim(fleet, &own),
        claim(fleet, &unknown),
    ] {
        let id = wrong["workerId"].as_str().unwrap().to_owned();
        let answer = registering(&fleet.server, fleet, &wrong).await.unwrap();
        let text = format!("Worker fake/{id} in worker pool pp/ee does not exist");
        answer.refused(404, "ResourceNotFound", &text);
    }
});

fleet_test!(
    an_identity_is_worth_nothing_once_its_launch_was_answered_without_it,
    |fleet| {
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Refused(Cause::Capacity)]);
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.provision().await;
        let launch = fleet.launches(POOL).await.remove(0);
        let key = WorkerKey {
            pool_id: launch.pool_id.clone(),
            group: "fake".parse().unwrap(),
            id: domain::launch::offered_id(&launch.token, 0).unwrap(),
        };
        let answer = registering(&fleet.server, fleet, &claim(fleet, &key));
        let text = format!("Worker fake/{} in worker pool pp/ee does not exist", key.id);
        answer
            .await
            .unwrap()
            .refused(404, "ResourceNotFound", &text);
    }
);

/// The answer comes to one process, the registration to another.
async fn across_processes(fleet: &Fleet) {
    let other = second(fleet).await;
    let (key, token) = early_machine(fleet).await;
    let stopped = stop_time();
    let server = Arc::new(Server::new(Arc::clone(&other)));
    let registering = registering(&server, fleet, &claim(fleet, &key));
    until_waiting(&other, &token, &registering).await;
    fleet.pass_ms(ANSWER_MS);
    fleet.app.engine.launch_tracker.finish().await;
    EventPublisher(Arc::clone(&other)).activate().await.unwrap();
    registering.await.unwrap().expect(200);
    assert_eq!(fleet.states(POOL).await, "1 running");
    other.engine.store.close().await;
    stopped.resume();
}

#[tokio::test]
async fn a_registration_in_another_process_than_the_launch_is_woken_by_the_event() {
    across_processes(&Fleet::open(Database::sqlite()).await).await;
    if let Some(database) = Database::postgres() {
        across_processes(&Fleet::open(database).await).await;
    }
}
