//! Tests of the steps of a rollout.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::image::CanaryStarts;
use crate::image::UploadNumber;
use crate::image::build_record::{BuildFile, BuildLeft, NewBuild};
use crate::image::upload_record::NewUpload;
use crate::image::view::{FileReach, UploadView};

fn now() -> Timestamp {
    Timestamp::from_millis(1_000)
}

/// A ready build, uploaded or not.
fn build(number: u64, is_uploaded: bool) -> BuildView {
    let new = NewBuild {
        builder: "b".to_owned(),
        builder_id: "b".to_owned(),
        attempt: 1,
        n_deaths: 0,
        fence: 1,
        build_hash: String::new(),
        reason: String::new(),
        request: None,
    };
    let file = BuildFile {
        size_bytes: 1,
        sha256: "0".repeat(64),
    };
    let left = BuildLeft {
        files: BTreeMap::from([("tar".parse().unwrap(), file)]),
        provenance: None,
        log: None,
        artifacts: None,
    };
    let upload = NewUpload {
        uploader: "b".to_owned(),
        format: "tar".parse().unwrap(),
        external_name: None,
        attempt: 1,
        fence: 1,
        target_hash: String::new(),
        token: String::new(),
    };
    let upload = upload
        .begin(now())
        .succeed(format!("id-{number}"), 1, now());
    let upload = UploadView {
        number: UploadNumber(1),
        target: "cloud".parse().unwrap(),
        record: Some(upload.unwrap()),
    };
    BuildView {
        number: BuildNumber(number),
        record: Some(new.begin(now()).succeed(left, 1, now()).unwrap()),
        is_cancelled: false,
        files: FileReach::default(),
        uploads: if is_uploaded { vec![upload] } else { vec![] },
        upload_locks: BTreeMap::new(),
    }
}

fn settings(share: f64) -> CanarySettings {
    CanarySettings {
        share,
        ..CanarySettings::default()
    }
}

/// The next step as text, with a canary share of 0.1.
fn next(builds: &[BuildView], standing: &Standing, verdict: Option<&CanaryVerdict>) -> String {
    text(builds, standing, verdict, 0.1, false)
}

fn text(
    builds: &[BuildView],
    standing: &Standing,
    verdict: Option<&CanaryVerdict>,
    share: f64,
    is_expired: bool,
) -> String {
    let step = next_rollout_step(&RolloutView {
        builds,
        standing,
        settings: &settings(share),
        verdict,
        is_expired,
    });
    step.map_or_else(
        || "nothing".to_owned(),
        |step| format!("{} {}", step.step.action(), step.build),
    )
}

fn standing(promoted: Option<u64>, candidate: Option<u64>, rejected: &[u64]) -> Standing {
    Standing {
        decisions: BTreeMap::new(),
        promoted: promoted.map(BuildNumber),
        candidate: candidate.map(BuildNumber),
        rejected: rejected.iter().copied().map(BuildNumber).collect(),
        replaced: BTreeMap::new(),
    }
}

fn without_reasons(standing: &Standing) -> Standing {
    Standing {
        decisions: BTreeMap::new(),
        replaced: BTreeMap::new(),
        ..standing.clone()
    }
}

fn decision(at_ms: i64, by: &str, reason: &str) -> BuildDecision {
    BuildDecision {
        at: Timestamp::from_millis(at_ms),
        by: by.to_owned(),
        reason: reason.to_owned(),
        is_passed_over: false,
    }
}

fn starts(known: u32) -> CanaryStarts {
    CanaryStarts { known, all: known }
}

fn promote() -> CanaryVerdict {
    CanaryVerdict::Promote { starts: starts(60) }
}

fn expired() -> CanaryVerdict {
    CanaryVerdict::Expired {
        starts: starts(3),
        max_seconds: 60,
    }
}

fn undecided() -> CanaryVerdict {
    CanaryVerdict::Undecided {
        starts: starts(3),
        more_starts: None,
        has_control: true,
    }
}

#[test]
fn the_first_build_with_an_upload_is_used_at_once() {
    let none = Standing::default();
    assert_eq!(next(&[], &none, None), "nothing");
    assert_eq!(next(&[build(1, false)], &none, None), "nothing");
    assert_eq!(next(&[build(1, true)], &none, None), "build-promoted 1");
}

#[test]
fn a_newer_build_becomes_a_canary_unless_the_definition_wants_none() {
    let (builds, used) = (
        [build(1, true), build(2, true)],
        standing(Some(1), None, &[]),
    );
    let with = |share| text(&builds, &used, None, share, false);
    assert_eq!(with(0.1), "canary-started 2");
    assert_eq!(with(1.0), "build-promoted 2");
    assert_eq!(with(0.0), "nothing");
}

#[test]
fn a_newer_build_is_used_at_once_if_nothing_else_can_be_used() {
    let builds = [build(1, false), build(2, true)];
    let used = standing(Some(1), None, &[]);
    assert_eq!(next(&builds, &used, None), "build-promoted 2");
    let all_rejected = standing(Some(1), None, &[1]);
    let builds = [build(1, true), build(2, true)];
    assert_eq!(next(&builds, &all_rejected, None), "build-promoted 2");
}

#[test]
fn a_build_that_was_rolled_back_is_not_tried_again_but_the_next_one_is() {
    let rejected = standing(Some(1), None, &[2]);
    assert_eq!(
        next(&[build(1, true), build(2, true)], &rejected, None),
        "nothing"
    );
    let builds = [build(1, true), build(2, true), build(3, true)];
    assert_eq!(next(&builds, &rejected, None), "canary-started 3");
}

#[test]
fn a_newer_build_waits_until_the_canary_has_ended() {
    let builds = [build(1, true), build(2, true), build(3, true)];
    let running = standing(Some(1), Some(2), &[]);
    assert_eq!(next(&builds, &running, None), "nothing");
    assert_eq!(next(&builds, &running, Some(&undecided())), "nothing");
    assert_eq!(
        next(&builds, &running, Some(&promote())),
        "build-promoted 2"
    );
}

#[test]
fn people_are_asked_once_when_the_time_is_over() {
    let (builds, running) = (
        [build(1, true), build(2, true)],
        standing(Some(1), Some(2), &[]),
    );
    let with = |is_expired| text(&builds, &running, Some(&expired()), 0.1, is_expired);
    assert_eq!(
        (with(false), with(true)),
        ("canary-expired 2".to_owned(), "nothing".to_owned())
    );
}

#[test]
fn the_newest_build_takes_the_place_of_a_canary_whose_time_is_over() {
    let running = standing(Some(1), Some(2), &[3]);
    let next_with = |builds: &[BuildView], share, is_expired| {
        let view_settings = settings(share);
        next_rollout_step(&RolloutView {
            builds,
            standing: &running,
            settings: &view_settings,
            verdict: Some(&expired()),
            is_expired,
        })
    };
    // A build that was rolled back is not newer, and one without an upload cannot be tried.
    let known = [build(1, true), build(2, true), build(3, true)];
    let waiting = [
        &known[..],
        &[build(4, true), build(5, true), build(6, false)],
    ]
    .concat();
    let asked = next_with(&known, 0.1, false).unwrap();
    assert_eq!((asked.step, asked.build.0), (ImageStep::CanaryExpired, 2));
    for is_expired in [false, true] {
        let next = next_with(&waiting, 0.1, is_expired).unwrap();
        assert_eq!((next.step, next.build.0), (ImageStep::CanaryStarted, 5));
        insta::allow_duplicates! {
            insta::assert_snapshot!(next.reason, @"2 had no verdict (Undecided after 3 starts in 1 minute), so 5 is next: a new build is ready: 10 % of the machines, beside 1");
        }
    }
    // The definition wants no canaries now, or leaves all decisions to people.
    let next = next_with(&waiting, 1.0, true).unwrap();
    assert_eq!((next.step, next.build.0), (ImageStep::Promoted, 5));
    assert_eq!(next_with(&waiting, 0.0, true), None);
}

#[test]
fn builds_that_lose_their_place_are_noted_until_they_have_one_again() {
    let builds: Vec<BuildView> = (1..=5).map(|number| build(number, true)).collect();
    let at = Timestamp::from_millis;
    let mut now = standing(Some(1), None, &[]);
    let replaced = |now: &Standing| {
        let replaced = now.replaced.iter();
        let replaced = replaced.map(|(build, at)| (build.0, at.as_millis()));
        replaced.collect::<Vec<_>>()
    };
    now.try_build(BuildNumber(2), at(1));
    assert_eq!(replaced(&now), []);
    now.try_build(BuildNumber(3), at(2));
    assert_eq!(replaced(&now), [(2, 2)]);
    // The canary is promoted: it did not lose its place.
    now.use_build(BuildNumber(3), &builds, decision(3, "people/ops", ""));
    assert_eq!(replaced(&now), [(1, 3), (2, 2)]);
    now.use_build(BuildNumber(1), &builds, decision(4, "people/ops", ""));
    assert_eq!(replaced(&now), [(2, 2), (3, 4)]);
    now.try_build(BuildNumber(5), at(5));
    let ended = |step| RolloutStep {
        step,
        build: BuildNumber(5),
        reason: String::new(),
    };
    now.apply(&ended(ImageStep::RolledBack), "fleetwright", at(6));
    assert_eq!(replaced(&now), [(2, 2), (3, 4), (5, 6)]);
    now.try_build(BuildNumber(5), at(7));
    now.apply(&ended(ImageStep::CanaryEnded), "fleetwright", at(8));
    now.forget_missing(&builds[2..]);
    assert_eq!(replaced(&now), [(3, 4), (5, 8)]);
}

#[test]
fn a_canary_ends_with_its_build() {
    let running = standing(Some(1), Some(2), &[]);
    assert_eq!(
        next(&[build(1, true)], &running, Some(&promote())),
        "canary-ended 2"
    );
    assert_eq!(
        next(&[build(1, true), build(2, false)], &running, None),
        "canary-ended 2"
    );
}

#[test]
fn going_back_passes_over_what_never_served_and_going_forward_leaves_it_its_canary() {
    let builds: Vec<BuildView> = (1..=4).map(|number| build(number, true)).collect();
    let passed_over = |standing: &Standing| {
        let rejected = standing.rejected.iter();
        let rejected = rejected.map(|build| (build.0, standing.decisions[build].is_passed_over));
        rejected.collect::<Vec<_>>()
    };
    let why = || decision(5, "people/ops", "slow");
    // Forward: 3 and 4 are new, and one of them is tried next.
    let mut forward = standing(Some(1), None, &[]);
    assert!(!forward.use_build(BuildNumber(2), &builds, why()));
    assert_eq!(without_reasons(&forward), standing(Some(2), None, &[]));
    assert_eq!(next(&builds, &forward, None), "canary-started 4");
    // Back from the build in use, or from the canary: 4 never served.
    let mut back = standing(Some(3), None, &[]);
    assert!(back.use_build(BuildNumber(2), &builds, why()));
    assert_eq!(passed_over(&back), [(3, false), (4, true)]);
    let mut back = standing(Some(1), Some(3), &[]);
    assert!(back.use_build(BuildNumber(2), &builds, why()));
    assert_eq!(passed_over(&back), [(3, false), (4, true)]);
    assert_eq!(next(&builds, &back, None), "nothing");
    // A canary that ended without a verdict served too.
    let mut back = standing(Some(2), None, &[]);
    back.replaced
        .insert(BuildNumber(3), Timestamp::from_millis(4));
    assert!(back.use_build(BuildNumber(1), &builds, why()));
    assert_eq!(passed_over(&back), [(2, false), (3, false), (4, true)]);
    // Before the first decision, machines start from the newest.
    let mut back = Standing::default();
    assert!(back.use_build(BuildNumber(3), &builds, why()));
    assert_eq!(passed_over(&back), [(4, false)]);
}

#[test]
fn the_build_that_people_choose_is_used_and_newer_ones_are_not_tried() {
    let builds = [build(1, true), build(2, true), build(3, true)];
    let mut chosen = standing(Some(2), Some(3), &[1]);
    chosen.use_build(
        BuildNumber(1),
        &builds,
        decision(5, "people/ops", "slow tests"),
    );
    assert_eq!(without_reasons(&chosen), standing(Some(1), None, &[2, 3]));
    assert_eq!(next(&builds, &chosen, None), "nothing");
    chosen.forget_missing(&builds[..2]);
    assert_eq!(without_reasons(&chosen), standing(Some(1), None, &[2]));
}

#[test]
fn each_build_in_use_or_rolled_back_says_why() {
    let builds = [build(1, true), build(2, true), build(3, true)];
    let mut now = Standing::default();
    let take = |now: &mut Standing, step, build, reason: &str, at| {
        let step = RolloutStep {
            step,
            build: BuildNumber(build),
            reason: reason.to_owned(),
        };
        now.apply(&step, "fleetwright", Timestamp::from_millis(at));
    };
    let reasons = |now: &Standing| {
        let decisions = now.decisions.iter();
        let texts = decisions.map(|(build, why)| format!("{build} {} {}", why.by, why.reason));
        texts.collect::<Vec<_>>().join("; ")
    };
    take(&mut now, ImageStep::Promoted, 1, "the first", 1);
    take(&mut now, ImageStep::CanaryStarted, 2, "it is new", 2);
    take(&mut now, ImageStep::CanaryExpired, 2, "people decide", 3);
    assert_eq!(reasons(&now), "1 fleetwright the first");
    take(&mut now, ImageStep::RolledBack, 2, "it never starts", 4);
    assert_eq!(
        reasons(&now),
        "1 fleetwright the first; 2 fleetwright it never starts"
    );
    assert_eq!(now.decisions[&BuildNumber(2)].at, Timestamp::from_millis(4));
    // A person who goes back keeps the verdict about a build that was rolled back before.
    now.try_build(BuildNumber(3), Timestamp::from_millis(5));
    now.use_build(BuildNumber(1), &builds, decision(5, "people/ops", "slow"));
    assert_eq!(
        reasons(&now),
        "1 people/ops slow; 2 fleetwright it never starts; 3 people/ops slow"
    );
    now.try_build(BuildNumber(2), Timestamp::from_millis(6));
    assert_eq!(reasons(&now), "1 people/ops slow; 3 people/ops slow");
    take(&mut now, ImageStep::CanaryEnded, 2, "it was deleted", 6);
    take(&mut now, ImageStep::Promoted, 3, "as good", 7);
    assert_eq!(reasons(&now), "3 fleetwright as good");
}

#[test]
fn decisions_without_reasons_are_read_as_older_servers_wrote_them() {
    let old = r#"{"promoted":1,"candidate":null,"rejected":[2]}"#;
    let mut read: Standing = serde_json::from_str(old).unwrap();
    assert_eq!(read, standing(Some(1), None, &[2]));
    read.use_build(BuildNumber(1), &[], decision(5, "people/ops", ""));
    let text = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<Standing>(&text).unwrap(), read);
}

proptest! {
    #[test]
    fn only_candidates_and_first_builds_are_promoted(
        events in proptest::collection::vec((0..6_u8, 1..6_u64), 1..40),
    ) {
        let mut builds: Vec<BuildView> = Vec::new();
        let mut now = Standing::default();
        for (event, number) in events {
            match event {
                0 | 1 => {
                    let next = builds.last().map_or(1, |last| last.number.0 + 1);
                    builds.push(build(next, event == 0));
                }
                2 => builds.retain(|it| it.number.0 != number),
                _ => {}
            }
            let verdict = match event {
                3 => Some(promote()),
                4 => Some(expired()),
                _ => None,
            };
            let (view_builds, before) = (builds.clone(), now.clone());
            let step = next_rollout_step(&RolloutView {
                builds: &view_builds,
                standing: &before,
                settings: &settings(0.1),
                verdict: verdict.as_ref(),
                is_expired: false,
            });
            let Some(step) = step else { continue };
            now.apply(&step, "fleetwright", Timestamp::from_millis(0));
            if step.step == ImageStep::Promoted {
                let was_candidate = before.candidate == Some(step.build);
                let view = RolloutView {
                    builds: &view_builds,
                    standing: &before,
                    settings: &settings(0.1),
                    verdict: None,
                    is_expired: false,
                };
                prop_assert!(was_candidate || before.promoted.is_none() || !has_older(&view, step.build));
            }
            prop_assert!(now.candidate.is_none_or(|candidate| !now.rejected.contains(&candidate)));
            prop_assert!(now.promoted.is_none_or(|promoted| !now.rejected.contains(&promoted)));
            let mut explained = now.rejected.clone();
            explained.extend(now.promoted);
            prop_assert_eq!(now.decisions.keys().copied().collect::<BTreeSet<_>>(), explained);
        }
    }
}
