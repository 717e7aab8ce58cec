//! Requests for builds that meet the removal of an older one.

use std::sync::{Arc, Mutex};

use backplane::tree::{Op, Tree, TreeError};
use cloud::image::TrustedKeys;
use domain::image::BuildNumber;
use domain::time::Timestamp;
use images::{ImageNode, ImageTree, Place, RequestedBuild};
use tokio_util::task::AbortOnDropHandle;

use super::on_embedded_first;
use crate::world::{
    BuilderPlan, InterruptedTree, Twin, WAIT_LIMIT, World, asker, debian, image, keyring,
};

on_embedded_first! {
    a_request_that_replaces_an_answered_one_is_not_cleared_in_its_place
    a_request_that_follows_a_cleared_one_is_not_cleared_in_its_place
    a_request_is_cleared_by_its_time
    the_first_build_of_a_definition_meets_the_requests_before_its_end
    a_request_that_comes_while_the_first_build_begins_makes_no_second_one
    a_build_that_begins_while_a_request_comes_answers_it
    a_request_says_why_no_build_begins
}

async fn a_request_that_replaces_an_answered_one_is_not_cleared_in_its_place(twin: Twin) {
    let (world, at) = requested(twin).await;
    let build = Place::Build(image("debian"), BuildNumber(1))
        .path()
        .unwrap();
    let node = world.tree().get(&build).await.unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&node.data).unwrap();
    record["request"] = (at.as_millis() as f64 / 1_000.0).into();
    let record = record.to_string();
    let answered = world.tree().set(&build, record.as_bytes(), None).await;
    answered.unwrap();
    let is_answered = |it: &ImageNode| {
        let record = it.builds[&BuildNumber(1)].record.as_ref();
        record.is_some_and(|record| record.request == Some(at))
    };
    world.until("debian", "the answer", is_answered).await;
    let images = Arc::clone(&world.images);
    let meanwhile = async move { ask(&images).await };
    assert_not_cleared(&world, at, meanwhile).await;
}

async fn a_request_that_follows_a_cleared_one_is_not_cleared_in_its_place(twin: Twin) {
    let (world, at) = requested(twin).await;
    let images = Arc::clone(&world.images);
    let meanwhile = async move {
        images.clear_request(&image("debian"), at).await.unwrap();
        ask(&images).await;
    };
    assert_not_cleared(&world, at, meanwhile).await;
}

async fn a_request_is_cleared_by_its_time(twin: Twin) {
    let (world, at) = requested(twin).await;
    let path = Place::Request(image("debian")).path().unwrap();
    let other = Timestamp::from_millis(at.as_millis() - 1);
    let kept = world.images.clear_request(&image("debian"), other).await;
    kept.unwrap();
    assert!(world.tree().exists(&path).await.unwrap().is_some());
    let cleared = world.images.clear_request(&image("debian"), at).await;
    cleared.unwrap();
    assert_eq!(world.tree().exists(&path).await.unwrap(), None);
    let again = world.images.clear_request(&image("debian"), at).await;
    assert!(matches!(again, Err(TreeError::NoNode(gone)) if gone == path));
}

async fn the_first_build_of_a_definition_meets_the_requests_before_its_end(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let go = world.path("go");
    let gated = |text: &str| {
        let script = format!(
            r#"echo {text}; while [ ! -e {} ]; do sleep 0.02; done; echo disk >"$1.raw""#,
            go.display()
        );
        debian(&script)
    };
    let until_running = async |number: u64| {
        let is_running = move |it: &ImageNode| it.running().is_some_and(|(it, _)| it.0 == number);
        world.until("debian", "a build", is_running).await;
    };
    let requested = async |reason: &str| {
        let (name, asker) = (image("debian"), asker(reason));
        world.images.request_build(&name, &asker).await.unwrap()
    };
    world.define(&gated("first")).await;
    until_running(1).await;
    let first = requested("now").await;
    let expected = RequestedBuild {
        running: Some(BuildNumber(1)),
        newer_than: BuildNumber(1),
    };
    assert_eq!(first, expected);
    std::fs::write(&go, "").unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
    std::fs::remove_file(&go).unwrap();
    // The same definition again is built for the request, and another request follows.
    let again = requested("later").await;
    let expected = RequestedBuild {
        running: None,
        newer_than: BuildNumber(1),
    };
    assert_eq!(again, expected);
    until_running(2).await;
    let next = requested("after that").await;
    let expected = RequestedBuild {
        running: None,
        newer_than: BuildNumber(2),
    };
    assert_eq!(next, expected);
    std::fs::write(&go, "").unwrap();
    world.until_uploaded("debian", 3, &["fake"]).await;
    std::fs::remove_file(&go).unwrap();
    assert!(world.record("debian", 3).request.is_some());
    // So is the first build of another definition.
    world.define(&gated("second")).await;
    until_running(4).await;
    let changed = requested("now").await;
    assert_eq!(changed.running, Some(BuildNumber(4)));
    // A person who cancels it does not want it any more.
    let (name, person) = (image("debian"), asker("no"));
    let cancelled = world.images.cancel_build(&name, BuildNumber(4), &person);
    cancelled.await.unwrap();
    let after = requested("yes").await;
    assert_eq!(after.running, None);
    until_running(5).await;
    std::fs::write(&go, "").unwrap();
    world.until_uploaded("debian", 5, &["fake"]).await;
}

/// The server asks between the beginning of the build and the moment when its copy shows that.
async fn a_request_that_comes_while_the_first_build_begins_makes_no_second_one(twin: Twin) {
    let world = World::open(twin).await;
    let go = world.path("go");
    let script = format!(
        r#"while [ ! -e {} ]; do sleep 0.02; done; echo disk >"$1.raw""#,
        go.display()
    );
    world.define(&debian(&script)).await;
    let world = Arc::new(world);
    let tree = InterruptedTree::of(world.tree());
    let images = ImageTree::new(
        Arc::clone(&tree) as Arc<dyn Tree>,
        TrustedKeys::new(&keyring()),
    );
    let follower = Arc::clone(&images);
    let _follow = AbortOnDropHandle::new(tokio::spawn(async move { follower.follow().await }));
    let is_defined = |it: Option<&ImageNode>| it.is_some_and(|it| it.definition.is_some());
    assert!(
        images
            .wait_for(&image("debian"), WAIT_LIMIT, is_defined)
            .await
    );
    let (builders, started) = (Arc::clone(&world), Arc::new(Mutex::new(None)));
    let builder = Arc::clone(&started);
    tree.interrupt(async move {
        let started = builders.builder("one").await;
        let is_running = |it: &ImageNode| it.running().is_some();
        builders
            .until("debian", "the first build", is_running)
            .await;
        *builder.lock().unwrap() = Some(started);
    });
    let asked = images.request_build(&image("debian"), &asker("now")).await;
    assert_eq!(asked.unwrap().running, Some(BuildNumber(1)));
    std::fs::write(&go, "").unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert!(!world.look("debian", |it| it.request.is_some()));
}

/// Somebody asks between the decision of the builder and the beginning of its build.
async fn a_build_that_begins_while_a_request_comes_answers_it(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(r#"echo disk >"$1.raw""#)).await;
    let images = Arc::clone(&world.images);
    let is_beginning = |ops: &[Op]| {
        ops.iter()
            .any(|op| matches!(op, Op::CreateSequential { .. }) && op.path().name() == "builds")
    };
    let wrap = move |tree: &Arc<dyn Tree>| {
        let images = Arc::clone(&images);
        let asks = async move { ask(&images).await };
        InterruptedTree::before(tree, is_beginning, asks) as Arc<dyn Tree>
    };
    let plan = BuilderPlan {
        wrap: Some(Arc::new(wrap)),
        ..BuilderPlan::new("one")
    };
    let _builder = world.builder_of(plan).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert!(world.record("debian", 1).request.is_some());
    world
        .until("debian", "no request", |it| it.request.is_none())
        .await;
    assert_eq!(world.look("debian", |it| it.builds.len()), 1);
}

async fn a_request_says_why_no_build_begins(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(r#"echo disk >"$1.raw""#)).await;
    let name = image("debian");
    let why = async || {
        let asked = world
            .images
            .request_build(&name, &asker("now"))
            .await
            .unwrap();
        let now = world.clock.now_ms();
        world.images.why_no_build(&name, &asked, now)
    };
    let pause = async || {
        let reason = asker("moving racks");
        world.images.pause(&name, &reason).await.unwrap();
        let is_paused = |it: &ImageNode| it.pause.is_some();
        world.until("debian", "the pause", is_paused).await;
    };
    assert_eq!(why().await.as_deref(), Some("no builder is live"));
    pause().await;
    let paused = "paused by alice: moving racks";
    assert_eq!(why().await.as_deref(), Some(paused));
    // A pause shows at once, whether or not there is something to do.
    let shown = |key: &str| world.images.status(&name, world.clock.now_ms()).unwrap()[key].clone();
    assert_eq!(shown("state"), "paused");
    let _builder = world.builder("one").await;
    world.images.resume(&name).await.unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
    world
        .until("debian", "no request", |it| it.request.is_none())
        .await;
    pause().await;
    assert_eq!(shown("state"), "paused");
    assert_eq!(shown("nextBuild")["reason"], paused);
}

/// A world with a build, a request that waits, and no builder.
async fn requested(twin: Twin) -> (World, Timestamp) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian(r#"echo disk >"$1.raw""#)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    builder.stop().await;
    world.request("debian", "first").await;
    let is_asked = |it: &ImageNode| it.request.is_some();
    world.until("debian", "the request", is_asked).await;
    let at = world.look("debian", |it| it.request.as_ref().map(|it| it.at));
    (world, at.unwrap())
}

async fn ask(images: &ImageTree) {
    let (debian, second) = (image("debian"), asker("second"));
    images.request_build(&debian, &second).await.unwrap();
}

/// Clears the request of this time, while something else happens. The second request stays.
async fn assert_not_cleared(
    world: &World,
    at: Timestamp,
    meanwhile: impl Future<Output = ()> + Send + 'static,
) {
    let tree = InterruptedTree::of(world.tree());
    let images = ImageTree::new(
        Arc::clone(&tree) as Arc<dyn Tree>,
        TrustedKeys::new(&keyring()),
    );
    tree.interrupt(meanwhile);
    let cleared = images.clear_request(&image("debian"), at).await;
    assert!(
        matches!(cleared, Err(TreeError::BadVersion(_))),
        "{cleared:?}"
    );
    let path = Place::Request(image("debian")).path().unwrap();
    let node = world.tree().get(&path).await.unwrap();
    let note = String::from_utf8(node.data).unwrap();
    assert!(note.contains("second"), "{note}");
}
