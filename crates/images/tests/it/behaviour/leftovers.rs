//! Records of processes that ended, written by hand as such processes leave them.

use domain::image::{BuildNumber, UploadNumber};
use images::{ImageNode, Place};
use serde_json::json;

use super::on_embedded_first;
use crate::world::{Twin, World, debian, image, upload_states};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_embedded_first! {
    an_abandoned_build_is_noted_and_removed_after_the_next_success
    an_abandoned_upload_is_noted_and_made_again
    a_record_that_cannot_be_read_is_removed
    a_server_and_the_removal_of_an_image_do_not_disturb_each_other
}

async fn an_abandoned_build_is_noted_and_removed_after_the_next_success(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(GOOD)).await;
    let path = Place::Build(image("debian"), BuildNumber(0))
        .path()
        .unwrap();
    let record = json!({"state": "building", "builder": "ghost", "fence": 1}).to_string();
    world.create(&path, &record).await;
    let _builder = world.builder("one").await;
    let is_only_good = |it: &ImageNode| {
        let mut builds = it.builds.iter();
        it.builds.len() == 1
            && builds.all(|(number, _)| upload_states(it, number.0, "fake") == ["ready"])
    };
    world.until("debian", "one good build", is_only_good).await;
}

async fn an_abandoned_upload_is_noted_and_made_again(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    builder.stop().await;
    let number = UploadNumber(70);
    let place = Place::Upload(
        image("debian"),
        BuildNumber(1),
        "fake".parse().unwrap(),
        number,
    );
    let record = json!({"state": "uploading", "uploader": "ghost", "fence": 1}).to_string();
    world.create(&place.path().unwrap(), &record).await;
    let _builder = world.builder("two").await;
    let is_one = |it: &ImageNode| upload_states(it, 1, "fake") == ["ready"];
    world.until("debian", "one good upload", is_one).await;
    assert_eq!(world.cloud("fake").images().len(), 1);
}

async fn a_record_that_cannot_be_read_is_removed(twin: Twin) {
    let world = World::open(twin).await;
    world.define(&debian(GOOD)).await;
    let path = Place::Build(image("debian"), BuildNumber(3))
        .path()
        .unwrap();
    world.create(&path, "{\"state\": ").await;
    let _builder = world.builder("one").await;
    let is_clean = |it: &ImageNode| {
        it.builds.len() == 1
            && it
                .builds
                .keys()
                .all(|number| upload_states(it, number.0, "fake") == ["ready"])
    };
    world.until("debian", "one good build", is_clean).await;
}

/// A definition comes and goes while builders remove the image; what the server wrote last holds.
async fn a_server_and_the_removal_of_an_image_do_not_disturb_each_other(twin: Twin) {
    let world = World::open(twin).await;
    let _builders = (world.builder("one").await, world.builder("two").await);
    let paused = debian(GOOD).with("paused", json!(true));
    for _ in 0..20 {
        world.define(&paused).await;
        world.undefine("debian").await;
    }
    world.define(&debian(GOOD)).await;
    let is_uploaded = |it: &ImageNode| {
        let mut builds = it.builds.keys();
        builds.any(|build| upload_states(it, build.0, "fake") == ["ready"])
    };
    world.until("debian", "an upload", is_uploaded).await;
    world.undefine("debian").await;
    world.until_gone("debian").await;
}
