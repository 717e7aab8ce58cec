//! Builds that canaries and people promoted or rolled back.

use super::*;
use crate::image::number::{BuildNumber, UploadNumber};
use crate::image::{image_in_use, next_candidate};
use crate::time::{DAY_MS, MINUTE_MS};

#[test]
fn a_build_that_was_rolled_back_is_not_uploaded_further_and_the_good_ones_stay() {
    let mut world = world_with_builds(2);
    world.now = world.now.plus_millis(DAY_MS);
    take(&mut world, "build", Fate::Success);
    take(&mut world, "upload 3 to aws:eu", Fate::Success);
    world.standing.promoted = Some(BuildNumber(2));
    world.standing.rejected.insert(BuildNumber(3));
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [3, 2, 1]);
    assert_eq!(
        numbers(&world.ready_uploads(&"local".parse().unwrap())),
        [2, 1]
    );
    world.now = world.now.plus_millis(DAY_MS);
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [4, 2]);
}

#[test]
fn builds_in_use_stay_however_many_newer_ones_wait_for_their_canary() {
    let mut world = world_with_builds(1);
    world.standing.promoted = Some(BuildNumber(1));
    world.standing.candidate = Some(BuildNumber(2));
    for _ in 0..5 {
        world.now = world.now.plus_millis(DAY_MS);
        settle(&mut world);
    }
    assert_eq!(numbers(&world.ready()), [6, 5, 2, 1]);
}

#[test]
fn the_image_in_use_is_the_newest_ready_upload_that_was_promoted() {
    let mut world = world_with_builds(2);
    world.definition = Some(definition(|it| it["keep"] = json!(5)));
    world.now = world.now.plus_millis(DAY_MS);
    settle(&mut world);
    let target = "aws:eu".parse().unwrap();
    let in_use = |world: &World| {
        let builds: Vec<_> = world.builds.values().cloned().collect();
        let found = image_in_use(&builds, &target, &world.standing);
        let number = |it: Option<crate::image::SelectedUpload>| it.map(|it| it.build.0);
        let next = next_candidate(&builds, &world.standing).map(|it| it.0);
        (number(found.in_use), number(found.canary), next)
    };
    // Nothing was decided: the newest.
    assert_eq!(in_use(&world), (Some(3), None, Some(3)));
    world.standing.promoted = Some(BuildNumber(1));
    assert_eq!(in_use(&world), (Some(1), None, Some(3)));
    world.standing.candidate = Some(BuildNumber(3));
    assert_eq!(in_use(&world), (Some(1), Some(3), Some(3)));
    world.standing.candidate = None;
    world.standing.rejected.insert(BuildNumber(3));
    assert_eq!(in_use(&world), (Some(1), None, Some(2)));
    // The promoted build has no upload here: the one before it, or else the candidate.
    world.standing.promoted = Some(BuildNumber(3));
    assert_eq!(in_use(&world).0, Some(2));
    world.standing = Standing {
        promoted: Some(BuildNumber(0)),
        candidate: Some(BuildNumber(3)),
        rejected: [].into(),
        decisions: [].into(),
    };
    assert_eq!(in_use(&world), (Some(3), None, Some(3)));
    assert_eq!(
        world.builds[&BuildNumber(3)].uploads[0].number,
        UploadNumber(1)
    );
}

#[test]
fn a_build_of_the_far_future_is_replaced() {
    let mut world = world_with_builds(1);
    world.now = world.now.plus_millis(-DAY_MS);
    assert_eq!(world.texts()[0], "build: 1 is -1440 min old");
    world.now = world.now.plus_millis(DAY_MS - MINUTE_MS);
    assert!(world.texts()[0].starts_with("wait until"));
}
