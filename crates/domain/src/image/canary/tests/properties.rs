//! Properties that hold for every set of machines.

use proptest::prelude::*;

use super::*;

fn trial() -> impl Strategy<Value = Trial> {
    let start = prop_oneof![
        2 => Just(StartOutcome::Pending),
        8 => Just(StartOutcome::Good),
        1 => Just(StartOutcome::NeverRegistered),
        1 => Just(StartOutcome::NeverClaimed),
        1 => Just(StartOutcome::Refused),
    ];
    let time = prop_oneof![9 => -1_000_i64..1_000_000, 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
    let duration = prop_oneof![2 => Just(None), 8 => time.clone().prop_map(Some)];
    let run =
        (any::<bool>(), duration.clone(), time.clone()).prop_map(|(is_good, ms, end)| RunTrial {
            is_good,
            duration_ms: ms,
            resolved: Timestamp::from_millis(SINCE.saturating_add(end)),
        });
    let runs = prop::collection::vec(run, 0..6);
    (any::<bool>(), time, 0..4_u8, start, duration, runs).prop_map(
        |(is_canary, created, id, start, ready_ms, runs)| Trial {
            created: Timestamp::from_millis(SINCE.saturating_add(created)),
            id: id.to_string(),
            group: match is_canary {
                true => CanaryGroup::Canary,
                false => CanaryGroup::Control,
            },
            start,
            ready_ms,
            runs,
        },
    )
}

fn settings() -> impl Strategy<Value = CanarySettings> {
    let share = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(1e-300),
        Just(f64::NAN),
        0.0..1.0_f64
    ];
    (share, prop_oneof![1..30_u32, Just(u32::MAX)], any::<u32>()).prop_map(
        |(share, min_starts, max_seconds)| CanarySettings {
            share,
            min_starts,
            max_seconds,
        },
    )
}

fn is_share(number: f64) -> bool {
    (0.0..=1.0).contains(&number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_set_of_machines_has_a_verdict_and_valid_figures(
        settings in settings(),
        trials in prop::collection::vec(trial(), 0..80),
        now in prop_oneof![Just(i64::MIN), Just(i64::MAX), 0..10_000_000_i64],
    ) {
        let now = Timestamp::from_millis(SINCE.saturating_add(now));
        let judgement = judge(&settings, at(0), &trials, now);
        let evidence = &judgement.evidence;
        prop_assert!(is_share(evidence.worse) && is_share(evidence.as_good), "{evidence:?}");
        for metric in &evidence.metrics {
            prop_assert!(is_share(metric.worse) && is_share(metric.as_good), "{evidence:?}");
        }
        let text = judgement.verdict.to_string();
        prop_assert!(!text.is_empty() && text.len() < 200);
        if matches!(judgement.verdict, CanaryVerdict::Promote { .. }) {
            prop_assert!(evidence.canary.good >= settings.min_starts);
        }
    }

    #[test]
    fn the_order_of_the_machines_and_their_runs_does_not_matter(
        settings in settings(),
        trials in prop::collection::vec(trial(), 0..60),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let now = at(DAY_MS);
        let expected = judge(&settings, at(0), &trials, now);
        let mut other = trials;
        if !other.is_empty() {
            let middle = shuffled.index(other.len());
            other.rotate_left(middle);
        }
        other.reverse();
        for trial in &mut other {
            trial.runs.reverse();
        }
        prop_assert_eq!(judge(&settings, at(0), &other, now), expected);
    }

    #[test]
    fn the_same_outcomes_in_both_groups_never_decide_about_starts(
        settings in settings(),
        groups in prop::collection::vec(any::<bool>(), 0..100),
    ) {
        // An outage: every machine fails.
        let trials = groups.into_iter().enumerate().map(|(minute, is_canary)| {
            let group = match is_canary {
                true => CanaryGroup::Canary,
                false => CanaryGroup::Control,
            };
            machine(minute as i64, group, StartOutcome::NeverRegistered)
        });
        let trials: Vec<Trial> = trials.collect();
        let judgement = judge(&settings, at(0), &trials, at(DAY_MS));
        prop_assert_eq!(judgement.evidence.worse, 0.0);
        prop_assert_eq!(judgement.evidence.as_good, 0.0);
    }
}
