//! Requests for builds that meet the removal of an older one.

use std::sync::Arc;

use backplane::tree::{Tree, TreeError};
use cloud::image::TrustedKeys;
use domain::image::BuildNumber;
use domain::time::Timestamp;
use images::{ImageTree, Place};

use super::on_embedded_first;
use crate::world::{InterruptedTree, Twin, World, asker, debian, image, keyring};

on_embedded_first! {
    a_request_that_replaces_an_answered_one_is_not_cleared_in_its_place
    a_request_that_follows_a_cleared_one_is_not_cleared_in_its_place
    a_request_is_cleared_by_its_time
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
    let is_answered = |it: &images::ImageNode| {
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

/// A world with a build, a request that waits, and no builder.
async fn requested(twin: Twin) -> (World, Timestamp) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    world.define(&debian(r#"echo disk >"$1.raw""#)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    builder.stop().await;
    world.request("debian", "first").await;
    let is_asked = |it: &images::ImageNode| it.request.is_some();
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
