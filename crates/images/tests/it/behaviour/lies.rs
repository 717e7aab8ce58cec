//! Targets that say what is not true about an upload.

use cloud::{Call, UploadOutcome};
use domain::image::{BuildNumber, UploadRecord};
use images::{ImageNode, Place};

use super::on_both;
use crate::world::{Twin, World, debian, image, upload_states};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_both! {
    a_target_that_says_ready_without_an_image_is_not_believed
    the_image_of_another_upload_is_refused_and_stays
    an_image_that_two_records_name_goes_with_the_last_of_them
}

fn lie(external_id: &str, is_found: bool) -> UploadOutcome {
    UploadOutcome::Lie {
        external_id: external_id.to_owned(),
        is_found,
    }
}

fn records(world: &World, name: &str) -> Vec<UploadRecord> {
    world.look(name, |image| {
        let target = &image.builds[&BuildNumber(1)].targets[&"fake".parse().unwrap()];
        let records = target.uploads.values();
        records.filter_map(|upload| upload.record.clone()).collect()
    })
}

fn ids(world: &World) -> Vec<String> {
    let images = world.cloud("fake").images().into_iter();
    images.map(|image| image.external_id).collect()
}

async fn a_target_that_says_ready_without_an_image_is_not_believed(twin: Twin) {
    let world = World::open(twin).await;
    let cloud = world.cloud("fake");
    cloud.next_uploads([lie("nowhere", false)]);
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    let reason = "the provider says that the upload is ready as image nowhere, and finds no image \
                  with its token; next try at ";
    world.until_explained("debian", reason).await;
    let failed = records(&world, "debian").remove(0);
    assert_eq!((&failed.external_id, failed.resumable), (&None, true));
    world.advance(10_001).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let is_one = |image: &ImageNode| upload_states(image, 1, "fake") == ["ready"];
    world.until("debian", "one record", is_one).await;
    let ready = records(&world, "debian").remove(0);
    assert_eq!(ready.token, failed.token);
    assert_eq!(ids(&world), [ready.external_id.clone().unwrap()]);
}

async fn the_image_of_another_upload_is_refused_and_stays(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let first = ids(&world).remove(0);
    // The second lie is confirmed by what the provider finds.
    for (name, is_found) in [("mac", false), ("win", true)] {
        world.cloud("fake").next_uploads([lie(&first, is_found)]);
        world.define(&debian(GOOD).named(name)).await;
        let reason = format!("as image {first}, which is that of build 1 of debian; next try at ");
        world.until_explained(name, &reason).await;
        world.undefine(name).await;
        world.until_gone(name).await;
        assert_eq!(ids(&world), std::slice::from_ref(&first));
    }
    assert_eq!(world.cloud("fake").n_calls(Call::DeleteImage), 0);
}

/// Two records of one image, as servers before wrote them, or two uploads that ended at once.
async fn an_image_that_two_records_name_goes_with_the_last_of_them(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    for name in ["debian", "mac"] {
        world.define(&debian(GOOD).named(name)).await;
        world.until_uploaded(name, 1, &["fake"]).await;
    }
    let first = records(&world, "debian").remove(0).external_id.clone();
    let mut stored = records(&world, "mac").remove(0).into_stored();
    let replaced = stored.external_id.replace(first.clone().unwrap()).unwrap();
    let document = UploadRecord::from_stored(stored).to_document().to_string();
    let number = world.look("mac", |node| {
        let target = &node.builds[&BuildNumber(1)].targets[&"fake".parse().unwrap()];
        *target.uploads.keys().next().unwrap()
    });
    let target = "fake".parse().unwrap();
    let place = Place::Upload(image("mac"), BuildNumber(1), target, number);
    let tree = world.tree();
    tree.set(&place.path().unwrap(), document.as_bytes(), None)
        .await
        .unwrap();
    let names_it = |node: &ImageNode| {
        let target = &node.builds[&BuildNumber(1)].targets[&"fake".parse().unwrap()];
        let record = target
            .uploads
            .values()
            .next()
            .and_then(|it| it.record.as_ref());
        record.is_some_and(|record| record.external_id == first)
    };
    world.until("mac", "the same image", names_it).await;
    world.undefine("mac").await;
    world.until_gone("mac").await;
    let left = ids(&world);
    assert!(left.contains(first.as_ref().unwrap()), "{left:?}");
    world.undefine("debian").await;
    world.until_gone("debian").await;
    assert_eq!(ids(&world), [replaced], "only the search finds that one");
}
