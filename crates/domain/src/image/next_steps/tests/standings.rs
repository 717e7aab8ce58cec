//! Builds that canaries and people promoted or rolled back.

use super::*;
use crate::image::next_steps::cleanup::UNDO_MS;
use crate::image::number::{BuildNumber, UploadNumber};
use crate::image::view::BuildRequest;
use crate::image::{LEFT_IMAGE_MS, image_in_use, next_candidate};
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

fn request(world: &World) -> BuildRequest {
    BuildRequest {
        at: world.now,
        by: "ann".to_owned(),
        reason: String::new(),
    }
}

/// Builds 1 to 6: all at the first target, those of `at_second` at the second one.
fn world_with_a_target_that_lacks_builds(at_second: &[u64]) -> World {
    let mut world = world();
    world.definition = Some(definition(|it| it["rebuildAgeSeconds"] = json!(0)));
    for number in 1..=6 {
        world.request = Some(request(&world));
        take(&mut world, "build", Fate::Success);
        take(&mut world, "upload", Fate::Success);
        if at_second.contains(&number) {
            take(&mut world, "upload", Fate::Success);
        }
        take(&mut world, "clear the request", Fate::Success);
        world.now = world.now.plus_millis(LEFT_IMAGE_MS);
    }
    world
}

fn deletions(world: &World) -> Vec<String> {
    let texts = world.texts().into_iter();
    texts.filter(|it| it.starts_with("delete")).collect()
}

#[test]
fn what_machines_of_a_target_start_from_stays_while_a_canary_waits_for_its_verdict() {
    let second = "local".parse().unwrap();
    let mut world = world_with_a_target_that_lacks_builds(&[1, 2, 5, 6]);
    // The upload of build 3 to the second target failed; 4 is its canary, and not there either.
    world.standing.promoted = Some(BuildNumber(3));
    world.standing.candidate = Some(BuildNumber(4));
    settle(&mut world);
    assert_eq!(numbers(&world.ready_uploads(&second)), [6, 5, 2]);
    assert_eq!(numbers(&world.ready()), [6, 5, 4, 3, 2]);
    // Nor is a candidate deleted that is all that a target has.
    let mut world = world_with_a_target_that_lacks_builds(&[4, 5, 6]);
    world.standing.promoted = Some(BuildNumber(3));
    world.standing.candidate = Some(BuildNumber(4));
    settle(&mut world);
    assert_eq!(numbers(&world.ready_uploads(&second)), [6, 5, 4]);
}

#[test]
fn what_launch_configs_may_still_name_stays_for_a_while_after_a_decision() {
    let second = "local".parse().unwrap();
    let mut world = world_with_a_target_that_lacks_builds(&[1, 2, 5, 6]);
    world.standing.promoted = Some(BuildNumber(3));
    world.standing.candidate = Some(BuildNumber(4));
    settle(&mut world);
    let step = crate::image::RolloutStep {
        step: crate::event::ImageStep::Promoted,
        build: BuildNumber(4),
        reason: String::new(),
    };
    let decided = world.now;
    world.standing.apply(&step, "fleetwright", decided);
    world.standing.try_build(BuildNumber(6), decided);
    // Machines of the second target started from build 2, and still do; those of the first did from
    // build 3.
    let waits = settle(&mut world);
    assert_eq!(numbers(&world.ready()), [6, 5, 4, 3, 2]);
    assert!(
        waits.iter().any(|it| it.ends_with(
            "the upload of 3 to aws:eu was replaced, and launch configs may still name it"
        )),
        "{waits:#?}"
    );
    let named = |world: &World| {
        let texts = world.texts().into_iter();
        let named = texts.filter(|text| text.ends_with("may still name it"));
        named.count()
    };
    for (ms, is_named) in [(LEFT_IMAGE_MS - 1, true), (LEFT_IMAGE_MS, false)] {
        world.now = decided.plus_millis(ms);
        assert_eq!(named(&world) > 0, is_named, "{ms}");
    }
    // The decision can be undone for longer.
    for (ms, is_kept) in [(UNDO_MS - 1, true), (UNDO_MS, false)] {
        world.now = decided.plus_millis(ms);
        let deleted = deletions(&world);
        assert_eq!(deleted.is_empty(), is_kept, "{ms}: {deleted:?}");
    }
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [6, 5, 4, 2]);
    assert_eq!(numbers(&world.ready_uploads(&second)), [6, 5, 2]);
    // A clock that was far ahead keeps nothing for longer.
    let mut world = world_with_a_target_that_lacks_builds(&[]);
    world.standing.promoted = Some(BuildNumber(6));
    world.standing.replaced = [(BuildNumber(3), world.now.plus_millis(DAY_MS))].into();
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [6, 5]);
}

#[test]
fn what_a_late_upload_replaces_stays_for_a_while() {
    let second = "local".parse().unwrap();
    let mut world = world_with_a_target_that_lacks_builds(&[1, 2]);
    world.standing.promoted = Some(BuildNumber(6));
    // Machines of the second target start from build 2, until build 6 is there, too.
    take(&mut world, "upload 6 to local", Fate::Success);
    let uploaded = world.now;
    for (ms, is_kept) in [(0, true), (LEFT_IMAGE_MS - 1, true), (LEFT_IMAGE_MS, false)] {
        world.now = uploaded.plus_millis(ms);
        world.request = (ms == 0).then(|| request(&world));
        settle(&mut world);
        let kept = numbers(&world.ready_uploads(&second));
        assert_eq!(kept.contains(&2), is_kept, "{ms}: {kept:?}");
    }
}

#[test]
fn the_build_that_served_last_stays_for_an_hour_at_every_target_of_it() {
    let mut world = world_with_builds(1);
    world.pinned.insert(BuildNumber(1));
    for _ in 0..2 {
        world.now = world.now.plus_millis(DAY_MS);
        settle(&mut world);
    }
    world.standing.promoted = Some(BuildNumber(2));
    let builds: Vec<_> = world.builds.values().cloned().collect();
    let decided = world.now;
    let why = crate::image::BuildDecision {
        at: decided,
        by: "people/ops".to_owned(),
        reason: String::new(),
        is_passed_over: false,
    };
    world.standing.use_build(BuildNumber(1), &builds, why);
    let waits = settle(&mut world);
    assert_eq!(numbers(&world.ready()), [3, 2, 1]);
    let text = format!(
        "wait until {}: build 2 lost its place to another build; it stays for an hour, so that this \
         can be undone",
        decided.plus_millis(UNDO_MS)
    );
    assert!(waits.contains(&text), "{waits:#?}");
    world.now = decided.plus_millis(UNDO_MS - 1);
    settle(&mut world);
    assert_eq!(world.clouds.len(), 6);
    world.now = decided.plus_millis(UNDO_MS);
    settle(&mut world);
    // The newest of those that were rolled back may be tried again.
    assert_eq!(numbers(&world.ready()), [3, 1]);
}

#[test]
fn the_uploads_of_a_build_go_after_its_record_says_that_it_is_deleted() {
    // Only the record is deleted under the condition that no decision was made meanwhile.
    let mut world = world_with_a_target_that_lacks_builds(&[]);
    world.standing.promoted = Some(BuildNumber(6));
    take(&mut world, "delete 1", Fate::Success);
    let deleted = deletions(&world);
    assert_eq!(
        deleted,
        [
            "delete the upload of 1 to aws:eu: its build is deleted",
            "delete 2: enough newer ones are ready",
            "delete 3: enough newer ones are ready",
            "delete 4: enough newer ones are ready",
        ]
    );
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
        ..Standing::default()
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
