//! Tests of the steps of a rollout.

use proptest::prelude::*;

use super::*;
use crate::image::build_record::BuildRecord;
use crate::image::number::UploadNumber;
use crate::image::upload_record::UploadRecord;
use crate::image::view::{FileReach, UploadView};
use crate::image::{CanaryGroup, StartOutcome, Trial, judge};
use crate::time::Timestamp;

/// A build that is ready, with an upload to each of these targets.
fn ready(number: u64, targets: &[&str]) -> BuildView {
    let record = br#"{"state":"ready","state_time":1.0,"builder":"b","formats":"raw"}"#;
    let upload = br#"{"state":"ready","state_time":1.0,"external_id":"ami-1","format":"raw"}"#;
    let uploads = targets.iter().map(|target| UploadView {
        number: UploadNumber(1),
        target: target.parse().unwrap(),
        record: Some(UploadRecord::parse(upload).unwrap()),
    });
    BuildView {
        number: BuildNumber(number),
        record: Some(BuildRecord::parse(record).unwrap()),
        files: FileReach::default(),
        uploads: uploads.collect(),
        upload_locks: [].into(),
    }
}

fn with_share(share: f64) -> CanarySettings {
    CanarySettings {
        share,
        ..CanarySettings::default()
    }
}

fn judgement(verdict: CanaryVerdict) -> CanaryJudgement {
    let at = Timestamp::from_millis(0);
    let evidence = judge(&CanarySettings::default(), at, &[], at).evidence;
    CanaryJudgement { verdict, evidence }
}

fn promote() -> CanaryJudgement {
    judgement(CanaryVerdict::Promote { starts: 74 })
}

fn expire() -> CanaryJudgement {
    judgement(CanaryVerdict::Expired {
        starts: 3,
        max_seconds: 86_400,
    })
}

fn roll_back() -> CanaryJudgement {
    let at = Timestamp::from_millis(0);
    let trials = (0..80).map(|number| Trial {
        created: at.plus_millis(number),
        id: number.to_string(),
        group: match number % 10 {
            0 => CanaryGroup::Canary,
            _ => CanaryGroup::Control,
        },
        start: match number % 10 {
            0 => StartOutcome::Refused,
            _ => StartOutcome::Good,
        },
        ready_ms: None,
        runs: Vec::new(),
    });
    let trials: Vec<Trial> = trials.collect();
    judge(&CanarySettings::default(), at, &trials, at.plus_millis(100))
}

/// Takes steps until none is left; returns them.
fn steps(
    builds: &[BuildView],
    standing: &mut Standing,
    share: f64,
    judgement: Option<&CanaryJudgement>,
) -> Vec<String> {
    let targets = ["aws:eu".parse().unwrap(), "local".parse().unwrap()];
    let mut texts = Vec::new();
    // A judgement is about the canary for which it was made.
    let judged = standing.candidate;
    for _ in 0..10 {
        let judgement = judgement.filter(|_| standing.candidate == judged);
        let settings = with_share(share);
        let step = next_rollout_step(builds, &targets, standing, &settings, judgement);
        let Some(step) = step else {
            return texts;
        };
        standing.apply(&step);
        let once = standing.clone();
        standing.apply(&step);
        assert_eq!(*standing, once, "{step}");
        texts.push(step.to_string());
    }
    panic!("no end: {texts:?}");
}

#[test]
fn the_first_image_is_used_at_once_and_the_next_one_is_tested() {
    let mut standing = Standing::default();
    let mut builds = vec![ready(1, &[])];
    assert!(steps(&builds, &mut standing, 0.1, None).is_empty());
    builds = vec![ready(1, &["local"])];
    assert_eq!(steps(&builds, &mut standing, 0.0, None), ["use 1"]);
    builds.push(ready(2, &["local"]));
    assert_eq!(
        steps(&builds, &mut standing, 0.1, None),
        ["start a canary of 2"]
    );
    // A newer one waits until the canary has ended.
    builds.push(ready(3, &["local"]));
    assert!(steps(&builds, &mut standing, 0.1, None).is_empty());
    let taken = steps(&builds, &mut standing, 0.1, Some(&promote()));
    assert_eq!(
        taken,
        ["promote 2: as good after 74 starts", "start a canary of 3"]
    );
    builds.push(ready(4, &["local"]));
    let taken = steps(&builds, &mut standing, 0.1, Some(&roll_back()));
    let rolled_back = "roll back 3: Worse after 8 starts: 8 of 8 refused, control 0.0 %";
    assert_eq!(taken, [rolled_back, "start a canary of 4"]);
    let taken = steps(&builds, &mut standing, 0.1, Some(&expire()));
    let expired = "end the canary of 4: Undecided after 3 starts in 1 day: promote it or roll it \
                   back";
    assert_eq!(taken, [expired]);
    assert_eq!(standing.promoted, Some(BuildNumber(2)));
    assert_eq!(standing.rejected, [BuildNumber(3)].into());
    assert_eq!(standing.expired, [BuildNumber(4)].into());
}

#[test]
fn the_share_decides_whether_an_image_is_used_at_once_or_waits_for_a_person() {
    let builds = [ready(1, &["local"]), ready(2, &["local"])];
    let first = || Standing {
        promoted: Some(BuildNumber(1)),
        ..Standing::default()
    };
    assert_eq!(steps(&builds, &mut first(), 1.0, None), ["use 2"]);
    assert!(steps(&builds, &mut first(), 0.0, None).is_empty());
    let mut tested = Standing {
        candidate: Some(BuildNumber(2)),
        ..first()
    };
    assert!(steps(&builds, &mut tested.clone(), 0.0, None).is_empty());
    assert_eq!(steps(&builds, &mut tested, 1.0, None), ["use 2"]);
}

#[test]
fn a_canary_ends_when_there_is_nothing_to_test_any_more() {
    let tested = Standing {
        promoted: Some(BuildNumber(1)),
        candidate: Some(BuildNumber(2)),
        ..Standing::default()
    };
    let used = || ready(1, &["local"]);
    let first_step = |builds: &[BuildView], standing: &Standing| {
        steps(builds, &mut standing.clone(), 0.1, Some(&promote())).remove(0)
    };
    let end = |why: &str| format!("end the canary of 2: {why}");
    assert_eq!(first_step(&[used()], &tested), end("it was deleted"));
    let mut unready = ready(2, &["local"]);
    unready.record = None;
    assert_eq!(
        first_step(&[used(), unready], &tested),
        end("it is not ready any more")
    );
    let elsewhere = ready(2, &["aws:us"]);
    assert_eq!(
        first_step(&[used(), elsewhere], &tested),
        end("it is on no target any more")
    );
    let builds = [used(), ready(2, &["local"]), ready(3, &["local"])];
    let mut decided = tested.clone();
    decided.rejected.insert(BuildNumber(2));
    assert_eq!(first_step(&builds, &decided), end("it was rolled back"));
    let promoted = Standing {
        promoted: Some(BuildNumber(3)),
        ..tested
    };
    assert_eq!(first_step(&builds, &promoted), end("3 was promoted"));
}

#[test]
fn a_build_is_used_at_once_if_no_target_has_an_image() {
    let mut standing = Standing {
        promoted: Some(BuildNumber(1)),
        ..Standing::default()
    };
    let builds = [ready(1, &["aws:us"]), ready(2, &["local"])];
    assert_eq!(steps(&builds, &mut standing, 0.1, None), ["use 2"]);
}

/// What can happen between two steps.
#[derive(Clone, Debug)]
enum Change {
    Build(bool),
    Delete(prop::sample::Index),
    PersonPromotes(prop::sample::Index),
    PersonRejects(prop::sample::Index),
    Share(f64),
    Verdict(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => any::<bool>().prop_map(Change::Build),
        1 => any::<prop::sample::Index>().prop_map(Change::Delete),
        1 => any::<prop::sample::Index>().prop_map(Change::PersonPromotes),
        1 => any::<prop::sample::Index>().prop_map(Change::PersonRejects),
        1 => prop_oneof![Just(0.0), Just(0.1), Just(1.0)].prop_map(Change::Share),
        4 => (0..4_u8).prop_map(Change::Verdict),
    ]
}

proptest! {
    #[test]
    fn only_tested_first_and_chosen_builds_are_promoted(
        changes in prop::collection::vec(change(), 0..60),
    ) {
        let targets = ["local".parse().unwrap()];
        let (mut builds, mut standing) = (Vec::<BuildView>::new(), Standing::default());
        let (mut share, mut last) = (0.1, 0);
        for change in changes {
            let mut verdict = None;
            match change {
                Change::Build(is_uploaded) => {
                    last += 1;
                    let uploads: &[&str] = if is_uploaded { &["local"] } else { &[] };
                    builds.push(ready(last, uploads));
                }
                Change::Delete(index) if !builds.is_empty() => {
                    builds.remove(index.index(builds.len()));
                }
                Change::PersonPromotes(index) if !builds.is_empty() => {
                    let build = builds[index.index(builds.len())].number;
                    standing.promoted = Some(build);
                    standing.rejected.remove(&build);
                }
                Change::PersonRejects(index) if !builds.is_empty() => {
                    standing.rejected.insert(builds[index.index(builds.len())].number);
                }
                Change::Share(to) => share = to,
                Change::Verdict(number) => verdict = match number {
                    0 => Some(promote()),
                    1 => Some(roll_back()),
                    2 => Some(expire()),
                    _ => None,
                },
                Change::Delete(_) | Change::PersonPromotes(_) | Change::PersonRejects(_) => {}
            }
            for n_steps in 0.. {
                prop_assert!(n_steps < 5, "no end");
                let before = standing.clone();
                let settings = with_share(share);
                let step = next_rollout_step(
                    &builds, &targets, &standing, &settings, verdict.take().as_ref(),
                );
                let Some(step) = step else { break };
                standing.apply(&step);
                let build = step.build();
                match step {
                    RolloutStep::Use { .. } => {
                        let is_in_use = image_in_use(&builds, &targets[0], &before).in_use;
                        let is_first = before.promoted.is_none() || is_in_use.is_none();
                        prop_assert!(is_first || share >= 1.0);
                    }
                    RolloutStep::StartCanary { .. } => {
                        prop_assert!(before.candidate.is_none() && share > 0.0);
                        prop_assert!(Some(build) > before.promoted);
                    }
                    RolloutStep::Promote { .. }
                    | RolloutStep::RollBack { .. }
                    | RolloutStep::Expire { .. }
                    | RolloutStep::EndCanary { .. } => {
                        prop_assert_eq!(before.candidate, Some(build));
                        prop_assert_eq!(standing.candidate, None);
                    }
                }
                if standing.promoted != before.promoted {
                    prop_assert!(!standing.rejected.contains(&build));
                    prop_assert!(standing.promoted > before.promoted);
                }
                let candidate = standing.candidate;
                prop_assert!(candidate.is_none_or(|it| !standing.rejected.contains(&it)));
                prop_assert!(candidate.is_none_or(|it| Some(it) > standing.promoted));
            }
        }
    }
}
