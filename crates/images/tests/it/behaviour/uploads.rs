//! When builds are uploaded, and what happens if that fails.

use std::sync::Arc;
use std::time::Duration;

use cloud::{Call, CloudError, UploadOutcome};
use domain::image::{BuildNumber, LEFT_IMAGE_MS, UploadRecord};
use domain::launch::Cause;
use serde_json::json;

use super::on_both;
use crate::world::{
    BuilderPlan, Clouds, Store, Twin, World, debian, has_failed_upload, upload_states,
};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_both! {
    a_failed_upload_is_tried_again_and_goes_on_with_its_token
    an_upload_whose_answer_was_lost_makes_one_image
    a_refused_upload_waits_and_says_why
    a_slow_upload_is_looked_at_until_it_is_ready
    an_upload_has_a_time_limit
    a_provider_that_is_added_gets_the_newest_build
    a_target_that_is_removed_loses_its_images_and_others_keep_theirs
    an_upload_that_is_changed_is_made_again
    a_broken_provider_does_not_delay_others
    a_builder_without_the_provider_leaves_its_uploads_to_others
}

fn both() -> serde_json::Value {
    json!([{"providerId": "fake"}, {"providerId": "other"}])
}

fn records(world: &World, build: u64, target: &str) -> Vec<UploadRecord> {
    world.look("debian", |image| {
        let node = &image.builds[&BuildNumber(build)];
        let uploads = &node.targets[&target.parse().unwrap()].uploads;
        uploads
            .values()
            .filter_map(|it| it.record.clone())
            .collect()
    })
}

async fn a_failed_upload_is_tried_again_and_goes_on_with_its_token(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::HalfDone]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    let is_failed = |image: &images::ImageNode| has_failed_upload(image, 1, "fake");
    world.until("debian", "a failure", is_failed).await;
    world
        .until_explained("debian", "cut off; next try at ")
        .await;
    let token = records(&world, 1, "fake")[0].token.clone();
    world.advance(10_001).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    // The failed record goes, and the image that both attempts made stays.
    let is_one = |image: &images::ImageNode| upload_states(image, 1, "fake") == ["ready"];
    world.until("debian", "one record", is_one).await;
    let record = &records(&world, 1, "fake")[0];
    assert_eq!((&record.token, record.attempt), (&token, 2));
    let images = cloud.images();
    assert_eq!(images.len(), 1);
    assert_eq!(Some(&images[0].external_id), record.external_id.as_ref());
    assert_eq!(cloud.n_calls(Call::DeleteImage), 0);
}

async fn an_upload_whose_answer_was_lost_makes_one_image(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::AnswerLost, UploadOutcome::CallLost]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    for attempt in 1..=2 {
        world.until_explained("debian", "next try at ").await;
        let is_failed = |image: &images::ImageNode| {
            let states = upload_states(image, 1, "fake");
            states.last().is_some_and(|it| it == "failed")
        };
        world.until("debian", "a failure", is_failed).await;
        world.advance(10_001 * attempt).await;
    }
    world.until_uploaded("debian", 1, &["fake"]).await;
    let is_one = |image: &images::ImageNode| upload_states(image, 1, "fake") == ["ready"];
    world.until("debian", "one record", is_one).await;
    assert_eq!(cloud.images().len(), 1);
}

async fn a_refused_upload_waits_and_says_why(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::Refused(Cause::Quota)]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world
        .until_explained("debian", "the script says so; next try at ")
        .await;
    let refused = records(&world, 1, "fake")[0].clone();
    assert!(!refused.resumable);
    world.advance(10_001).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let ready = records(&world, 1, "fake");
    assert_ne!(ready.last().unwrap().token, refused.token);
}

async fn a_slow_upload_is_looked_at_until_it_is_ready(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([UploadOutcome::Slow(1_500)]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_explained("debian", "one uploads").await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(upload_count(&world), 1);
}

fn upload_count(world: &World) -> usize {
    world.look("debian", |image| upload_states(image, 1, "fake").len())
}

async fn an_upload_has_a_time_limit(twin: Twin) {
    let world = World::open(twin).await;
    world
        .cloud("fake")
        .next_uploads([UploadOutcome::Slow(3_600_000)]);
    let mut plan = BuilderPlan::new("one");
    plan.upload_limit = Duration::from_secs(1);
    let _builder = world.builder_of(plan).await;
    world.define(&debian(GOOD)).await;
    world
        .until_explained("debian", "time limit of 1 s; next try at ")
        .await;
    world.advance(3_600_000).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(world.cloud("fake").images().len(), 1);
}

async fn a_provider_that_is_added_gets_the_newest_build(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).with("uploads", both())).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    world.until_explained("debian", "other").await;
    world.add_provider("other").await;
    // The builder looks every ten seconds which providers it has.
    world.until_uploaded("debian", 1, &["fake", "other"]).await;
    assert_eq!(world.look("debian", |it| it.builds.len()), 1);
}

async fn a_target_that_is_removed_loses_its_images_and_others_keep_theirs(twin: Twin) {
    let world = World::open(twin).await;
    let other = world.add_provider("other").await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).with("uploads", both())).await;
    world.until_uploaded("debian", 1, &["fake", "other"]).await;
    world.define(&debian(GOOD)).await;
    let is_left = |image: &images::ImageNode| upload_states(image, 1, "other").is_empty();
    world.until("debian", "the upload to go", is_left).await;
    assert!(other.images().is_empty());
    assert_eq!(world.cloud("fake").images().len(), 1);
    assert_eq!(
        world.look("debian", |it| upload_states(it, 1, "fake")),
        ["ready"]
    );
}

async fn an_upload_that_is_changed_is_made_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let first = world.cloud("fake").images()[0].external_id.clone();
    let options = json!([{"providerId": "fake", "options": {"boot": "uefi"}}]);
    world.define(&debian(GOOD).with("uploads", options)).await;
    // Launch configs may still name the first one.
    let kept = "the upload of 1 to fake was replaced, and launch configs may still name it";
    world.until_explained("debian", kept).await;
    assert_eq!(world.cloud("fake").images().len(), 2);
    world.advance(LEFT_IMAGE_MS).await;
    let is_replaced = |image: &images::ImageNode| {
        let node = &image.builds[&BuildNumber(1)];
        let target = node.targets.get(&"fake".parse().unwrap());
        let uploads = target.into_iter().flat_map(|it| it.uploads.values());
        let ids: Vec<_> = uploads
            .filter_map(|it| it.record.as_ref()?.external_id.clone())
            .collect();
        ids.len() == 1 && ids[0] != first
    };
    world.until("debian", "another upload", is_replaced).await;
    assert_eq!(world.cloud("fake").images().len(), 1);
}

async fn a_broken_provider_does_not_delay_others(twin: Twin) {
    let world = World::open(twin).await;
    world.add_provider("other").await;
    for _ in 0..50 {
        let failure = CloudError::Unavailable("it burns".to_owned());
        world.cloud("fake").fail_next(Call::UploadImage, failure);
    }
    let mut plan = BuilderPlan::new("one");
    plan.build_slots = 4;
    let _builder = world.builder_of(plan).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world
            .define(&debian(GOOD).named(name).with("uploads", both()))
            .await;
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.until_uploaded(name, 1, &["other"]).await;
    }
    assert!(world.cloud("fake").images().is_empty());
}

async fn a_builder_without_the_provider_leaves_its_uploads_to_others(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(GOOD)).await;
    let mut plan = BuilderPlan::new("without").with_store(Store::Shared);
    plan.targets = Some(Arc::new(Clouds::default()));
    let _without = world.builder_of(plan).await;
    world.until_builds("debian", &[(1, "ready")]).await;
    assert!(world.cloud("fake").images().is_empty());
    let _with = world.builder("with").await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert_eq!(records(&world, 1, "fake")[0].uploader, "with");
    assert_eq!(world.look("debian", |it| it.builds.len()), 1);
}
