//! From any state, with any faults, the steps end at the goal (invariant I17).

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::world::UploadPlace;
use super::*;
use crate::image::build_record::{BuildFailureCause, BuildRecord, BuildState, StoredBuild};
use crate::image::number::{BuildNumber, UploadNumber};
use crate::image::upload_record::{StoredUpload, UploadRecord, UploadState};
use crate::image::upload_target::{UploadTarget, UploadTargetId};
use crate::image::view::{BuildRequest, BuildView, FileReach, HeldLock, UploadView};
use crate::image::{ImageInUse, SelectedUpload, image_in_use};
use crate::time::{DAY_MS, HOUR_MS};

const TARGETS: [&str; 4] = ["aws:eu", "local", "aws:us", "old"];

fn build_state() -> impl Strategy<Value = Option<BuildState>> {
    let cause = proptest::sample::select(&BuildFailureCause::ALL[..]);
    let failed = cause.prop_map(|cause| BuildState::Failed {
        error: "x".to_owned(),
        cause,
    });
    prop_oneof![
        1 => Just(None),
        2 => Just(Some(BuildState::Building)),
        4 => Just(Some(BuildState::Ready)),
        2 => failed.prop_map(Some),
        1 => Just(Some(BuildState::Deleting)),
    ]
}

fn upload_state() -> impl Strategy<Value = Option<UploadState>> {
    let failed = any::<bool>().prop_map(|abandoned| UploadState::Failed {
        error: "x".to_owned(),
        abandoned,
    });
    prop_oneof![
        1 => Just(None),
        2 => Just(Some(UploadState::Uploading)),
        4 => Just(Some(UploadState::Ready)),
        2 => failed.prop_map(Some),
        1 => Just(Some(UploadState::Deleting)),
    ]
}

/// A moment between a week ago and far in the future.
fn moment() -> impl Strategy<Value = Timestamp> {
    let now = world().now;
    prop_oneof![
        6 => (-7 * DAY_MS..1).prop_map(move |ms| now.plus_millis(ms)),
        1 => (0..1_000 * DAY_MS).prop_map(move |ms| now.plus_millis(ms)),
    ]
}

prop_compose! {
    fn build()(
        state in build_state(), state_time in moment(), attempt in prop_oneof![1_u32..9, Just(u32::MAX)],
        n_deaths in prop_oneof![0_u32..4, Just(u32::MAX)], is_cancelled in proptest::bool::weighted(0.2),
        fence in proptest::option::of(0_u64..6), has_hash in any::<bool>(),
        is_same in any::<bool>(), has_format in any::<bool>(), is_shared in any::<bool>(),
        holder in proptest::option::of(0..3), request in proptest::option::of(moment()),
        uploads in proptest::collection::vec((0..4_usize, upload_state(), moment(), 1_u32..9, any::<bool>()), 0..5),
        locked in proptest::collection::vec(0..4_usize, 0..2), lock_fence in 0_u64..6,
    ) -> BuildView {
        let hash = match is_same {
            true => definition(|_| ()).build_hash(),
            false => "other".to_owned(),
        };
        let record = state.map(|state| BuildRecord::from_stored(StoredBuild {
            state,
            state_time,
            builder: "b1".to_owned(),
            builder_id: "b1".to_owned(),
            formats: has_format.then(|| ("raw".parse().unwrap(), None)).into_iter().collect(),
            started: None,
            finished: None,
            log: None,
            artifacts: None,
            attempt,
            n_deaths,
            fence,
            build_hash: has_hash.then_some(hash),
            provenance: None,
            reason: None,
            request,
            further: serde_json::Map::new(),
        }));
        let uploads = (1..).zip(uploads).map(|(number, (target, state, at, attempt, has_id))| {
            let target: UploadTargetId = TARGETS[target].parse().unwrap();
            let is_ready = state == Some(UploadState::Ready);
            let record = state.map(|state| UploadRecord::from_stored(StoredUpload {
                state,
                state_time: at,
                external_id: (has_id || is_ready).then(|| format!("{target}/x{number}")),
                external_name: None,
                format: None,
                uploader: String::new(),
                started: None,
                finished: None,
                attempt,
                fence,
                target_hash: None,
                token: None,
                resumable: false,
                further: serde_json::Map::new(),
            }));
            UploadView { number: UploadNumber(number), target, record }
        });
        let locks = locked.into_iter().map(|target| {
            let owner = "b9".to_owned();
            (TARGETS[target].parse().unwrap(), HeldLock { fence: lock_fence, owner })
        });
        let holder = holder.map(|holder| format!("b{}", holder + 1));
        BuildView {
            number: BuildNumber(0),
            record,
            is_cancelled,
            files: FileReach { is_shared, builders: holder.into_iter().collect() },
            uploads: uploads.collect(),
            upload_locks: locks.collect(),
        }
    }
}

prop_compose! {
    fn any_world()(
        builds in proptest::collection::vec(build(), 0..7),
        lock in proptest::option::of(0_u64..6), is_removed in proptest::bool::weighted(0.2),
        is_pinned in proptest::bool::weighted(0.2), keep in 2..4_u32,
        promoted in proptest::option::of(0..8_u64), candidate in proptest::option::of(0..8_u64),
        replaced in proptest::option::of((0..8_u64, moment())), rejected in proptest::collection::btree_set(0..8_u64, 0..2),
        request in proptest::option::of(moment()),
    ) -> World {
        let mut world = world();
        for (number, mut view) in (1..).zip(builds) {
            view.number = BuildNumber(number);
            for upload in &view.uploads {
                let id = upload.record.as_ref().and_then(|record| record.external_id.clone());
                world.clouds.extend(id);
            }
            world.builds.insert(view.number, view);
        }
        world.definition = (!is_removed).then(|| definition(|it| it["keep"] = json!(keep)));
        world.build_lock = lock.map(|fence| HeldLock { fence, owner: "b9".to_owned() });
        world.next_fence = 10;
        world.last_build = 7;
        if is_pinned {
            world.pinned.insert(BuildNumber(1));
        }
        world.standing.promoted = promoted.map(BuildNumber);
        // Only ready builds are rolled back.
        let ready = world.ready();
        let rejected = rejected.into_iter().map(BuildNumber);
        world.standing.rejected = rejected.filter(|build| ready.contains(build)).collect();
        let candidate = candidate.map(BuildNumber);
        world.standing.candidate = candidate.filter(|it| !world.standing.rejected.contains(it));
        let replaced = replaced.map(|(build, at)| (BuildNumber(build), at));
        world.standing.replaced = replaced.into_iter().collect();
        world.request = request.map(|at| BuildRequest {
            at,
            by: "ann".to_owned(),
            reason: String::new(),
        });
        world
    }
}

fn fate(choice: u8) -> Fate {
    match choice {
        0..3 => Fate::Success,
        3 => Fate::Failure,
        4 => Fate::Death,
        5 => Fate::Nothing,
        6 => Fate::Stop,
        _ => Fate::Long,
    }
}

/// The invariants that hold at any time.
fn check_always(world: &World, before: &[(UploadTargetId, Vec<BuildNumber>)]) {
    let builds: Vec<BuildView> = world.builds.values().cloned().collect();
    let lock = world.build_lock.as_ref();
    let in_progress = builds.iter().filter(|view| {
        let record = view.record.as_ref();
        record.is_some_and(|record| {
            let fence = lock.map(|lock| lock.fence);
            record.state == BuildState::Building && record.fence.is_some() && record.fence == fence
        })
    });
    // Two records under one lock occur only in the corrupted states at the start.
    let new = in_progress.filter(|view| view.number.0 > 7);
    assert!(new.count() <= 1, "two builds at once");
    let Some(definition) = &world.definition else {
        return;
    };
    // The last good uploads of each target only give way to newer ones.
    let keep = usize::try_from(definition.keep).unwrap();
    for (target, builds) in before {
        if definition.target(target).is_none() {
            continue;
        }
        let now = world.ready_uploads(target);
        assert!(
            now.len() >= keep.min(builds.len()),
            "{target}: {builds:?}, now {now:?}"
        );
    }
}

/// The good uploads by target: ready, of ready builds that were not rolled back.
fn good_uploads(world: &World) -> Vec<(UploadTargetId, Vec<BuildNumber>)> {
    let ready: BTreeSet<BuildNumber> = world.ready().into_iter().collect();
    let targets = TARGETS.iter().map(|target| target.parse().unwrap());
    let good = targets.map(|target| {
        let mut builds = world.ready_uploads(&target);
        builds.retain(|it| ready.contains(it) && !world.standing.rejected.contains(it));
        (target, builds)
    });
    good.collect()
}

/// The images from which machines start, by target.
fn in_use(world: &World) -> Vec<(UploadTargetId, SelectedUpload)> {
    let builds: Vec<BuildView> = world.builds.values().cloned().collect();
    let targets = world.definition.iter().flat_map(|it| &it.uploads);
    let of_target = |target: &UploadTarget| {
        let ImageInUse { in_use, canary } = image_in_use(&builds, &target.id, &world.standing);
        let images = in_use.into_iter().chain(canary);
        images
            .map(|image| (target.id.clone(), image))
            .collect::<Vec<_>>()
    };
    targets.flat_map(of_target).collect()
}

/// A step takes away no image from which machines start.
fn check_in_use(world: &World, before: &[(UploadTargetId, SelectedUpload)]) {
    for (target, image) in before {
        let build = world
            .builds
            .get(&image.build)
            .filter(|it| it.ready().is_some());
        let mut uploads = build.into_iter().flat_map(|build| build.uploads_to(target));
        let is_ready = uploads.any(|it| it.number == image.upload && it.ready().is_some());
        assert!(
            is_ready,
            "{image:?} is deleted at {target}, and in use there"
        );
    }
}

/// Time passes, processes end, and all steps succeed, until nothing is left to do.
fn run_to_the_end(world: &mut World) {
    world.end_processes(true);
    world.end_processes(false);
    for _ in 0..60 {
        settle(world);
        let waits = world.steps().into_iter().filter_map(|step| {
            let Step::Wait { until, reason } = step else {
                return None;
            };
            until.filter(|_| !reason.to_string().contains("not due for a rebuild"))
        });
        let Some(next) = waits.min() else {
            return;
        };
        world.now = world.now.max(next);
    }
    panic!("no end: {:#?}", world.texts());
}

fn check_goal(world: &World) {
    let pinned = |build: &BuildNumber| world.pinned.contains(build);
    let Some(definition) = &world.definition else {
        assert!(world.builds.keys().all(pinned), "{:?}", world.builds.keys());
        assert!(world.is_image_removed != world.builds.keys().any(pinned));
        return;
    };
    assert_eq!(world.request, None);
    let is_good = |build: &BuildNumber| !world.standing.rejected.contains(build);
    let good: Vec<BuildNumber> = world.ready().into_iter().filter(is_good).collect();
    let Some(newest) = good.first().copied() else {
        // All were rolled back: the next build follows when the newest is old enough.
        assert!(!world.ready().is_empty());
        return;
    };
    let newest_rejected = world.ready().into_iter().find(|build| !is_good(build));
    let newest_rejected = newest_rejected.filter(|build| *build > newest);
    for target in &definition.uploads {
        let uploads = world.ready_uploads(&target.id);
        // A good build without the format is not replaced before the newer one, which was rolled
        // back, is old enough.
        assert!(
            uploads.contains(&newest) || newest_rejected.is_some(),
            "{newest} is not on {}",
            target.id
        );
    }
    // Nothing stays without need: the newest, and the last good ones of each target.
    let keep = usize::try_from(definition.keep).unwrap();
    let mut needed: BTreeSet<BuildNumber> = good.iter().take(keep).copied().collect();
    for (target, builds) in good_uploads(world) {
        if definition.target(&target).is_some() {
            needed.extend(builds.into_iter().take(keep));
        }
    }
    needed.extend(newest_rejected);
    needed.extend(world.standing.promoted);
    needed.extend(world.standing.candidate);
    needed.extend(in_use(world).into_iter().map(|(_, upload)| upload.build));
    needed.extend(&world.pinned);
    for (number, view) in &world.builds {
        // A failure is shown until a newer build is good.
        let is_newest = *number > newest && view.ready().is_none();
        assert!(
            needed.contains(number) || is_newest,
            "{number} is left over of {needed:?}"
        );
        for upload in &view.uploads {
            let is_listed = definition.target(&upload.target).is_some() || pinned(number);
            // Its failure is shown as long as it is the only good build.
            let lacks_format = view
                .ready()
                .is_some_and(|(_, record)| record.formats.is_empty())
                && *number == newest
                && newest_rejected.is_some();
            let is_due = upload.ready().is_some() || lacks_format;
            assert!(is_due && is_listed, "{upload:?}");
        }
    }
}

/// Every image of a known provider belongs to a record.
fn check_no_leak(world: &World) {
    let mut known = BTreeSet::new();
    for view in world.builds.values() {
        let records = view
            .uploads
            .iter()
            .filter_map(|upload| upload.record.as_ref());
        known.extend(records.filter_map(|record| record.external_id.clone()));
    }
    // Those of unknown providers, and of records that were unreadable, are found by other means.
    let made_here = |id: &&String| !id.contains("/x") && !id.starts_with("old");
    let leaked: Vec<&String> = world.clouds.iter().filter(made_here).collect();
    let leaked: Vec<_> = leaked
        .into_iter()
        .filter(|id| !known.contains(*id))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn from_any_state_and_with_faults_at_each_step_the_steps_end_at_the_goal(
        world in any_world(),
        choices in proptest::collection::vec((any::<usize>(), 0_u8..8, 0_u8..12), 0..60),
    ) {
        let mut world = world;
        for (which, choice, passing) in choices {
            let steps = world.steps();
            if steps.is_empty() {
                break;
            }
            let (good, used) = (good_uploads(&world), in_use(&world));
            let step = &steps[which % steps.len()];
            world.apply(step, fate(choice));
            check_in_use(&world, &used);
            match passing {
                0 => world.end_processes(true),
                1 => world.end_processes(false),
                2 => world.now = world.now.plus_millis(HOUR_MS),
                3 => world.builders[0].is_busy ^= true,
                _ => {}
            }
            check_always(&world, &good);
        }
        world.builders[0].is_busy = false;
        run_to_the_end(&mut world);
        check_goal(&world);
        check_no_leak(&world);
        // The steps that remain change nothing.
        let is_wait = |step: &Step| matches!(step, Step::Wait { .. });
        prop_assert!(world.steps().iter().all(is_wait));
    }

    #[test]
    fn a_holder_of_an_old_lock_writes_no_result(fence in 1_u64..9, held in 1_u64..9) {
        let mut world = world();
        world.next_fence = held - 1;
        let step = world.steps().remove(0);
        world.apply(&step, Fate::Long);
        let record = world.record(1).clone();
        let place: UploadPlace = (BuildNumber(1), "local".parse().unwrap(), UploadNumber(1));
        world.change_upload(&place, |_| None);
        prop_assert_eq!(record.fail(String::new(), None, fence, world.now).is_ok(), fence == held);
    }
}
