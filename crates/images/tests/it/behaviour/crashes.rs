//! Builders that end at the worst moment, and who goes on.

use cloud::UploadOutcome;
use domain::image::{BuildFailureCause, BuildNumber};
use images::{ImageNode, Place};
use serde_json::json;

use super::on_both;
use crate::world::{
    BuilderPlan, Store, Twin, World, debian, failure, has_failed_upload, image, is_building, until,
    upload_states,
};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_both! {
    another_builder_takes_over_after_a_crash_and_the_old_build_is_noted
    builders_that_are_stopped_hand_their_build_over_at_once
    a_restarted_builder_removes_what_its_crashed_run_left
    a_ready_build_whose_builder_died_is_uploaded_by_another_that_reaches_its_files
    a_ready_build_whose_files_died_with_its_builder_is_built_again_at_once
    a_build_of_a_builder_that_lives_elsewhere_is_left_alone
    an_upload_whose_builder_died_is_resumed_with_its_token
    an_upload_goes_on_although_its_builder_died_and_the_provider_has_a_part
    a_build_whose_files_are_lost_is_built_again
}

fn gated(world: &World) -> String {
    let (go, runs) = (world.path("go"), world.path("runs"));
    format!(
        "echo $$ >>{}; while [ ! -e {} ]; do sleep 0.02; done; {GOOD}",
        runs.display(),
        go.display()
    )
}

async fn another_builder_takes_over_after_a_crash_and_the_old_build_is_noted(twin: Twin) {
    let world = World::open(twin).await;
    let first = world.builder("first").await;
    world.define(&debian(&gated(&world))).await;
    world.until("debian", "a build", is_building).await;
    let runs = world.path("runs");
    until("the command", || runs.exists()).await;
    let _second = world.builder("second").await;
    first.kill().await;
    // The old record says so while the replacement is still built.
    let is_second = |it: &ImageNode| it.running().is_some_and(|(build, _)| build.0 == 2);
    world.until("debian", "another build", is_second).await;
    let is_noted = |it: &ImageNode| {
        let record = it
            .builds
            .get(&BuildNumber(1))
            .and_then(|it| it.record.as_ref());
        record.and_then(failure).is_some()
    };
    world.until("debian", "a note", is_noted).await;
    let (error, cause) = failure(&world.record("debian", 1)).unwrap();
    assert_eq!(
        (error.as_str(), cause),
        (
            "builder first ended before the build did",
            BuildFailureCause::BuilderDied
        )
    );
    // The processes of the first build ended with its builder.
    let text = std::fs::read_to_string(&runs).unwrap();
    let first_id: i32 = text.lines().next().unwrap().parse().unwrap();
    let is_alive = || processes::Stat::of(first_id).is_ok_and(|stat| stat.is_alive);
    until("the first command to end", || !is_alive()).await;
    std::fs::write(world.path("go"), "").unwrap();
    world.until_uploaded("debian", 2, &["fake"]).await;
    assert_eq!(world.record("debian", 2).builder, "second");
    world.until_builds("debian", &[(2, "ready")]).await;
}

async fn builders_that_are_stopped_hand_their_build_over_at_once(twin: Twin) {
    let world = World::open(twin).await;
    let mut builder = world.builder("builder-0").await;
    world.define(&debian(&gated(&world))).await;
    // A rolling restart. The clock of the world stands still, so a pause would never end.
    for number in 1..=4_u64 {
        let is_running = |it: &ImageNode| it.running().is_some_and(|(build, _)| build.0 == number);
        world.until("debian", "a build", is_running).await;
        let next = world.builder(&format!("builder-{number}")).await;
        builder.stop().await;
        until("its end to be known", || {
            failure(&world.record("debian", number)).is_some()
        })
        .await;
        let (error, cause) = failure(&world.record("debian", number)).unwrap();
        let expected = format!(
            "builder builder-{} was stopped before the build ended",
            number - 1
        );
        assert_eq!(
            (error, cause),
            (expected, BuildFailureCause::BuilderStopped)
        );
        builder = next;
    }
    std::fs::write(world.path("go"), "").unwrap();
    world.until_uploaded("debian", 5, &["fake"]).await;
    let record = world.record("debian", 5);
    assert_eq!((record.builder.as_str(), record.attempt), ("builder-4", 1));
}

async fn a_restarted_builder_removes_what_its_crashed_run_left(twin: Twin) {
    let world = World::open(twin).await;
    let first = world.builder("first").await;
    world.define(&debian(&gated(&world))).await;
    world.until("debian", "a build", is_building).await;
    until("the command", || world.path("runs").exists()).await;
    let plan = first.kill().await;
    assert!(world.path("first/work/debian-1").exists());
    std::fs::write(world.path("go"), "").unwrap();
    let first = world.builder_of(plan).await;
    assert!(!world.path("first/work/debian-1").exists());
    world.until_uploaded("debian", 2, &["fake"]).await;
    first.stop().await;
}

async fn a_ready_build_whose_builder_died_is_uploaded_by_another_that_reaches_its_files(
    twin: Twin,
) {
    let world = World::open(twin).await;
    world.cloud("fake").next_uploads([UploadOutcome::CallLost]);
    let first = world.builder("first").await;
    world.define(&debian(GOOD)).await;
    let is_failed = |it: &ImageNode| has_failed_upload(it, 1, "fake");
    world.until("debian", "a failed upload", is_failed).await;
    first.kill().await;
    let _second = world.builder("second").await;
    world.advance(10_001).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(world.look("debian", |it| it.builds.len()), 1);
}

async fn a_ready_build_whose_files_died_with_its_builder_is_built_again_at_once(twin: Twin) {
    let world = World::open(twin).await;
    world.cloud("fake").next_uploads([UploadOutcome::CallLost]);
    let plan = BuilderPlan::new("first").with_store(Store::Own);
    let first = world.builder_of(plan).await;
    world.define(&debian(GOOD)).await;
    let is_failed = |it: &ImageNode| has_failed_upload(it, 1, "fake");
    world.until("debian", "a failed upload", is_failed).await;
    let plan = first.kill().await;
    let second = BuilderPlan::new("second").with_store(Store::Own);
    let _second = world.builder_of(second).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    let reason = world.record("debian", 2).reason.clone().unwrap();
    assert!(reason.contains("files"), "{reason}");
    // The first comes back, and its build is one of the good ones.
    let _first = world.builder_of(plan).await;
    world
        .until_builds("debian", &[(1, "ready"), (2, "ready")])
        .await;
    world.request("debian", "again").await;
    world.until_uploaded("debian", 3, &["fake"]).await;
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
    let old = world.path("first/artifacts/debian/1");
    until("the files of the first build to go", || !old.exists()).await;
}

async fn a_build_of_a_builder_that_lives_elsewhere_is_left_alone(twin: Twin) {
    let world = World::open(twin).await;
    let plan = BuilderPlan::new("first").with_store(Store::Own);
    let _first = world.builder_of(plan.with_labels(&["kvm"])).await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    // It has another store, other labels, and other providers.
    let mut plan = BuilderPlan::new("second").with_store(Store::Own);
    plan.targets = Some(std::sync::Arc::new(crate::world::Clouds::default()));
    let _second = world.builder_of(plan).await;
    let other = debian(GOOD).named("other");
    world.define(&other.with("labels", json!(["kvm"]))).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    world.until_builds("debian", &[(1, "ready")]).await;
    assert_eq!(
        world.look("debian", |it| upload_states(it, 1, "fake")),
        ["ready"]
    );
    assert!(world.path("first/artifacts/debian/1/debian.raw").exists());
}

async fn an_upload_whose_builder_died_is_resumed_with_its_token(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::Slow(60_000)]);
    let first = world.builder("first").await;
    world.define(&debian(GOOD)).await;
    until("a part of the image", || cloud.images().len() == 1).await;
    let _second = world.builder("second").await;
    first.kill().await;
    world.clock.advance(60_001);
    // The next attempt may have to wait because of the noted failure.
    let is_one = |it: &ImageNode| upload_states(it, 1, "fake") == ["ready"];
    world
        .until("debian", "a note, or the next upload", |it| {
            has_failed_upload(it, 1, "fake") || is_one(it)
        })
        .await;
    world.advance(10_001).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(cloud.images().len(), 1);
    world.until("debian", "one record", is_one).await;
    assert_eq!(cloud.images().len(), 1);
}

async fn an_upload_goes_on_although_its_builder_died_and_the_provider_has_a_part(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::HalfDone]);
    let first = world.builder("first").await;
    world.define(&debian(GOOD)).await;
    let is_failed = |it: &ImageNode| has_failed_upload(it, 1, "fake");
    world.until("debian", "a failed upload", is_failed).await;
    first.kill().await;
    // The image is removed before the upload was completed: the part is deleted, too.
    let _second = world.builder("second").await;
    world.undefine("debian").await;
    world.until_gone("debian").await;
    assert!(cloud.images().is_empty(), "{:?}", cloud.images());
}

async fn a_build_whose_files_are_lost_is_built_again(twin: Twin) {
    let world = World::open(twin).await;
    world.cloud("fake").next_uploads([UploadOutcome::CallLost]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    let is_failed = |it: &ImageNode| has_failed_upload(it, 1, "fake");
    world.until("debian", "a failed upload", is_failed).await;
    std::fs::remove_file(world.path("store/debian/1/debian.raw")).unwrap();
    world.advance(10_001).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    // The same with a folder on the disk of its builder.
    world.cloud("fake").next_uploads([UploadOutcome::CallLost]);
    let script = r#"mkdir "$1.folder"; echo x >"$1.folder/file""#;
    let folder = debian(script)
        .named("folder")
        .with("formats", json!(["folder"]));
    world.define(&folder).await;
    let is_failed = |it: &ImageNode| has_failed_upload(it, 1, "fake");
    world.until("folder", "a failed upload", is_failed).await;
    std::fs::remove_dir_all(world.path("one/kept/folder/1")).unwrap();
    world.advance(10_001).await;
    world.until_uploaded("folder", 2, &["fake"]).await;
    let path = Place::Build(image("folder"), BuildNumber(1))
        .path()
        .unwrap();
    assert!(world.tree().exists(&path).await.unwrap().is_some());
}
