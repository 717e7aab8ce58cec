//! Old builds and removed images: what is deleted, in which order, and what stays.

use std::collections::BTreeSet;

use cloud::{Call, CloudError};
use domain::image::{BuildNumber, UploadNumber};
use images::{ImageNode, Place};
use serde_json::json;

use super::on_embedded_first;
use crate::world::{Twin, World, asker, build_states, debian, image, until, upload_states};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_embedded_first! {
    the_third_good_build_removes_the_first_with_all_that_belongs_to_it
    a_pinned_build_stays_until_it_is_unpinned
    more_builds_are_kept_if_the_definition_says_so
    a_build_whose_state_is_written_by_hand_is_deleted
    an_upload_whose_state_is_written_by_hand_is_deleted_and_made_again
    a_removed_image_goes_with_its_uploads_then_its_builds_then_its_nodes
    a_removed_image_that_comes_back_is_built_again
    a_deletion_that_fails_is_tried_again
    an_image_that_the_provider_lost_counts_as_deleted
    an_upload_without_its_external_id_is_removed
    records_of_a_provider_that_is_not_configured_are_removed
    the_build_in_use_is_not_deleted_by_hand
}

async fn build_three(world: &World) {
    for build in 1..=3 {
        world.until_uploaded("debian", build, &["fake"]).await;
        let is_unasked = |it: &ImageNode| it.request.is_none();
        world.until("debian", "no request", is_unasked).await;
        if build < 3 {
            world.request("debian", "again").await;
        }
    }
}

async fn the_third_good_build_removes_the_first_with_all_that_belongs_to_it(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    build_three(&world).await;
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
    for build in 2..=3 {
        assert_eq!(
            world.look("debian", |it| upload_states(it, build, "fake")),
            ["ready"]
        );
    }
    let images = world.cloud("fake").images();
    let names: Vec<&str> = images.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["debian-2", "debian-3"]);
    let expected = [
        "debian/2/build.log",
        "debian/2/debian.raw",
        "debian/3/build.log",
        "debian/3/debian.raw",
    ];
    until("the files of the first to go", || {
        world.stored_files() == expected
    })
    .await;
    let path = Place::Build(image("debian"), BuildNumber(1))
        .path()
        .unwrap();
    assert_eq!(world.tree().exists(&path).await.unwrap(), None);
}

async fn a_pinned_build_stays_until_it_is_unpinned(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let (name, asker) = (image("debian"), asker("the last with the old kernel"));
    let pinned = world.images.pin(&name, BuildNumber(1), &asker).await;
    pinned.unwrap();
    build_three(&world).await;
    world.request("debian", "again").await;
    world.until_uploaded("debian", 4, &["fake"]).await;
    let three = [(1, "ready"), (3, "ready"), (4, "ready")];
    world.until_builds("debian", &three).await;
    assert_eq!(
        world.look("debian", |it| upload_states(it, 1, "fake")),
        ["ready"]
    );
    world.images.unpin(&name, BuildNumber(1)).await.unwrap();
    world
        .until_builds("debian", &[(3, "ready"), (4, "ready")])
        .await;
}

async fn more_builds_are_kept_if_the_definition_says_so(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).with("keep", json!(3))).await;
    build_three(&world).await;
    let three = [(1, "ready"), (2, "ready"), (3, "ready")];
    world.until_builds("debian", &three).await;
    world.define(&debian(GOOD)).await;
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
}

async fn a_build_whose_state_is_written_by_hand_is_deleted(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    for (build, state) in [(1, "deleting"), (2, "delete")] {
        world
            .write_state(Place::Build(image("debian"), BuildNumber(build)), state)
            .await;
        // Another one is built, since none is ready.
        world.until_uploaded("debian", build + 1, &["fake"]).await;
        world.until_builds("debian", &[(build + 1, "ready")]).await;
        assert_eq!(world.cloud("fake").images().len(), 1);
    }
}

async fn an_upload_whose_state_is_written_by_hand_is_deleted_and_made_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let mut before = world.cloud("fake").images()[0].external_id.clone();
    for state in ["deleting", "delete"] {
        let number = world.look("debian", |it| {
            let node = &it.builds[&BuildNumber(1)];
            let target = &node.targets[&"fake".parse().unwrap()];
            *target.uploads.keys().next().unwrap()
        });
        let place = Place::Upload(
            image("debian"),
            BuildNumber(1),
            "fake".parse().unwrap(),
            number,
        );
        world.write_state(place, state).await;
        let is_other = |image: &ImageNode| {
            let node = &image.builds[&BuildNumber(1)];
            let uploads = &node.targets[&"fake".parse().unwrap()].uploads;
            uploads.keys().all(|it| *it > number) && upload_states(image, 1, "fake") == ["ready"]
        };
        world.until("debian", "another upload", is_other).await;
        let images = world.cloud("fake").images();
        assert_eq!(images.len(), 1);
        assert_ne!(images[0].external_id, before);
        before.clone_from(&images[0].external_id);
    }
}

async fn a_removed_image_goes_with_its_uploads_then_its_builds_then_its_nodes(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.define(&debian(GOOD).named("other")).await;
    build_three(&world).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    // While the provider fails, nothing of the tree is forgotten.
    let failures = 3;
    for _ in 0..failures {
        let failure = CloudError::Unavailable("it burns".to_owned());
        world.cloud("fake").fail_next(Call::DeleteImage, failure);
    }
    world.undefine("debian").await;
    world.until_gone("debian").await;
    assert!(world.cloud("fake").n_calls(Call::DeleteImage) >= failures + 2);
    let images = world.cloud("fake").images();
    let names: BTreeSet<&str> = images.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["other-1"].into());
    let path = Place::Image(image("debian")).path().unwrap();
    assert_eq!(world.tree().exists(&path).await.unwrap(), None);
    assert_eq!(world.look("other", build_states), [(1, "ready".to_owned())]);
    let expected = ["other/1/build.log", "other/1/other.raw"];
    until("the files to go", || world.stored_files() == expected).await;
}

async fn a_removed_image_that_comes_back_is_built_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    for _ in 0..3 {
        world.define(&debian(GOOD)).await;
        let is_uploaded = |image: &ImageNode| {
            let mut builds = image.builds.keys();
            builds.any(|build| upload_states(image, build.0, "fake") == ["ready"])
        };
        world.until("debian", "an upload", is_uploaded).await;
        world.undefine("debian").await;
    }
    world.define(&debian(GOOD)).await;
    let is_settled = |image: &ImageNode| {
        let states = build_states(image);
        let good = states.iter().filter(|(_, state)| state == "ready").count();
        good >= 1
            && good == states.len()
            && image
                .builds
                .keys()
                .all(|build| upload_states(image, build.0, "fake") == ["ready"])
    };
    world.until("debian", "ready builds only", is_settled).await;
}

async fn a_deletion_that_fails_is_tried_again(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    for build in 1..=2 {
        world.until_uploaded("debian", build, &["fake"]).await;
        let is_unasked = |it: &ImageNode| it.request.is_none();
        world.until("debian", "no request", is_unasked).await;
        if build == 2 {
            for _ in 0..4 {
                let failure = CloudError::Unavailable("it burns".to_owned());
                world.cloud("fake").fail_next(Call::DeleteImage, failure);
            }
        }
        world.request("debian", "again").await;
    }
    world.until_uploaded("debian", 3, &["fake"]).await;
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
    assert!(world.cloud("fake").n_calls(Call::DeleteImage) >= 5);
    assert_eq!(world.cloud("fake").images().len(), 2);
}

async fn an_image_that_the_provider_lost_counts_as_deleted(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let id = world.cloud("fake").images()[0].external_id.clone();
    world.cloud("fake").lose_image(&id);
    world.undefine("debian").await;
    world.until_gone("debian").await;
}

async fn an_upload_without_its_external_id_is_removed(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    builder.stop().await;
    let target = "fake".parse().unwrap();
    let place = Place::Upload(image("debian"), BuildNumber(1), target, UploadNumber(99));
    let record = json!({"state": "failed", "error": "x"}).to_string();
    world.create(&place.path().unwrap(), &record).await;
    let target = "fake".parse().unwrap();
    let place = Place::Upload(image("debian"), BuildNumber(1), target, UploadNumber(98));
    world.create(&place.path().unwrap(), "half a rec").await;
    let _builder = world.builder("one").await;
    let is_one = |image: &ImageNode| upload_states(image, 1, "fake") == ["ready"];
    world.until("debian", "one record", is_one).await;
    assert_eq!(world.cloud("fake").images().len(), 1);
}

async fn records_of_a_provider_that_is_not_configured_are_removed(twin: Twin) {
    let world = World::open(twin).await;
    world.add_provider("other").await;
    let _builder = world.builder("one").await;
    let uploads = json!([{"providerId": "fake"}, {"providerId": "other"}]);
    world.define(&debian(GOOD).with("uploads", uploads)).await;
    world.until_uploaded("debian", 1, &["fake", "other"]).await;
    world.remove_provider("other").await;
    world.define(&debian(GOOD)).await;
    let is_left = |image: &ImageNode| upload_states(image, 1, "other").is_empty();
    world.until("debian", "the record to go", is_left).await;
    world.undefine("debian").await;
    world.until_gone("debian").await;
}

async fn the_build_in_use_is_not_deleted_by_hand(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    build_three(&world).await;
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
    let name = image("debian");
    let delete = async |build| {
        let now = world.clock.now_ms();
        world
            .images
            .delete_build(&name, BuildNumber(build), now)
            .await
    };
    let refused = delete(3).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("machines of fake start from build 3"),
        "{refused}"
    );
    delete(2).await.unwrap();
    world.until_builds("debian", &[(3, "ready")]).await;
    let missing = delete(1).await.unwrap_err().to_string();
    assert_eq!(missing, "image debian has no build 1");
}
