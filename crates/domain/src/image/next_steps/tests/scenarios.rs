//! The steps in single cases.

use testing::sizes_around;

use super::*;
use crate::image::LEFT_IMAGE_MS;
use crate::image::number::BuildNumber;
use crate::image::view::{BuildRequest, FileReach, HeldLock, ImagePause};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

fn request(world: &World, reason: &str) -> BuildRequest {
    BuildRequest {
        at: world.now,
        by: "ann".to_owned(),
        reason: reason.to_owned(),
    }
}

#[test]
fn a_new_image_is_built_and_uploaded_to_each_target() {
    let mut world = world();
    assert_eq!(world.texts(), ["build: no build is ready"]);
    take(&mut world, "build", Fate::Success);
    assert_eq!(
        world.texts(),
        [
            "wait until 1970-01-13T11:52:29.673Z: build 1 is not due for a rebuild yet",
            "upload 1 to aws:eu: the target does not have it",
            "upload 1 to local: the target does not have it",
        ]
    );
    let waits = settle(&mut world);
    assert_eq!(waits.len(), 1);
    assert_eq!(world.clouds.len(), 2);
}

#[test]
fn an_old_build_is_replaced_and_the_last_good_ones_stay() {
    let mut world = world_with_builds(1);
    world.now = world.now.plus_millis(DAY_MS);
    assert_eq!(world.texts(), ["build: 1 is 24 h old"]);
    settle(&mut world);
    world.now = world.now.plus_millis(DAY_MS);
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [3, 2]);
    // The images of build 1 were deleted at both providers, and its record is removed.
    assert_eq!((world.clouds.len(), world.builds.len()), (4, 2));
}

#[test]
fn builds_on_request_only_are_not_replaced_by_age() {
    let mut world = world_with_builds(1);
    world.definition = Some(definition(|it| it["rebuildAgeSeconds"] = json!(0)));
    world.now = world.now.plus_millis(1_000 * DAY_MS);
    let expected = "wait: build 1 is ready; others are made only on request";
    assert_eq!(world.texts(), [expected]);
    world.request = Some(request(&world, "security update"));
    assert_eq!(world.texts(), ["build: ann asked for it: security update"]);
}

#[test]
fn a_request_made_while_a_build_runs_needs_another_build_after_it() {
    let mut world = world();
    take(&mut world, "build", Fate::Long);
    world.now = world.now.plus_millis(MINUTE_MS);
    world.request = Some(request(&world, "urgent"));
    assert_eq!(world.texts(), ["wait: b1 builds it"]);
    world.finish_build(true);
    assert!(
        world
            .texts()
            .contains(&"build: ann asked for it: urgent".to_owned())
    );
    take(&mut world, "build", Fate::Success);
    assert!(
        world
            .texts()
            .contains(&"clear the request: a build answered it".to_owned())
    );
    settle(&mut world);
    assert_eq!(
        (world.request.clone(), numbers(&world.ready())),
        (None, vec![2, 1])
    );
}

#[test]
fn a_request_stays_until_a_build_succeeds() {
    let mut world = world_with_builds(1);
    world.request = Some(request(&world, ""));
    take(&mut world, "build: ann asked for it", Fate::Failure);
    assert!(world.request.is_some());
    assert!(world.texts()[0].starts_with("wait: failed once: exit code 1; next try at"));
    // A second request resets the delay.
    world.now = world.now.plus_millis(SECOND_MS);
    world.request = Some(request(&world, "disk fixed"));
    assert_eq!(world.texts(), ["build: ann asked for it: disk fixed"]);
    settle(&mut world);
    assert_eq!(world.request, None);
}

#[test]
fn the_last_failures_are_kept_for_people() {
    let most = crate::image::next_steps::cleanup::MAX_FAILED;
    for n in sizes_around("domain::image::next_steps::cleanup::MAX_FAILED", most) {
        let mut world = world();
        for _ in 0..n {
            take(&mut world, "build", Fate::Failure);
            world.now = world.now.plus_millis(6 * HOUR_MS);
            let deletions = world
                .texts()
                .iter()
                .filter(|it| it.starts_with("delete"))
                .count();
            for _ in 0..deletions {
                take(&mut world, "delete", Fate::Success);
                take(&mut world, "remove the record of", Fate::Success);
            }
        }
        assert_eq!(world.builds.len(), n.min(most), "{n}");
    }
}

#[test]
fn nothing_is_built_without_a_builder_that_has_the_labels() {
    let mut world = world();
    world.definition = Some(definition(|it| it["labels"] = json!(["arm64", "gpu"])));
    assert_eq!(
        world.texts(),
        ["wait: no live builder has the labels arm64, gpu"]
    );
    world.definition = Some(definition(|it| it["labels"] = json!(["arm64"])));
    let steps = world.steps();
    let [Step::Build { builders, .. }] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(*builders, ["b2"]);
    world.builders[1].is_busy = true;
    assert_eq!(
        world.texts(),
        ["wait: the builder that has its labels is busy"]
    );
    world.builders.clear();
    world.definition = Some(definition(|_| ()));
    assert_eq!(world.texts(), ["wait: no builder is live"]);
}

#[test]
fn at_most_as_many_images_are_built_as_the_budget_allows() {
    let mut world = world();
    for (running, is_built) in [(0, true), (3, true), (4, false), (40, false)] {
        world.budget.running = running;
        let expected = match is_built {
            true => "build: no build is ready",
            false => "wait: 4 images are being built, which is the limit",
        };
        assert_eq!(world.texts(), [expected]);
    }
}

#[test]
fn a_paused_image_is_neither_built_nor_uploaded_but_cleaned_up() {
    let mut world = world();
    take(&mut world, "build", Fate::Success);
    world.pause = Some(ImagePause {
        by: "ann".to_owned(),
        reason: "kernel bug".to_owned(),
    });
    world.now = world.now.plus_millis(2 * DAY_MS);
    let paused = "wait: paused by ann: kernel bug";
    assert_eq!(world.texts(), [paused, paused, paused]);
    world.pause = None;
    world.definition = Some(definition(|it| it["paused"] = json!(true)));
    assert_eq!(world.texts()[0], "wait: paused in its definition");
    world.definition = None;
    settle(&mut world);
    assert!(world.is_image_removed);
}

#[test]
fn a_changed_definition_or_a_missing_format_needs_a_build() {
    let mut world = world_with_builds(1);
    world.definition = Some(definition(|it| {
        it["build"]["command"] = json!(["make", "all"])
    }));
    assert_eq!(world.texts(), ["build: the definition changed since 1"]);
    world.definition = Some(definition(|it| {
        it["formats"] = json!(["raw", "vhd", "tar"])
    }));
    assert_eq!(world.texts(), ["build: 1 has no vhd, tar"]);
}

#[test]
fn a_changed_target_needs_an_upload_and_the_old_one_stays_until_then() {
    let mut world = world_with_builds(1);
    let change = |it: &mut Value| it["uploads"][0]["options"] = json!({"ena": true});
    world.definition = Some(definition(change));
    let expected = "upload 1 to aws:eu: its format or options changed";
    assert_eq!(world.texts()[1..], [expected]);
    world.now = world.now.plus_millis(1);
    take(&mut world, expected, Fate::Success);
    // Launch configs may name the old one a little longer.
    let uploaded = world.now;
    for (ms, is_kept) in [(0, true), (LEFT_IMAGE_MS - 1, true), (LEFT_IMAGE_MS, false)] {
        world.now = uploaded.plus_millis(ms);
        let deletion = "delete the upload of 1 to aws:eu: enough newer ones are ready".to_owned();
        assert_eq!(!world.texts().contains(&deletion), is_kept, "{ms}");
    }
    settle(&mut world);
    assert_eq!(world.clouds.len(), 2);
}

#[test]
fn a_failed_upload_is_tried_again_and_others_are_not_delayed() {
    let mut world = world();
    take(&mut world, "build", Fate::Success);
    take(&mut world, "upload 1 to aws:eu", Fate::Failure);
    let texts = world.texts();
    assert_eq!(
        texts[1],
        "wait: the upload of 1 to aws:eu failed once: denied; next try at \
         1970-01-12T13:46:50.000Z"
    );
    assert_eq!(texts[2], "upload 1 to local: the target does not have it");
    world.now = world.now.plus_millis(10 * SECOND_MS);
    let retry = "upload 1 to aws:eu: the last attempt failed: denied";
    take(&mut world, retry, Fate::Failure);
    assert!(
        world.texts().iter().any(|it| it.contains("failed 2 times")),
        "{:?}",
        world.texts()
    );
    // Only the last failure is kept.
    take(
        &mut world,
        "delete the upload of 1 to aws:eu: it failed",
        Fate::Success,
    );
    world.now = world.now.plus_millis(20 * SECOND_MS);
    settle(&mut world);
    assert_eq!(world.clouds.len(), 2);
}

#[test]
fn an_interrupted_upload_is_noted_and_repeated() {
    let mut world = world();
    take(&mut world, "build", Fate::Success);
    take(&mut world, "upload 1 to aws:eu", Fate::Death);
    take(
        &mut world,
        "note that the upload of 1 to aws:eu failed",
        Fate::Success,
    );
    world.now = world.now.plus_millis(HOUR_MS);
    settle(&mut world);
    assert_eq!(world.clouds.len(), 2, "{:?}", world.clouds);
}

#[test]
fn a_build_whose_only_copy_is_lost_is_built_again_at_once() {
    let mut world = world();
    take(&mut world, "build", Fate::Success);
    take(&mut world, "upload 1 to local", Fate::Success);
    world.builders.remove(0);
    let expected = "build: no live builder has the files of 1, which aws:eu needs";
    assert_eq!(world.texts(), [expected]);
    // Shared storage keeps it reachable.
    let files = &mut world.builds.get_mut(&BuildNumber(1)).unwrap().files;
    files.is_shared = true;
    let steps = world.steps();
    assert!(matches!(&steps[1], Step::Upload { builders, .. } if builders.is_empty()));
    // Nothing needs the files of a build that is uploaded everywhere.
    settle(&mut world);
    world.builds.get_mut(&BuildNumber(1)).unwrap().files = FileReach::default();
    assert!(
        world.texts()[0].starts_with("wait until"),
        "{:?}",
        world.texts()
    );
}

#[test]
fn the_last_good_uploads_of_each_target_stay_while_newer_ones_fail() {
    let mut world = world_with_builds(2);
    for _ in 0..4 {
        world.now = world.now.plus_millis(DAY_MS);
        take(&mut world, "build", Fate::Success);
        let number = world.ready()[0];
        take(
            &mut world,
            &format!("upload {number} to local"),
            Fate::Success,
        );
        let waits = world.steps();
        for step in waits {
            let is_failing =
                step.to_string().contains("aws") && matches!(step, Step::Upload { .. });
            world.apply(
                &step,
                if is_failing {
                    Fate::Failure
                } else {
                    Fate::Success
                },
            );
        }
    }
    let aws = world.ready_uploads(&"aws:eu".parse().unwrap());
    assert_eq!(numbers(&aws), [2, 1]);
    assert_eq!(
        numbers(&world.ready_uploads(&"local".parse().unwrap()))[..2],
        [6, 5]
    );
}

#[test]
fn pinned_builds_are_never_deleted() {
    let mut world = world_with_builds(1);
    world.pinned.insert(BuildNumber(1));
    for _ in 0..4 {
        world.now = world.now.plus_millis(DAY_MS);
        settle(&mut world);
    }
    assert_eq!(numbers(&world.ready()), [5, 4, 1]);
    assert_eq!(world.clouds.len(), 6);
    world.definition = None;
    let waits = settle(&mut world);
    assert_eq!(
        waits,
        ["wait: 1 is pinned, so the removed image is kept; unpin it"]
    );
    assert_eq!(world.clouds.len(), 2);
    world.pinned.clear();
    settle(&mut world);
    assert!(world.is_image_removed && world.clouds.is_empty());
}

#[test]
fn a_removed_image_waits_for_its_build_and_leaves_nothing() {
    let mut world = world_with_builds(2);
    world.request = Some(request(&world, ""));
    take(&mut world, "build: ann", Fate::Long);
    world.definition = None;
    world.request = Some(request(&world, ""));
    let waits = settle(&mut world);
    assert_eq!(waits, ["wait: b1 builds it"]);
    world.end_processes(false);
    settle(&mut world);
    assert!(world.is_image_removed && world.builds.is_empty() && world.clouds.is_empty());
    assert_eq!(world.request, None);
}

#[test]
fn a_target_that_is_no_longer_named_loses_its_uploads() {
    let mut world = world_with_builds(2);
    world.definition = Some(definition(|it| {
        it["uploads"] = json!([{"providerId": "local"}])
    }));
    let text = "delete the upload of 2 to aws:eu: the definition does not name the target any more";
    assert!(
        world.texts().contains(&text.to_owned()),
        "{:#?}",
        world.texts()
    );
    settle(&mut world);
    assert!(world.clouds.iter().all(|id| id.starts_with("local")));
    assert_eq!(world.clouds.len(), 2);
}

#[test]
fn uploads_to_a_removed_provider_do_not_keep_their_builds() {
    let mut world = world_with_builds(2);
    world.providers = ["local".parse().unwrap()].into();
    // The definition still names it: nothing is lost, and people are shown why nothing happens.
    world.now = world.now.plus_millis(DAY_MS);
    let waits = settle(&mut world);
    assert!(waits.contains(&"wait: the provider of aws:eu is not configured".to_owned()));
    assert_eq!(world.ready_uploads(&"aws:eu".parse().unwrap()).len(), 2);
    world.definition = Some(definition(|it| {
        it["uploads"] = json!([{"providerId": "local"}])
    }));
    let text = "the provider of aws:eu is not configured, so its image remains there (aws:eu/2-1)";
    assert!(
        world.texts().iter().any(|it| it.ends_with(text)),
        "{:#?}",
        world.texts()
    );
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [3, 2]);
}

#[test]
fn an_unreadable_record_is_removed_unless_a_process_works_on_it() {
    let mut world = world_with_builds(2);
    let build = world.builds.get_mut(&BuildNumber(2)).unwrap();
    build.uploads[0].record = None;
    let target = build.uploads[0].target.clone();
    let owner = "b2".to_owned();
    build
        .upload_locks
        .insert(target, HeldLock { fence: 99, owner });
    let texts = world.texts();
    assert!(
        texts.contains(&"wait: b2 uploads 2 to aws:eu".to_owned()),
        "{texts:#?}"
    );
    assert!(
        !texts.iter().any(|it| it.starts_with("remove")),
        "{texts:#?}"
    );
    world.end_processes(false);
    let text = "remove an unreadable record of an upload of 2 to aws:eu";
    assert!(world.texts().contains(&text.to_owned()));
    world.builds.get_mut(&BuildNumber(1)).unwrap().record = None;
    settle(&mut world);
    assert_eq!(world.builds.len(), 1);
}

#[test]
fn a_build_that_somebody_deletes_is_cleaned_up_and_replaced() {
    let mut world = world_with_builds(2);
    for number in [1, 2] {
        let view = world.builds.get_mut(&BuildNumber(number)).unwrap();
        let record = view.record.take().unwrap();
        view.record = Some(record.delete(world.now).unwrap());
    }
    let texts = world.texts();
    assert!(texts.contains(&"delete the upload of 2 to local: its build is deleted".to_owned()));
    settle(&mut world);
    assert_eq!(numbers(&world.ready()), [3]);
    assert_eq!(world.clouds.len(), 2);
}
