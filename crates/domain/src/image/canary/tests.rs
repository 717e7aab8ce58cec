//! Tests of the verdict.

mod properties;

use super::*;
use crate::time::{DAY_MS, MINUTE_MS};

const SINCE: i64 = 1_700_000_000_000;
const MINUTE_TASK: i64 = 60_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(SINCE + ms)
}

/// A machine that was created after this many minutes. Good ones have a good run.
fn machine(minute: i64, group: CanaryGroup, start: StartOutcome) -> Trial {
    let created = at(minute * MINUTE_MS);
    // Differs between machines, and not between groups.
    let ready_ms = 60_000 + (minute * 7_919) % 20_000;
    let is_good = start == StartOutcome::Good;
    let run = RunTrial {
        resolved: created.plus_millis(ready_ms + MINUTE_TASK),
        is_good: true,
        duration_ms: Some(MINUTE_TASK + (minute * 6_737) % 30_000),
    };
    Trial {
        created,
        id: format!("m{minute}"),
        group,
        start,
        ready_ms: is_good.then_some(ready_ms),
        runs: if is_good { vec![run] } else { Vec::new() },
    }
}

/// Every tenth machine is one of the canary; `change` changes it by its number.
fn fleet(n_canary: i64, mut change: impl FnMut(i64, &mut Trial)) -> Vec<Trial> {
    let mut trials = Vec::new();
    for minute in 0..10 * n_canary {
        let group = match minute % 10 {
            4 => CanaryGroup::Canary,
            _ => CanaryGroup::Control,
        };
        let mut trial = machine(minute, group, StartOutcome::Good);
        if group == CanaryGroup::Canary {
            change(minute / 10, &mut trial);
        }
        trials.push(trial);
    }
    trials
}

fn fail(trial: &mut Trial, start: StartOutcome) {
    trial.start = start;
    trial.runs.clear();
    trial.ready_ms = None;
}

fn judged(trials: &[Trial]) -> CanaryJudgement {
    judge(&CanarySettings::default(), at(0), trials, at(DAY_MS))
}

/// The verdict after each start of the canary, up to the first decision.
fn decision(trials: &[Trial]) -> String {
    for n in (10..=trials.len()).step_by(10) {
        let judgement = judged(&trials[..n]);
        if !matches!(judgement.verdict, CanaryVerdict::Undecided { .. }) {
            return judgement.verdict.to_string();
        }
    }
    judged(trials).verdict.to_string()
}

#[test]
fn a_good_image_is_promoted() {
    let trials = fleet(80, |_, _| ());
    insta::assert_snapshot!(decision(&trials), @"as good after 52 starts");
    insta::assert_snapshot!(judged(&trials[..200]).verdict, @"Undecided after 20 starts. About 32 more without a failure and it is promoted.");
}

#[test]
fn an_image_that_never_registers_is_rolled_back() {
    let trials = fleet(80, |_, trial| fail(trial, StartOutcome::NeverRegistered));
    insta::assert_snapshot!(decision(&trials), @"Worse after 3 starts: 3 of 3 never registered, control 0.0 %");
    let refused = fleet(80, |_, trial| fail(trial, StartOutcome::Refused));
    insta::assert_snapshot!(decision(&refused), @"Worse after 3 starts: 3 of 3 refused, control 0.0 %");
    let unclaimed = fleet(80, |number, trial| {
        if number % 5 == 1 {
            fail(trial, StartOutcome::NeverClaimed);
        }
    });
    insta::assert_snapshot!(decision(&unclaimed), @"Worse after 12 starts: 3 of 12 never claimed, control 0.0 %");
}

#[test]
fn an_image_that_fails_tasks_is_rolled_back() {
    let trials = fleet(80, |number, trial| trial.runs[0].is_good = number % 5 != 1);
    insta::assert_snapshot!(decision(&trials), @"Worse after 17 starts: 4 of 17 tasks failed, control 0.0 %");
}

#[test]
fn a_slow_image_is_rolled_back() {
    let ready = fleet(80, |_, trial| {
        trial.ready_ms = trial.ready_ms.map(|ms| ms * 14 / 10);
    });
    insta::assert_snapshot!(decision(&ready), @"Worse after 6 starts: ready in 97 s (median), control 70 s");
    let tasks = fleet(80, |_, trial| {
        let run = &mut trial.runs[0];
        run.duration_ms = run.duration_ms.map(|ms| ms * 13 / 10);
    });
    insta::assert_snapshot!(decision(&tasks), @"Worse after 8 starts: tasks end in 93 s (median), control 74 s");
}

#[test]
fn without_a_control_group_nothing_is_decided_until_people_are_asked() {
    let mut trials = fleet(80, |_, trial| fail(trial, StartOutcome::Refused));
    trials.retain(|trial| trial.group == CanaryGroup::Canary);
    let judgement = judged(&trials);
    insta::assert_snapshot!(judgement.verdict, @"Undecided after 80 starts. No machine started from the image in use to compare with.");
    assert_eq!(
        (judgement.evidence.worse, judgement.evidence.as_good),
        (0.0, 0.0)
    );
    let settings = CanarySettings::default();
    let late = judge(&settings, at(0), &trials, at(7 * DAY_MS));
    insta::assert_snapshot!(late.verdict, @"Undecided after 80 starts in 7 days");
    let early = judge(&settings, at(0), &[], at(-DAY_MS));
    insta::assert_snapshot!(early.verdict, @"Undecided after 0 starts. About 52 more without a failure and it is promoted.");
}

#[test]
fn twice_as_many_machines_may_be_starting_as_decide() {
    let shares = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.8, 0.95, 1.0];
    let most = shares.map(most_open_starts);
    assert_eq!(most, [6, 6, 6, 6, 12, 20, 32, 114, 120]);
    // Half as many decide, with the block of the control group beside each, and one fewer do not.
    for share in [0.1, 0.25, 0.5] {
        let settings = CanarySettings {
            share,
            ..CanarySettings::default()
        };
        let decisive = most_open_starts(share) / 2;
        let decides = |n: u32| {
            let shape = BlockShape::of_share(share);
            let (n_canary, n_control) = (shape.n_canary as i64, shape.n_control as i64);
            let trials = (0..i64::from(n)).flat_map(|place| {
                let minute = place * 100;
                let bad = machine(minute, CanaryGroup::Canary, StartOutcome::NeverRegistered);
                let first = place * n_control / n_canary;
                let end = (place + 1) * n_control / n_canary;
                let good = (first..end).map(move |place| {
                    let minute = minute + 1 + place - first;
                    machine(minute, CanaryGroup::Control, StartOutcome::Good)
                });
                [bad].into_iter().chain(good)
            });
            let trials: Vec<Trial> = trials.collect();
            let judged = judge(&settings, at(0), &trials, at(DAY_MS));
            matches!(judged.verdict, CanaryVerdict::RollBack { .. })
        };
        assert!(decides(decisive) && !decides(decisive - 1), "{share}");
    }
}

#[test]
fn a_verdict_says_how_many_starts_were_known_of_all() {
    let trials = fleet(19, |number, trial| {
        fail(
            trial,
            match number {
                0..5 => StartOutcome::NeverRegistered,
                _ => StartOutcome::Pending,
            },
        );
    });
    insta::assert_snapshot!(judged(&trials).verdict, @"Worse after 5 known of 19 starts: 5 of 5 never registered, control 0.0 %");
    let pending = fleet(3, |_, trial| fail(trial, StartOutcome::Pending));
    let verdict = judged(&pending).verdict.to_string();
    assert!(
        verdict.starts_with("Undecided after 0 known of 3 starts."),
        "{verdict}"
    );
}

#[test]
fn starts_beside_the_image_are_counted_and_decide_nothing() {
    let good = fleet(80, |_, _| ());
    assert_eq!(decision(&good), "as good after 52 starts");
    let beside = good.iter().cloned().map(|trial| Trial {
        start: StartOutcome::BesideImage,
        ..trial
    });
    let beside: Vec<Trial> = beside.collect();
    let judgement = judged(&beside);
    insta::assert_snapshot!(judgement, @"Undecided after 0 starts. About 52 more without a failure and it is promoted. 800 starts are left out (80 of the canary, 720 beside it): their workers did not run in the file system of the image.");
    // They change nothing about the others, whatever happened on them.
    let with_others = [&beside[..50], &good[50..]].concat();
    assert_eq!(judged(&with_others).verdict, judged(&good[50..]).verdict);
}

/// The last digits depend on the machine.
fn round(evidence: &mut CanaryEvidence) {
    let round = |share: &mut f64| *share = (*share * 100.0).round() / 100.0;
    round(&mut evidence.as_good);
    for metric in &mut evidence.metrics {
        round(&mut metric.as_good);
    }
}

#[test]
fn evidence_is_kept_as_json() {
    let mut evidence = judged(&fleet(20, |_, _| ())).evidence;
    let text = serde_json::to_string(&evidence).unwrap();
    assert_eq!(
        serde_json::from_str::<CanaryEvidence>(&text).unwrap(),
        evidence
    );
    round(&mut evidence);
    let json = serde_json::to_string_pretty(&evidence).unwrap();
    insta::assert_snapshot!(json, @r#"
    {
      "canary": {
        "started": 20,
        "pending": 0,
        "good": 20,
        "neverRegistered": 0,
        "neverClaimed": 0,
        "refused": 0,
        "besideImage": 0,
        "readyMedianMs": 67626,
        "ready95Ms": 78716,
        "runs": 20,
        "failedRuns": 0,
        "runMedianMs": 71688
      },
      "control": {
        "started": 180,
        "pending": 0,
        "good": 180,
        "neverRegistered": 0,
        "neverClaimed": 0,
        "refused": 0,
        "besideImage": 0,
        "readyMedianMs": 70168,
        "ready95Ms": 78897,
        "runs": 180,
        "failedRuns": 0,
        "runMedianMs": 74740
      },
      "worse": 0.0,
      "asGood": 0.37,
      "metrics": [
        {
          "metric": "starts",
          "worse": 0.0,
          "asGood": 0.37,
          "isRequired": true
        },
        {
          "metric": "tasks",
          "worse": 0.0,
          "asGood": 0.59,
          "isRequired": true
        },
        {
          "metric": "readyTime",
          "worse": 0.0,
          "asGood": 1.0,
          "isRequired": true
        },
        {
          "metric": "taskTime",
          "worse": 0.0,
          "asGood": 1.0,
          "isRequired": true
        }
      ],
      "moreStarts": 32
    }
    "#);
}
