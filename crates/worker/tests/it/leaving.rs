//! When a worker exits, and what happens to its tasks.

use std::time::Duration;

use serde_json::json;
use worker::{Identity, Kind, Stop, WorkerError};

use crate::fleet::InjectedFailure;
use crate::world::{RunningWorker, World};

/// A task that runs until it is ended.
const ENDLESS: &str = "echo started; while :; do sleep 0.05; done";

impl World {
    fn with_idle_timeout(self, seconds: u64) -> Self {
        let config = json!({"fleetwright": {"idleTimeoutSeconds": seconds}});
        self.fleet.change(|state| state.worker_config = config);
        self
    }

    fn advise(&self, terminate: bool, reason: &str) {
        let advice = json!({"terminate": terminate, "reason": reason});
        self.fleet.change(|state| state.advice = advice);
    }

    async fn started(&self, command: &str) -> String {
        let task = self.fleet.add_task(json!({"command": command}));
        self.fleet
            .until("the task runs", |state| {
                state.run(&task).log_text().contains("started\n")
            })
            .await;
        task
    }

    fn outcome(&self, task: &str) -> Option<String> {
        self.fleet.look(|state| state.run(task).outcome.clone())
    }
}

#[tokio::test]
async fn a_worker_that_is_not_needed_removes_itself() {
    let world = World::new().await;
    world.advise(true, "over capacity");
    world.start().ended().await.unwrap();
    world.fleet.look(|state| {
        assert!(state.is_removed);
        assert_eq!(state.n_calls("claim-work"), 0, "{:?}", state.calls);
    });
    let state = world.folder.path().join("work/worker-state.json");
    assert!(!state.exists(), "a removed worker has no credentials");
}

#[tokio::test]
async fn an_idle_worker_asks_for_advice_and_follows_it() {
    let world = World::new().await.with_idle_timeout(1);
    let working = world.start();
    // While a claim waits, only the idle timer asks.
    world
        .fleet
        .until("three times", |state| {
            state.n_calls("should-terminate") >= 3
        })
        .await;
    assert!(!world.fleet.look(|state| state.is_removed));
    world.advise(true, "over capacity");
    working.ended().await.unwrap();
    assert!(world.fleet.look(|state| state.is_removed));
}

#[tokio::test]
async fn a_busy_worker_finishes_before_it_exits() {
    let world = World::new().await.with_idle_timeout(1);
    world
        .fleet
        .change(|state| state.worker_config["fleetwright"]["capacity"] = json!(2));
    let working = world.start();
    let task = world.started("echo started; sleep 2").await;
    // The second slot is free, so the worker keeps asking for work, and is then asked to stop.
    world.advise(true, "launch config archived");
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
}

#[tokio::test]
async fn a_failed_request_for_advice_is_no_reason_to_exit() {
    let world = World::new().await.with_idle_timeout(1);
    world
        .fleet
        .inject(usize::MAX, "should-terminate", InjectedFailure::Status(500));
    let working = world.start();
    let (outcome, _) = world.outcome_of(json!({"command": "sleep 0.1"})).await;
    assert_eq!(outcome, "completed");
    let (outcome, _) = world.outcome_of(json!({"command": "sleep 0.1"})).await;
    assert_eq!(outcome, "completed");
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_draining_worker_claims_nothing_and_finishes_its_tasks() {
    let world = World::new().await;
    let working = world.start();
    let task = world.started("echo started; sleep 1").await;
    working.stops.ask(Stop::Drain);
    let late = world.fleet.add_task(json!({"command": "true"}));
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
    assert_eq!(world.outcome(&late), None);
    world
        .fleet
        .look(|state| assert!(!state.run(&late).is_claimed));
}

/// A task that the server has assigned, and whose response the worker has not received yet.
async fn assign_late(world: &World, millis: u64) -> (String, RunningWorker) {
    let late = InjectedFailure::LateAnswer(Duration::from_millis(millis));
    world.fleet.inject(1, "/claim-work", late);
    let task = world.fleet.add_task(json!({"command": "true"}));
    let working = world.start();
    world
        .fleet
        .until("it is assigned", |state| state.run(&task).is_claimed)
        .await;
    (task, working)
}

#[tokio::test]
async fn a_task_assigned_during_a_stop_is_given_back_at_once() {
    let world = World::new().await;
    let (task, working) = assign_late(&world, 300).await;
    working.end().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("worker-shutdown"));
    world
        .fleet
        .look(|state| assert_eq!(state.n_calls("/claim-work"), 1, "no new task is claimed"));
}

#[tokio::test]
async fn a_task_assigned_while_the_worker_becomes_idle_is_run() {
    let world = World::new().await.with_idle_timeout(1);
    let (task, working) = assign_late(&world, 1_400).await;
    world.advise(true, "over capacity");
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
    assert!(world.fleet.look(|state| state.is_removed));
}

#[tokio::test]
async fn the_registration_is_renewed_while_the_last_task_finishes() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.registered_for = Duration::from_secs(2));
    let working = world.start();
    let task = world.started("echo started; sleep 3").await;
    working.stops.ask(Stop::Drain);
    world.fleet.change(|state| state.calls.clear());
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
    world
        .fleet
        .look(|state| assert!(state.n_calls("/reregister") >= 1, "{:?}", state.calls));
}

#[tokio::test]
async fn a_task_that_exceeds_the_grace_period_is_given_back() {
    let world = World::new().await;
    let working = world.start_as(world.identity(), Duration::from_millis(100));
    let task = world.started(ENDLESS).await;
    working.end().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("worker-shutdown"));
    let log = world.fleet.look(|state| state.run(&task).log_text());
    assert!(log.contains("the worker is stopping"), "{log}");
    assert_eq!(world.leftovers(), [""; 0]);
}

#[tokio::test]
async fn an_immediate_stop_kills_a_task_that_ignores_sigterm() {
    let world = World::new().await;
    let working = world.start_as(world.identity(), Duration::from_secs(3_600));
    let task = world.started(&format!("trap '' TERM; {ENDLESS}")).await;
    working.stops.ask(Stop::Now);
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("worker-shutdown"));
}

#[tokio::test]
async fn a_static_machine_stays_registered_when_its_worker_stops() {
    let world = World::new().await;
    for n in 1..=2 {
        let working = world.start_as(standing(&world), Duration::ZERO);
        let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
        assert_eq!(outcome, "completed", "{n}");
        working.end().await.unwrap();
    }
    world.fleet.look(|state| {
        assert!(!state.is_removed);
        assert_eq!(state.n_registered, 1, "it continues its registration");
    });
}

/// A permanent machine.
fn standing(world: &World) -> Identity {
    Identity {
        kind: Kind::Static,
        ..world.identity()
    }
}

#[tokio::test]
async fn a_static_worker_whose_launch_config_is_archived_finishes_its_task_and_exits() {
    let world = World::new().await;
    let say = |state: &str| {
        let answer = json!({"state": state, "reason": "demo/linux has left the provider static"});
        world.fleet.change(|state| state.launch_config = answer);
    };
    let working = world.start_as(standing(&world), Duration::from_secs(10));
    let task = world.started("echo started; sleep 1").await;
    say("archived");
    let late = world.fleet.add_task(json!({"command": "true"}));
    working.ended().await.unwrap();
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
    world.fleet.look(|state| {
        assert!(!state.run(&late).is_claimed, "nothing new is claimed");
        assert!(!state.is_removed, "it stays declared");
    });
    // A pause is no reason to exit, and neither is a state of a newer server.
    for state in ["paused", "retired"] {
        say(state);
        let working = world.start_as(standing(&world), Duration::ZERO);
        let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
        assert_eq!(outcome, "completed", "{state}");
        working.end().await.unwrap();
        // The first process since then registered again, for the configuration in force; the next
        // one continued.
        assert_eq!(world.fleet.look(|state| state.n_registered), 2, "{state}");
    }
}

#[tokio::test]
async fn a_static_worker_registers_again_when_another_launch_config_replaces_its_own() {
    let world = World::new().await;
    let working = world.start_as(standing(&world), Duration::from_secs(10));
    let task = world.started("echo started; sleep 1").await;
    world.fleet.change(|state| {
        state.launch_config = json!({"state": "archived", "reason": "an edit",
            "launchConfigId": "old", "nextLaunchConfigId": "new"});
    });
    world
        .fleet
        .until("it registers again", |state| state.n_registered == 2)
        .await;
    let known = world.outcome(&task);
    assert_eq!(known.as_deref(), Some("completed"), "its task ended before");
    // A server that repeats the answer does not make it register in a loop.
    for _ in 0..2 {
        let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
        assert_eq!(outcome, "completed");
    }
    world.fleet.look(|state| assert_eq!(state.n_registered, 2));
    // Nor does it miss the next edit.
    world.fleet.change(|state| {
        state.launch_config = json!({"state": "archived", "reason": "another edit",
            "launchConfigId": "new", "nextLaunchConfigId": "newer"});
    });
    world
        .fleet
        .until("it registers once more", |state| state.n_registered == 3)
        .await;
    world
        .fleet
        .look(|state| assert!(!state.is_removed, "it stays declared"));
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_know_the_question_is_no_reason_to_exit() {
    for failure in [InjectedFailure::Status(404), InjectedFailure::Status(500)] {
        let world = World::new().await;
        world.fleet.inject(usize::MAX, "/launch-config", failure);
        let working = world.start_as(standing(&world), Duration::ZERO);
        let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
        assert_eq!(outcome, "completed");
        working.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_launched_worker_learns_it_from_its_advice_and_does_not_ask() {
    let world = World::new().await;
    let (outcome, _) = world.run(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    let n_asked = world.fleet.look(|state| state.n_calls("/launch-config"));
    assert_eq!(n_asked, 0);
}

#[tokio::test]
async fn a_worker_whose_renewal_is_refused_finishes_and_exits() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.registered_for = Duration::from_secs(2));
    world
        .fleet
        .inject(1, "/reregister", InjectedFailure::Status(400));
    let working = world.start();
    let task = world.started("echo started; sleep 2").await;
    let problem = working.ended().await.unwrap_err();
    assert!(matches!(problem, WorkerError::Unwanted(_)), "{problem}");
    assert!(
        problem.to_string().contains("injected failure"),
        "{problem}"
    );
    assert_eq!(world.outcome(&task).as_deref(), Some("completed"));
}
