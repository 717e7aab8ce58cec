//! Lost sessions and lost locks: only the holder of a lock writes a result.

use backplane::tree::{Lock, LockError, Op};
use domain::image::{BuildFailureCause, BuildNumber, BuildState};
use images::Place;

use super::on_both;
use crate::world::{
    Twin, WAIT_LIMIT, World, build_states, debian, failure, image, is_building, until,
};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_both! {
    a_builder_that_loses_its_session_stops_its_build_and_writes_no_result
    of_two_processes_that_believe_to_hold_the_lock_only_the_holder_writes
    a_builder_waits_for_the_holder_of_a_lock_and_builds_at_its_release
    a_builder_that_lost_its_session_goes_on_with_a_new_one
    a_stale_copy_abandons_no_build_that_is_alive
}

async fn a_builder_that_loses_its_session_stops_its_build_and_writes_no_result(twin: Twin) {
    let world = World::open(twin).await;
    let first = world.builder("first").await;
    let (go, runs) = (world.path("go"), world.path("runs"));
    let script = format!(
        "echo $$ >>{}; while [ ! -e {} ]; do sleep 0.02; done; {GOOD}",
        runs.display(),
        go.display()
    );
    world.define(&debian(&script)).await;
    world.until("debian", "a build", is_building).await;
    until("the command", || runs.exists()).await;
    let second = world.builder("second").await;
    first.session.expire().await;
    // One of both builds it again, as soon as the lock is free.
    let is_second = |it: &images::ImageNode| it.running().is_some_and(|(build, _)| build.0 == 2);
    world.until("debian", "another build", is_second).await;
    let is_noted = |it: &images::ImageNode| {
        let record = it
            .builds
            .get(&BuildNumber(1))
            .and_then(|it| it.record.as_ref());
        record
            .and_then(failure)
            .is_some_and(|(_, cause)| cause == BuildFailureCause::BuilderDied)
    };
    world.until("debian", "a note", is_noted).await;
    std::fs::write(go, "").unwrap();
    world.until_uploaded("debian", 2, &["fake"]).await;
    world.until_builds("debian", &[(2, "ready")]).await;
    let is_empty = |name: &str| {
        let mut left = std::fs::read_dir(world.path(name).join("work")).unwrap();
        left.next().is_none()
    };
    until("the work folders to be empty", || {
        is_empty("first") && is_empty("second")
    })
    .await;
    drop((first, second));
}

async fn of_two_processes_that_believe_to_hold_the_lock_only_the_holder_writes(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(GOOD)).await;
    let slow = world.twin.session().await;
    let node = Place::Builds(image("debian")).path().unwrap();
    let old = Lock::try_acquire(&slow.tree, &node, "slow")
        .await
        .unwrap()
        .unwrap();
    let record = Place::Build(image("debian"), BuildNumber(90))
        .path()
        .unwrap();
    old.write(&[Op::create(record.clone(), r#"{"state": "building"}"#)])
        .await
        .unwrap();
    slow.expire().await;
    // A client knows of the end of its session before the server does.
    let new = Lock::acquire(world.tree(), &node, "new", WAIT_LIMIT)
        .await
        .unwrap();
    assert!(new.number() > old.number());
    let ready = Op::Set {
        path: record,
        data: br#"{"state": "ready"}"#.to_vec(),
        expected: Some(0),
    };
    let late = old.write(std::slice::from_ref(&ready)).await.unwrap_err();
    assert!(matches!(late, LockError::Lost(_)), "{late}");
    new.write(&[ready]).await.unwrap();
    new.release().await.unwrap();
}

async fn a_builder_waits_for_the_holder_of_a_lock_and_builds_at_its_release(twin: Twin) {
    let world = World::open(twin).await;
    world
        .define(&debian(GOOD).with("paused", true.into()))
        .await;
    let node = Place::Builds(image("debian")).path().unwrap();
    let lock = Lock::try_acquire(world.tree(), &node, "a person")
        .await
        .unwrap()
        .unwrap();
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.define(&debian(GOOD).named("other")).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    world
        .until_explained("debian", "wait: a person builds it")
        .await;
    assert_eq!(world.look("debian", build_states), []);
    lock.release().await.unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
}

async fn a_builder_that_lost_its_session_goes_on_with_a_new_one(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    for build in 1..=3 {
        world.until_uploaded("debian", build, &["fake"]).await;
        let is_unasked = |it: &images::ImageNode| it.request.is_none();
        world.until("debian", "no request", is_unasked).await;
        builder.session.expire().await;
        world.request("debian", "again").await;
    }
    world.until_uploaded("debian", 4, &["fake"]).await;
}

/// Two copies are read while a build begins; both may miss its lock, and none may end the build.
async fn a_stale_copy_abandons_no_build_that_is_alive(twin: Twin) {
    let world = World::open(twin).await;
    let go = world.path("go");
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.02; done; {GOOD}",
        go.display()
    );
    let _first = world.builder("first").await;
    let second = world.builder("second").await;
    world.define(&debian(&script)).await;
    world.until("debian", "a build", is_building).await;
    let builder = world.record("debian", 1).builder.clone();
    // The one that does not build reads everything again, several times.
    if builder == "first" {
        for _ in 0..3 {
            second.session.expire().await;
        }
    }
    let third = world.builder("third").await;
    std::fs::write(go, "").unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(world.record("debian", 1).state, BuildState::Ready);
    drop(third);
}
