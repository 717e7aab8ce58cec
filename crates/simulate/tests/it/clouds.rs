//! The clouds: quotas, outages, broken images, boots, interruptions and storms.

use domain::launch::Cause;
use domain::time::{HOUR_MS, SECOND_MS};
use simulate::history::History;
use simulate::offering::{BootTime, Offering, Period, Price, Storm};
use simulate::planner::Observation;
use simulate::scenario::Scenario;
use simulate::simulate;

use crate::common::{Script, boot, offering, order, scenario, tasks};

/// A period in seconds.
fn period(from: i64, to: i64) -> Period {
    Period {
        from_ms: from * SECOND_MS,
        to_ms: to * SECOND_MS,
    }
}

/// The answers to launches: when, how many machines were made, and why not more.
fn answers(script: &Script) -> Vec<(i64, usize, Option<Cause>)> {
    let answers = script.observed.iter().filter_map(|(at, it)| {
        let Observation::Answered { made, refusal, .. } = it else {
            return None;
        };
        Some((*at, made.len(), *refusal))
    });
    answers.collect()
}

/// One machine at each of these seconds.
fn launching_at(seconds: &[i64]) -> Script {
    Script {
        launches: seconds.iter().map(|at| (*at, order(0, 1))).collect(),
        ..Script::launching(0)
    }
}

/// A scenario whose only task is long after everything else, so that it lasts.
fn lasting(offering: Offering) -> Scenario {
    scenario(vec![offering], tasks(&[(20_000, 10)]))
}

#[test]
fn a_quota_counts_machines_until_they_have_ended() {
    let small = Offering {
        quota: Some(1),
        ..offering("small")
    };
    // It registers at 60, stops at 360, and has ended at 420.
    let mut script = launching_at(&[0, 30, 390, 420]);
    script.run(&lasting(small));
    let refused = Some(Cause::Quota);
    let expected = [
        (0, 1, None),
        (30, 0, refused),
        (390, 0, refused),
        (420, 1, None),
    ];
    assert_eq!(answers(&script), expected);
}

#[test]
fn in_an_outage_launches_are_refused_and_machines_go_on() {
    let flaky = Offering {
        outages: vec![period(30, 90), period(120, 121)],
        ..offering("flaky")
    };
    let mut script = launching_at(&[0, 30, 60, 90, 120]);
    let history = script.run(&lasting(flaky));
    let refused = Some(Cause::Capacity);
    let expected = [
        (0, 1, None),
        (30, 0, refused),
        (60, 0, refused),
        (90, 1, None),
        (120, 0, refused),
    ];
    assert_eq!(answers(&script), expected);
    assert_eq!(history.workers[0].registered_ms, Some(60_000));
}

#[test]
fn a_cloud_that_fails_late_accepts_and_gives_up_after_a_minute() {
    let flaky = Offering {
        outages: vec![period(0, 1_000)],
        fails_late: true,
        quota: Some(50),
        ..offering("flaky")
    };
    let mut script = Script::launching(50);
    script.launches.push((120, order(0, 50)));
    let history = script.run(&lasting(flaky));
    // Machines that failed do not count against the quota.
    assert_eq!(answers(&script), [(0, 50, None), (120, 50, None)]);
    let failed = script.seconds(|it| matches!(it, Observation::FailedLater { .. }));
    let first = &failed[..50];
    assert!(first.iter().all(|at| (30..=90).contains(at)), "{first:?}");
    assert!(first.iter().any(|at| *at < 45) && first.iter().any(|at| *at > 75));
    assert!(history.workers.iter().all(|worker| worker.bill.is_none()));
    assert!(
        history
            .workers
            .iter()
            .all(|worker| worker.registered_ms.is_none())
    );
}

#[test]
fn machines_with_a_broken_image_are_paid_until_they_are_given_up() {
    let broken = Offering {
        broken_images: vec![period(0, 30)],
        ..offering("broken")
    };
    let mut script = launching_at(&[0, 30]);
    let history = script.run(&lasting(broken));
    let given_up = script.seconds(|it| matches!(it, Observation::NeverRegistered { .. }));
    assert_eq!(given_up, [1_800]);
    let bill = history.workers[0].bill.unwrap();
    assert!((bill.dollars - 1_820.0 / 3_600.0).abs() < 1e-12);
    assert_eq!(history.workers[1].registered_ms, Some(90_000));
}

#[test]
fn boots_vary_around_their_mean() {
    let varied = Offering {
        boot: BootTime {
            mean_seconds: 180.0,
            sigma: 0.25,
        },
        ..offering("varied")
    };
    let history = Script::launching(2_000).run(&lasting(varied));
    let boots = history
        .workers
        .iter()
        .map(|it| it.registered_ms.unwrap() as f64);
    let logs: Vec<f64> = boots.clone().map(f64::ln).collect();
    let mean = boots.sum::<f64>() / 2_000.0 / 1_000.0;
    assert!((mean - 180.0).abs() < 3.0, "{mean}");
    let log_mean = logs.iter().sum::<f64>() / 2_000.0;
    let variance = logs.iter().map(|log| (log - log_mean).powi(2)).sum::<f64>() / 2_000.0;
    assert!((variance.sqrt() - 0.25).abs() < 0.01, "{variance}");
}

#[test]
fn interrupted_tasks_wait_at_the_head_of_the_queue_and_begin_anew() {
    // The storm takes the only machine between 300 and 450.
    let stormy = Offering {
        storms: vec![Storm {
            at_ms: 300_000,
            share: 1.0,
        }],
        ..offering("stormy")
    };
    let scenario = scenario(vec![stormy], tasks(&[(0, 1_000), (10, 1_000)]));
    let mut script = launching_at(&[0, 600]);
    let history = script.run(&scenario);
    let interrupted = script.seconds(|it| matches!(it, Observation::Interrupted { .. }));
    let [at] = interrupted[..] else {
        panic!("{interrupted:?}");
    };
    assert!((300..=450).contains(&at));
    assert_eq!(history.n_interrupted, 1);
    // It is paid until then, without a minute for stopping.
    let bill = history.workers[0].bill.unwrap();
    assert_eq!(bill.until_ms / SECOND_MS, at);
    assert_eq!(history.workers[0].useful_ms, 0);
    let ends = history
        .tasks
        .iter()
        .map(|task| task.end_ms.unwrap() / SECOND_MS);
    assert_eq!(ends.collect::<Vec<_>>(), [1_660, 2_660]);
    assert_eq!((history.tasks[0].n_runs, history.tasks[1].n_runs), (2, 1));
    assert_eq!(history.tasks[0].first_start_ms, Some(60_000));
}

#[test]
fn a_storm_takes_a_share_of_the_machines_of_its_offering() {
    let stormy = Offering {
        storms: vec![Storm {
            at_ms: 100_000,
            share: 0.8,
        }],
        ..offering("stormy")
    };
    let scenario = scenario(vec![stormy, offering("calm")], tasks(&[(900, 10)]));
    let mut script = Script::launching(1_000);
    script.launches.push((0, order(1, 100)));
    // Machines of which the launch is later are not concerned, even while the storm lasts.
    script.launches.push((120, order(0, 100)));
    let history = script.run(&scenario);
    let taken = script.seconds(|it| matches!(it, Observation::Interrupted { .. }));
    assert!((760..=840).contains(&taken.len()), "{}", taken.len());
    assert!(taken.iter().all(|at| (100..=250).contains(at)));
    let taken_of = |offering, launched_ms| {
        let workers = history.workers.iter();
        let workers = workers.filter(|it| (it.offering, it.launched_ms) == (offering, launched_ms));
        workers.filter(|it| it.ended_ms.unwrap() <= 250_000).count()
    };
    assert_eq!(taken_of(0, 0), taken.len());
    assert_eq!((taken_of(1, 0), taken_of(0, 120_000)), (0, 0));
}

#[test]
fn machines_are_taken_back_as_often_as_the_offering_says() {
    let risky = Offering {
        interruptions_per_hour: 2.0,
        ..offering("risky")
    };
    let mut script = Script {
        stops_idle: false,
        ..Script::launching(2_000)
    };
    let history = script.run(&lasting(risky));
    let lives = history.workers.iter().map(|worker| {
        (worker.ended_ms.unwrap() - worker.registered_ms.unwrap()) as f64 / HOUR_MS as f64
    });
    let mean = lives.sum::<f64>() / 2_000.0;
    assert!((mean - 0.5).abs() < 0.03, "{mean}");
}

#[test]
fn a_machine_costs_what_its_price_is_while_it_exists() {
    let dear = Offering {
        price: Price::steps(1.0, [(60_000, 10.0)]),
        ..offering("dear")
    };
    let history = Script::launching(1).run(&lasting(dear));
    // A minute for 1 $ an hour, then 320 s for 10 $ an hour: idle from 60 to 360, and 20 s more.
    let expected = (60.0 + 320.0 * 10.0) / 3_600.0;
    assert!((history.workers[0].bill.unwrap().dollars - expected).abs() < 1e-12);
}

/// The boots and ends of the machines of a scenario with chance in everything.
fn fates(history: &History) -> Vec<(i64, Option<i64>)> {
    let fates = history.workers.iter().map(|worker| {
        let boot = worker.registered_ms.map(|at_ms| at_ms - worker.launched_ms);
        (worker.launched_ms, boot)
    });
    fates.collect()
}

#[test]
fn the_fate_of_the_nth_machine_of_an_offering_does_not_depend_on_the_planner() {
    let varied = |name| Offering {
        boot: BootTime {
            mean_seconds: 200.0,
            sigma: 0.5,
        },
        ..offering(name)
    };
    let scenario = scenario(vec![varied("a"), varied("b")], tasks(&[(20_000, 10)]));
    let at_once = Script::launching(5).run(&scenario);
    let mut script = launching_at(&[0, 30, 60, 900, 930]);
    script.launches.push((45, order(1, 3)));
    script.launches.push((30, order(1, 1)));
    let one_by_one = script.run(&scenario);
    let boots = |history: &History| {
        let of_first = history.workers.iter().zip(fates(history));
        let of_first = of_first.filter(|(worker, _)| worker.offering == 0);
        of_first
            .map(|(_, (_, boot))| boot.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(boots(&at_once), boots(&one_by_one));
    let mut distinct = boots(&at_once);
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
    let other_seed = simulate(&scenario, &mut Script::launching(5), 2);
    assert_ne!(boots(&at_once), boots(&other_seed));
}

#[test]
fn equal_boots_are_equal() {
    let exact = Offering {
        boot: boot(20.0),
        ..offering("exact")
    };
    let history = Script::launching(20).run(&lasting(exact));
    assert!(
        fates(&history)
            .iter()
            .all(|fate| *fate == (0, Some(20_000)))
    );
}
