//! Others write to the tree, without the keys of the deployment or with those of a builder.

use backplane::tree::{Lifetime, TreePath, create_parents};
use domain::image::{BuildNumber, BuildState, UploadNumber};
use images::{ImageNode, Place};
use serde_json::json;

use super::on_embedded_first;
use crate::world::{Twin, World, debian, image};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_embedded_first! {
    a_definition_that_somebody_else_wrote_runs_nothing
    a_definition_that_somebody_else_changed_is_written_again
    nothing_is_done_with_an_image_that_has_a_forged_node
    a_missing_definition_or_standing_deletes_nothing
    a_build_whose_signed_record_was_changed_counts_as_failed
    a_build_that_shows_the_record_of_another_one_counts_as_failed
    a_file_that_somebody_changed_is_not_uploaded
}

fn path(place: &Place) -> TreePath {
    place.path().unwrap()
}

fn forged(node: &ImageNode) -> bool {
    let problem = node.problem().unwrap_or_default();
    problem.contains("not to be trusted") || problem.contains("no seal")
}

async fn a_definition_that_somebody_else_wrote_runs_nothing(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let marker = world.path("pwned");
    let script = format!("touch '{}'; {GOOD}", marker.display());
    let document = debian(&script).named("pwn").0;
    let text = json!({"version": 1, "document": document}).to_string();
    let raw = world.raw_tree();
    let definition = path(&Place::Definition(image("pwn")));
    create_parents(raw, &definition).await.unwrap();
    let builds = path(&Place::Builds(image("pwn")));
    for (node, data) in [
        (builds.clone(), ""),
        (builds.join("lock").unwrap(), ""),
        (path(&Place::Standing(image("pwn"))), "{}"),
        (path(&Place::Request(image("pwn"))), "{}"),
        (definition, text.as_str()),
    ] {
        let created = raw.create(&node, data.as_bytes(), Lifetime::Persistent);
        created.await.unwrap();
    }
    world.until("pwn", "the problem", forged).await;
    // The builder works, and looked at all images.
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    world.advance(3_600_000).await;
    world.request("debian", "again").await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    assert!(!marker.exists());
    world.look("pwn", |it| assert!(it.builds.is_empty(), "{it:?}"));
    let status = world
        .images
        .status(&image("pwn"), world.clock.now_ms())
        .unwrap();
    assert_eq!(status["state"], "unreadable");
    let problem = status["definitionError"].as_str().unwrap();
    assert!(problem.contains("it has no seal"), "{problem}");
}

async fn a_definition_that_somebody_else_changed_is_written_again(twin: Twin) {
    let world = World::open(twin).await;
    world
        .define(&debian(GOOD).with("paused", json!(true)))
        .await;
    let raw = world.raw_tree();
    let marker = world.path("pwned");
    let script = format!("touch '{}'; {GOOD}", marker.display());
    let text = json!({"version": 1, "document": debian(&script).0}).to_string();
    let definition = path(&Place::Definition(image("debian")));
    raw.set(&definition, text.as_bytes(), None).await.unwrap();
    let _builder = world.builder("one").await;
    world.until("debian", "the problem", forged).await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert!(!marker.exists());
}

async fn nothing_is_done_with_an_image_that_has_a_forged_node(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let raw = world.raw_tree();
    let (name, build) = (image("debian"), BuildNumber(1));
    let target = "fake".parse().unwrap();
    let record = json!({"state": "ready", "external_id": "theirs"}).to_string();
    for (place, data) in [
        (
            Place::Upload(name.clone(), build, target, UploadNumber(9)),
            record.as_str(),
        ),
        (Place::Request(name.clone()), "{}"),
        (Place::Pin(name.clone(), build), ""),
        (Place::Pause(name.clone()), "{}"),
        (Place::Canary(name.clone()), "{}"),
        (Place::Cancel(name.clone(), build), "{}"),
        (
            Place::Build(name.clone(), BuildNumber(7)),
            r#"{"state": "ready"}"#,
        ),
    ] {
        let node = path(&place);
        raw.create(&node, data.as_bytes(), Lifetime::Persistent)
            .await
            .unwrap();
        world.until("debian", "the problem", forged).await;
        let problem = world.look("debian", ImageNode::problem).unwrap();
        assert!(problem.contains(node.as_str()), "{problem}");
        assert!(world.images.view(&name, world.clock.now_ms()).is_none());
        raw.delete(&node, None).await.unwrap();
        let is_well = |it: &ImageNode| it.problem().is_none();
        world.until("debian", "its removal", is_well).await;
    }
    world.until_builds("debian", &[(1, "ready")]).await;
    assert_eq!(world.cloud("fake").images().len(), 1);
}

async fn a_missing_definition_or_standing_deletes_nothing(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let raw = world.raw_tree();
    for place in [
        Place::Definition(image("debian")),
        Place::Standing(image("debian")),
    ] {
        raw.delete(&path(&place), None).await.unwrap();
        let is_missing = |it: &ImageNode| it.problem().unwrap_or_default().contains("missing");
        world.until("debian", "the problem", is_missing).await;
        // The builder looks at all images.
        world.define(&debian(GOOD).named("other")).await;
        world.until_uploaded("other", 1, &["fake"]).await;
        world.until_builds("debian", &[(1, "ready")]).await;
        assert_eq!(world.cloud("fake").images().len(), 2);
        world.define(&debian(GOOD)).await;
        world.rewrite_standing("debian").await;
        let is_well = |it: &ImageNode| it.problem().is_none();
        world.until("debian", "the repair", is_well).await;
    }
    world.until_uploaded("debian", 1, &["fake"]).await;
}

/// As somebody with the keys of a builder could do it.
async fn a_build_whose_signed_record_was_changed_counts_as_failed(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let provenance = path(&Place::Provenance(image("debian"), BuildNumber(1)));
    let mut data = world.tree().get(&provenance).await.unwrap().data;
    let middle = data.len() / 2;
    data[middle] = if data[middle] == b'A' { b'B' } else { b'A' };
    world.tree().set(&provenance, &data, None).await.unwrap();
    let is_failed = |it: &ImageNode| {
        let record = it.builds.get(&BuildNumber(1));
        let state = record
            .and_then(|it| it.record.as_ref())
            .map(|it| it.state.clone());
        match state {
            Some(BuildState::Failed { error, .. }) => {
                assert!(error.contains("the signed record"), "{error}");
                true
            }
            // It was removed already.
            None => true,
            Some(_) => false,
        }
    };
    world.until("debian", "the failure", is_failed).await;
    world.advance(3_600_000).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
}

async fn a_build_that_shows_the_record_of_another_one_counts_as_failed(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD)).await;
    world.define(&debian(GOOD).named("other")).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    world.until_uploaded("other", 1, &["fake"]).await;
    let [ours, theirs] =
        ["debian", "other"].map(|name| path(&Place::Provenance(image(name), BuildNumber(1))));
    let data = world.tree().get(&theirs).await.unwrap().data;
    world.tree().set(&ours, &data, None).await.unwrap();
    let is_unused = |it: &ImageNode| {
        let record = it
            .builds
            .get(&BuildNumber(1))
            .and_then(|it| it.record.as_ref());
        record.is_none_or(|record| matches!(record.state, BuildState::Failed { .. }))
    };
    world.until("debian", "the failure", is_unused).await;
    world.advance(3_600_000).await;
    world.until_uploaded("debian", 2, &["fake"]).await;
    world.until_builds("other", &[(1, "ready")]).await;
}

async fn a_file_that_somebody_changed_is_not_uploaded(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian(GOOD).with("uploads", json!([]))).await;
    world.until_builds("debian", &[(1, "ready")]).await;
    let file = world.path("store").join("debian/1/debian.raw");
    std::fs::write(&file, "evil\n").unwrap();
    world.define(&debian(GOOD)).await;
    // The build has no files any more that can be used, so another one is made.
    world.until_uploaded("debian", 2, &["fake"]).await;
    let images = world.cloud("fake").images();
    let sums: Vec<&str> = images.iter().map(|it| it.sha256.as_str()).collect();
    let record = world.record("debian", 2);
    let made = record.formats.values().next().unwrap().clone().unwrap();
    assert_eq!(sums, [made.sha256.as_str()]);
}
