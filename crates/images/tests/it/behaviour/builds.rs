//! When images are built, and by whom.

use domain::image::{BuildFailureCause, BuildNumber};
use serde_json::json;

use super::on_embedded_first;
use crate::world::{
    BuilderPlan, Twin, World, asker, build_states, debian, failure, image, is_building, until,
};

const DAY_MS: i64 = 86_400_000;
const GOOD: &str = r#"echo disk >"$1.raw""#;

on_embedded_first! {
    a_new_definition_is_built_and_uploaded_and_a_request_does_it_again
    one_image_is_built_once_at_a_time_however_many_builders_there_are
    a_builder_builds_no_more_images_side_by_side_than_it_has_slots
    labels_decide_which_builder_builds
    a_build_that_is_too_old_is_replaced_and_both_stay
    a_failing_build_waits_longer_each_time_and_says_why
    a_failed_build_is_removed_after_a_success
    a_request_is_tried_at_once_after_failures
    a_request_during_the_build_that_answers_another_is_not_lost
    a_paused_image_is_not_built_until_it_is_resumed
    a_changed_definition_is_built_again
    an_image_without_targets_is_built
    an_image_that_is_added_later_is_built
    a_definition_that_cannot_be_read_deletes_nothing
}

async fn a_new_definition_is_built_and_uploaded_and_a_request_does_it_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(
        world.record("debian", 1).reason.as_deref(),
        Some("no build is ready")
    );
    world.request("debian", "new kernel").await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    let record = world.record("debian", 2);
    assert_eq!(
        record.reason.as_deref(),
        Some("alice asked for it: new kernel")
    );
    world
        .until("debian", "no request", |it| it.request.is_none())
        .await;
    assert_eq!(world.cloud("fake").images().len(), 2);
    let name = &world.cloud("fake").images()[1].name;
    assert_eq!(name, "debian-2");
}

async fn one_image_is_built_once_at_a_time_however_many_builders_there_are(twin: Twin) {
    let world = World::open(twin).await;
    let (busy, clashes) = (world.path("busy"), world.path("clashes"));
    let script = format!(
        "mkdir {} || echo x >>{}; sleep 0.05; {GOOD}; rmdir {}",
        busy.display(),
        clashes.display(),
        busy.display()
    );
    let mut builders = Vec::new();
    for name in ["one", "two", "three"] {
        builders.push(world.builder(name).await);
    }
    world.define(&debian(&script)).await;
    for build in 1..=4 {
        world.until_uploaded("debian", build, &["fake"]).await;
        world.request("debian", "again").await;
    }
    world.until_uploaded("debian", 5, &["fake"]).await;
    assert!(!clashes.exists());
    // No builder built without need.
    world
        .until("debian", "no request", |it| it.request.is_none())
        .await;
    world
        .until_builds("debian", &[(4, "ready"), (5, "ready")])
        .await;
}

async fn a_builder_builds_no_more_images_side_by_side_than_it_has_slots(twin: Twin) {
    let world = World::open(twin).await;
    let mut plan = BuilderPlan::new("one");
    plan.build_slots = 2;
    let _builder = world.builder_of(plan).await;
    let running = world.path("running");
    std::fs::create_dir(&running).unwrap();
    let (own, most) = (running.display(), world.path("most"));
    let script = format!(
        "touch {own}/$$; ls {own} | wc -l >>{}; sleep 0.1; rm {own}/$$; {GOOD}",
        most.display()
    );
    for name in ["a", "b", "c", "d", "e"] {
        world.define(&debian(&script).named(name)).await;
    }
    for name in ["a", "b", "c", "d", "e"] {
        world.until_uploaded(name, 1, &["fake"]).await;
    }
    let counts = std::fs::read_to_string(most).unwrap();
    let counts = counts
        .lines()
        .map(|line| line.trim().parse::<u32>().unwrap());
    assert!(counts.max().unwrap() <= 2);
}

async fn labels_decide_which_builder_builds(twin: Twin) {
    let world = World::open(twin).await;
    let _plain = world.builder("plain").await;
    let arm = debian(GOOD).with("labels", json!(["arm64", "kvm"]));
    world.define(&arm).await;
    world
        .until("debian", "the definition", |it| it.definition.is_some())
        .await;
    assert_eq!(
        world.explain("debian"),
        ["wait: no live builder has the labels arm64, kvm"]
    );
    let plan = BuilderPlan::new("arm").with_labels(&["arm64", "kvm", "fast"]);
    let _arm = world.builder_of(plan).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(world.record("debian", 1).builder, "arm");
}

async fn a_build_that_is_too_old_is_replaced_and_both_stay(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    world.advance(DAY_MS / 2).await;
    world.until_explained("debian", "wait until ").await;
    world.advance(DAY_MS / 2).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    let reason = world.record("debian", 2).reason.clone().unwrap();
    assert!(reason.contains("old"), "{reason}");
    world
        .until_builds("debian", &[(1, "ready"), (2, "ready")])
        .await;
    assert_eq!(world.cloud("fake").images().len(), 2);
}

async fn a_failing_build_waits_longer_each_time_and_says_why(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian("echo broken mirror; exit 7")).await;
    world.until_builds("debian", &[(1, "failed")]).await;
    let (error, cause) = failure(&world.record("debian", 1)).unwrap();
    assert_eq!(
        (error.as_str(), cause),
        ("the command exited with 7", BuildFailureCause::Build)
    );
    let waits = "exited with 7; next try at ";
    world.until_explained("debian", waits).await;
    world.advance(30_000).await;
    world.advance(31_000).await;
    world
        .until_builds("debian", &[(1, "failed"), (2, "failed")])
        .await;
    assert_eq!(world.record("debian", 2).attempt, 2);
    // The second delay is twice as long.
    world.advance(61_000).await;
    world.until_explained("debian", waits).await;
    world.advance(61_000).await;
    let three = [(1, "failed"), (2, "failed"), (3, "failed")];
    world.until_builds("debian", &three).await;
    // Of all failures, the last three stay.
    world.advance(241_000).await;
    let three = [(2, "failed"), (3, "failed"), (4, "failed")];
    world.until_builds("debian", &three).await;
    let log = builder.whole_log("debian", 4).await;
    assert!(log.starts_with("broken mirror\n"), "{log}");
    assert!(log.contains("exit code 7"), "{log}");
}

async fn a_failed_build_is_removed_after_a_success(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let script = format!("[ -e {} ] && {GOOD}", world.path("go").display());
    world.define(&debian(&script)).await;
    world.until_builds("debian", &[(1, "failed")]).await;
    std::fs::write(world.path("go"), "").unwrap();
    world.advance(61_000).await;
    world.until_builds("debian", &[(2, "ready")]).await;
    let is_left = |world: &World| {
        world
            .stored_files()
            .iter()
            .any(|it| it.starts_with("debian/1/"))
    };
    until("the log of build 1 to go", || !is_left(&world)).await;
}

async fn a_request_is_tried_at_once_after_failures(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian("exit 1")).await;
    world.until_builds("debian", &[(1, "failed")]).await;
    world.request("debian", "the mirror is back").await;
    world
        .until_builds("debian", &[(1, "failed"), (2, "failed")])
        .await;
    // The request stays until a build answers it, and does not make builds spin.
    world.until_explained("debian", "next try at").await;
    world.advance(30_000).await;
    world.until_explained("debian", "next try at").await;
    world
        .until("debian", "a request", |it| it.request.is_some())
        .await;
}

async fn a_request_during_the_build_that_answers_another_is_not_lost(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let go = world.path("go");
    std::fs::write(&go, "").unwrap();
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.02; done; {GOOD}",
        go.display()
    );
    world.define(&debian(&script)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    std::fs::remove_file(&go).unwrap();
    world.request("debian", "first").await;
    let is_asked = |it: &images::ImageNode| it.request.is_some();
    world.until("debian", "the request", is_asked).await;
    let answers = |it: &images::ImageNode| {
        let request = it.request.as_ref().map(|it| it.at);
        it.running()
            .is_some_and(|(_, record)| record.request == request)
    };
    world
        .until("debian", "the build of the first", answers)
        .await;
    world.request("debian", "second").await;
    let is_second = |it: &images::ImageNode| {
        let request = it.request.as_ref();
        request.is_some_and(|request| request.reason == "second")
    };
    world.until("debian", "the second", is_second).await;
    world.request("debian", "third").await;
    std::fs::write(go, "").unwrap();
    world.until_uploaded("debian", 3, &["fake"]).await;
    let reason = world.record("debian", 3).reason.clone();
    assert_eq!(reason.as_deref(), Some("alice asked for it: second"));
    let is_unasked = |it: &images::ImageNode| it.request.is_none();
    world.until("debian", "no request", is_unasked).await;
    // The first build may stay, too: if the third is ready soon, the second is never uploaded.
    let mut states = world.look("debian", build_states);
    states.retain(|(number, _)| *number > 1);
    assert_eq!(states, [(2, "ready".to_owned()), (3, "ready".to_owned())]);
}

async fn a_paused_image_is_not_built_until_it_is_resumed(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(GOOD)).await;
    world
        .until("debian", "it", |it| it.definition.is_some())
        .await;
    let debian_image = image("debian");
    let asker = asker("the mirror moves");
    world.images.pause(&debian_image, &asker).await.unwrap();
    world
        .until("debian", "the pause", |it| it.pause.is_some())
        .await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).named("other")).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    assert_eq!(world.look("debian", build_states), []);
    let paused = "wait: paused by alice: the mirror moves";
    world.until_explained("debian", paused).await;
    world.images.resume(&debian_image).await.unwrap();
    world.until_uploaded("debian", 1, &["fake"]).await;
    // A pause in the definition holds, too.
    world
        .define(&debian(GOOD).with("paused", json!(true)))
        .await;
    world.request("debian", "now").await;
    world
        .until("debian", "the request", |it| it.request.is_some())
        .await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
}

async fn a_changed_definition_is_built_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let changed = debian(GOOD).with("environment", json!({"RELEASE": "trixie"}));
    world.define(&changed).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    // A change of other parts makes no build necessary.
    world
        .define(&changed.with("description", json!("for tests")))
        .await;
    let is_third =
        |it: &images::ImageNode| it.definition.as_ref().is_some_and(|it| it.version == 3);
    world.until("debian", "version 3", is_third).await;
    world.until_explained("debian", "wait until ").await;
    assert_eq!(world.look("debian", |it| it.builds.len()), 2);
}

async fn an_image_without_targets_is_built(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).with("uploads", json!([]))).await;
    world.until_builds("debian", &[(1, "ready")]).await;
    let record = world.record("debian", 1);
    let file = record.formats.values().next().unwrap().clone().unwrap();
    assert_eq!(file.size_bytes, 5);
    assert!(record.finished >= record.started);
    assert_eq!(
        world.stored_files(),
        ["debian/1/build.log", "debian/1/debian.raw"]
    );
}

async fn an_image_that_is_added_later_is_built(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    world.define(&debian(GOOD).named("ubuntu")).await;
    world.until_uploaded("ubuntu", 1, &["fake"]).await;
}

async fn a_definition_that_cannot_be_read_deletes_nothing(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let place = images::Place::Definition(image("debian"));
    let path = place.path().unwrap();
    world.tree().set(&path, b"half", None).await.unwrap();
    world
        .until("debian", "the error", |it| it.definition_error.is_some())
        .await;
    world.define(&debian(GOOD).named("other")).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    let ready = world.look("debian", |it| {
        !is_building(it) && it.builds.contains_key(&BuildNumber(1))
    });
    assert!(ready);
    assert_eq!(world.cloud("fake").images().len(), 2);
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
}
