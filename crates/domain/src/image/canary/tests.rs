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
    insta::assert_snapshot!(decision(&trials), @"");
    insta::assert_snapshot!(judged(&trials[..200]).verdict, @"");
}

#[test]
fn an_image_that_never_registers_is_rolled_back() {
    let trials = fleet(80, |_, trial| fail(trial, StartOutcome::NeverRegistered));
    insta::assert_snapshot!(decision(&trials), @"");
    let refused = fleet(80, |_, trial| fail(trial, StartOutcome::Refused));
    insta::assert_snapshot!(decision(&refused), @"");
    let unclaimed = fleet(80, |number, trial| {
        if number % 5 == 1 {
            fail(trial, StartOutcome::NeverClaimed);
        }
    });
    insta::assert_snapshot!(decision(&unclaimed), @"");
}

#[test]
fn an_image_that_fails_tasks_is_rolled_back() {
    let trials = fleet(80, |number, trial| trial.runs[0].is_good = number % 5 != 1);
    insta::assert_snapshot!(decision(&trials), @"");
}

#[test]
fn a_slow_image_is_rolled_back() {
    let ready = fleet(80, |_, trial| {
        trial.ready_ms = trial.ready_ms.map(|ms| ms * 14 / 10);
    });
    insta::assert_snapshot!(decision(&ready), @"");
    let tasks = fleet(80, |_, trial| {
        let run = &mut trial.runs[0];
        run.duration_ms = run.duration_ms.map(|ms| ms * 13 / 10);
    });
    insta::assert_snapshot!(decision(&tasks), @"");
}

#[test]
fn without_a_control_group_nothing_is_decided_until_people_are_asked() {
    let mut trials = fleet(80, |_, trial| fail(trial, StartOutcome::Refused));
    trials.retain(|trial| trial.group == CanaryGroup::Canary);
    let judgement = judged(&trials);
    insta::assert_snapshot!(judgement.verdict, @"");
    assert_eq!(
        (judgement.evidence.worse, judgement.evidence.as_good),
        (0.0, 0.0)
    );
    let settings = CanarySettings::default();
    let late = judge(&settings, at(0), &trials, at(7 * DAY_MS));
    insta::assert_snapshot!(late.verdict, @"");
    let early = judge(&settings, at(0), &[], at(-DAY_MS));
    insta::assert_snapshot!(early.verdict, @"");
}

#[test]
fn evidence_is_kept_as_json() {
    let evidence = judged(&fleet(20, |_, _| ())).evidence;
    let json = serde_json::to_string_pretty(&evidence).unwrap();
    insta::assert_snapshot!(json, @"");
    let read: CanaryEvidence = serde_json::from_str(&json).unwrap();
    assert_eq!(read, evidence);
}
