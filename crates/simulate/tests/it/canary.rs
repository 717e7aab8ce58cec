//! Verdicts about images keep their stated rates.
//!
//! docs/simulation.md has the figures of more runs; a test of `domain` has more sequences of bets.

use domain::image::{FALSE_ALARM_RATE, WRONG_PROMOTION_RATE};
use simulate::canary::{CanaryFigures, CanaryScenario, CanaryStudy};

/// Judges only every 20th start: a build for tests is slow.
fn figures(scenario: CanaryScenario, n_canaries: u64) -> CanaryFigures {
    let study = CanaryStudy {
        scenarios: vec![scenario],
        n_canaries,
        seed: 11,
        n_first: 0,
        each: 20,
    };
    study.run(2, &|_, _| ()).remove(0)
}

/// The share of wrong verdicts of these scenarios together.
fn wrong_share(scenarios: &[CanaryScenario], n_canaries: u64) -> f64 {
    let shares = scenarios
        .iter()
        .map(|scenario| figures(*scenario, n_canaries).wrong_share());
    shares.sum::<f64>() / scenarios.len() as f64
}

#[test]
fn equal_images_are_rolled_back_no_more_often_than_stated() {
    let all = CanaryScenario::ALL.into_iter();
    let equal: Vec<CanaryScenario> = all.filter(|it| it.is_equal()).collect();
    let share = wrong_share(&equal, 30);
    assert!(share <= FALSE_ALARM_RATE, "{share}");
}

#[test]
fn images_that_are_worse_by_the_margin_are_promoted_no_more_often_than_stated() {
    let margin = [CanaryScenario::StartsFail10, CanaryScenario::TasksFail15];
    let share = wrong_share(&margin, 50);
    assert!(share <= WRONG_PROMOTION_RATE, "{share}");
}

#[test]
fn broken_images_are_rolled_back_soon_and_never_promoted() {
    for (scenario, most_starts_in_half) in [
        (CanaryScenario::NeverRegisters, 7),
        (CanaryScenario::TasksFailAll, 15),
        (CanaryScenario::StartsFail20, 45),
        (CanaryScenario::TasksFail20, 45),
        (CanaryScenario::Slower30Steady, 40),
    ] {
        let study = CanaryStudy {
            scenarios: vec![scenario],
            n_canaries: 20,
            seed: 11,
            n_first: 10,
            each: 5,
        };
        let figures = study.run(2, &|_, _| ()).remove(0);
        assert_eq!(
            (figures.promoted, figures.rolled_back),
            (0, 20),
            "{scenario}"
        );
        let starts = figures.roll_back.unwrap().starts_median;
        assert!(starts <= most_starts_in_half, "{scenario}: {starts}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_on_any_number_of_threads() {
    let study = CanaryStudy {
        scenarios: vec![CanaryScenario::TasksFailAll, CanaryScenario::NeverRegisters],
        n_canaries: 10,
        seed: 3,
        n_first: 10,
        each: 1,
    };
    assert_eq!(study.run(1, &|_, _| ()), study.run(3, &|_, _| ()));
}
