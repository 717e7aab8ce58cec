//! Registration and its renewal.

use std::time::Duration;

use access::Secret;
use serde_json::json;
use worker::{Identity, Proof, Stop, WorkerError};

use crate::fleet::InjectedFailure;
use crate::world::World;

#[tokio::test]
async fn a_worker_registers_although_the_server_does_not_know_it_yet() {
    let world = World::new().await;
    world
        .fleet
        .inject(3, "/register", InjectedFailure::Status(404));
    world
        .fleet
        .inject(2, "/register", InjectedFailure::Status(503));
    let (outcome, _) = world.run(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    world.fleet.look(|state| {
        assert_eq!(state.n_calls("/register"), 6);
        assert_eq!(state.n_registered, 1);
        let body = &state.bodies[0];
        assert_eq!(body["workerPoolId"], "demo/linux");
        assert!(body["systemBootTime"].is_string(), "{body}");
    });
}

#[tokio::test]
async fn a_wrong_proof_is_not_tried_again() {
    let world = World::new().await;
    let identity = Identity {
        proof: Proof::Token(Secret::new("something else")),
        ..world.identity()
    };
    let working = world.start_as(identity, Duration::ZERO);
    let problem = working.ended().await.unwrap_err();
    let WorkerError::NotRegistered(problem) = problem else {
        panic!("{problem}");
    };
    assert!(
        problem.to_string().contains("host/w1 of pool demo/linux"),
        "{problem}"
    );
    assert!(
        problem
            .source
            .to_string()
            .contains("400: the proof is wrong"),
        "{problem:?}"
    );
    world.fleet.look(|state| assert_eq!(state.calls.len(), 1));
}

#[tokio::test]
async fn a_worker_that_cannot_register_yet_can_be_stopped() {
    let world = World::new().await;
    world
        .fleet
        .inject(usize::MAX, "/register", InjectedFailure::Status(404));
    let working = world.start();
    world
        .fleet
        .until("it tries", |state| state.n_calls("/register") >= 2)
        .await;
    working.stops.ask(Stop::Drain);
    working.ended().await.unwrap();
}

#[tokio::test]
async fn a_registration_is_renewed_with_the_last_secret_again_and_again() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.registered_for = Duration::from_secs(3));
    let working = world.start();
    world
        .fleet
        .until("three renewals", |state| state.n_calls("/reregister") >= 3)
        .await;
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    working.end().await.unwrap();
    world.fleet.look(|state| assert_eq!(state.n_registered, 1));
}

#[tokio::test]
async fn a_lost_answer_to_a_renewal_does_no_harm() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.registered_for = Duration::from_secs(4));
    world
        .fleet
        .inject(1, "/reregister", InjectedFailure::LostAnswer);
    let working = world.start();
    world
        .fleet
        .until("a renewal after it", |state| {
            state.n_calls("/reregister") >= 3
        })
        .await;
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_killed_worker_continues_with_its_credentials() {
    let world = World::new().await;
    let working = world.start();
    world
        .fleet
        .until("it claims", |state| state.n_calls("claim-work") >= 1)
        .await;
    drop(working);
    let (outcome, _) = world.run(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    world.fleet.look(|state| assert_eq!(state.n_registered, 1));
}

#[tokio::test]
async fn an_invalid_pool_configuration_is_named() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.worker_config = json!({"fleetwright": {"idle": 1}}));
    let problem = world.start().ended().await.unwrap_err();
    let WorkerError::Settings(problem) = problem else {
        panic!("{problem}");
    };
    assert!(
        problem.to_string().contains("fleetwright.idle is unknown"),
        "{problem}"
    );
    world.fleet.look(|state| {
        assert!(state.errors[0].contains("fleetwright.idle is unknown"));
        assert!(
            state.is_removed,
            "a launched worker with invalid settings removes itself"
        );
    });
}

#[tokio::test]
async fn a_folder_or_address_that_cannot_be_used_is_named_before_anything_is_sent() {
    let world = World::new().await;
    let file = world.folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let bad_folder = world.identity().working_in(file.join("work"));
    let problem = world.start_as(bad_folder, Duration::ZERO).ended().await;
    assert!(problem.unwrap_err().to_string().contains("file/work"));
    let bad_url = Identity {
        root_url: "fleet.example.com".to_owned(),
        ..world.identity()
    };
    let problem = world.start_as(bad_url, Duration::ZERO).ended().await;
    assert!(problem.unwrap_err().to_string().contains("is no root URL"));
    world.fleet.look(|state| assert_eq!(state.calls.len(), 0));
}
