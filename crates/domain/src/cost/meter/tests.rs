//! Tests of the meter: each use, and that no millisecond and no millionth is lost or counted twice.

use proptest::prelude::*;

use super::*;
use crate::time::MINUTE_MS;

/// A moment in minutes; 0 is ten minutes before a full hour.
fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(1_000 * HOUR_MS - 10 * MINUTE_MS + minute * MINUTE_MS)
}

/// 0.001 of a currency for each minute.
fn meter(ended: Option<i64>) -> Meter {
    Meter {
        price: Some(60_000),
        started: at(0),
        charged: at(0),
        ended: ended.map(at),
    }
}

fn run(from: i64, to: i64, reason: EndReason) -> MeteredRun {
    MeteredRun {
        started: at(from),
        resolved: at(to),
        reason,
    }
}

/// The minutes of each use: useful, booting, idle, failed, leaving, lost.
fn minutes(charge: &Charge) -> [i64; 6] {
    let mut sum = Uses::default();
    for uses in charge.hours.values() {
        sum += *uses;
    }
    CostKind::CHARGED.map(|kind| {
        let amount = sum.get(kind);
        assert_eq!(amount.micros, amount.ms / MINUTE_MS * 1_000);
        amount.ms / MINUTE_MS
    })
}

fn split(ended: i64, life: &Life) -> [i64; 6] {
    let charge = meter(Some(ended)).charge(life, at(ended));
    assert!(charge.is_settled);
    minutes(&charge)
}

fn claimed(minute: i64) -> Life {
    Life {
        first_claim: Some(at(minute)),
        ..Life::default()
    }
}

#[test]
fn a_machine_boots_works_idles_and_leaves() {
    let mut life = claimed(3);
    life.runs = vec![
        run(3, 8, EndReason::Completed),
        run(9, 20, EndReason::Failed),
    ];
    life.leaving = Some(at(30));
    assert_eq!(split(32, &life), [16, 3, 11, 0, 2, 0]);
    // The hour ends at minute 10.
    let hours = meter(Some(32)).charge(&life, at(40)).hours;
    let of_hour: Vec<i64> = hours.values().map(|uses| uses.total().micros).collect();
    assert_eq!(of_hour, [10_000, 22_000]);
}

#[test]
fn a_machine_that_never_asked_for_work_has_failed() {
    assert_eq!(split(20, &Life::default()), [0, 0, 0, 20, 0, 0]);
    let stopped = Life {
        leaving: Some(at(15)),
        ..Life::default()
    };
    assert_eq!(split(20, &stopped), [0, 0, 0, 20, 0, 0]);
}

#[test]
fn the_reason_of_a_run_says_whether_it_was_useful_failed_or_lost() {
    for reason in EndReason::ALL {
        let mut life = claimed(0);
        life.runs = vec![run(0, 5, reason)];
        let expected = match reason {
            EndReason::Completed | EndReason::Failed => [5, 0, 0, 0, 0, 0],
            EndReason::ClaimExpired | EndReason::WorkerShutdown => [0, 0, 0, 0, 0, 5],
            EndReason::DeadlineExceeded
            | EndReason::Canceled
            | EndReason::MalformedPayload
            | EndReason::ResourceUnavailable
            | EndReason::InternalError
            | EndReason::IntermittentTask
            | EndReason::Superseded => [0, 0, 0, 5, 0, 0],
        };
        assert_eq!(split(5, &life), expected, "{reason}");
    }
}

#[test]
fn a_run_that_is_known_to_be_lost_only_after_the_end_is_cut_at_the_end() {
    let mut life = claimed(0);
    life.runs = vec![run(2, 25, EndReason::ClaimExpired)];
    assert_eq!(split(6, &life), [0, 0, 2, 0, 0, 4]);
}

#[test]
fn several_tasks_at_once_count_once_and_the_most_useful_decides() {
    let mut life = claimed(0);
    life.runs = vec![
        run(0, 6, EndReason::Completed),
        run(4, 10, EndReason::InternalError),
        run(8, 12, EndReason::WorkerShutdown),
        run(0, 6, EndReason::Failed),
    ];
    assert_eq!(split(12, &life), [6, 0, 0, 2, 0, 4]);
}

#[test]
fn work_after_the_request_to_stop_is_useful() {
    let mut life = claimed(0);
    life.leaving = Some(at(2));
    life.runs = vec![run(1, 5, EndReason::Completed)];
    assert_eq!(split(9, &life), [4, 0, 1, 0, 4, 0]);
}

#[test]
fn only_time_whose_use_is_certain_is_charged() {
    let up_to = |life: &Life, known: i64| {
        let charge = meter(None).charge(life, at(known));
        assert!(!charge.is_settled);
        let total: i64 = minutes(&charge).iter().sum();
        assert_eq!(at(total), charge.charged);
        (total, charge.kind)
    };
    assert_eq!(up_to(&Life::default(), 9), (0, CostKind::Booting));
    assert_eq!(up_to(&claimed(3), 9), (9, CostKind::Idle));
    let mut running = claimed(3);
    running.running_since = Some(at(4));
    assert_eq!(up_to(&running, 9), (4, CostKind::Useful));
    let mut behind = claimed(3);
    behind.lacks_runs = true;
    assert_eq!(up_to(&behind, 9), (0, CostKind::Idle));
    let mut leaving = claimed(3);
    leaving.leaving = Some(at(5));
    assert_eq!(up_to(&leaving, 9), (9, CostKind::Leaving));
    // It has ended, but what happened just before is not known yet.
    let charge = meter(Some(9)).charge(&claimed(3), at(8));
    assert!(!charge.is_settled);
    // A clock that was set back charges nothing.
    assert_eq!(up_to(&claimed(3), -5), (0, CostKind::Idle));
}

#[test]
fn time_after_an_end_that_was_learned_late_is_taken_back() {
    let life = claimed(3);
    let mut running = meter(None);
    let first = running.charge(&life, at(20));
    running.charged = first.charged;
    running.ended = Some(at(12));
    let second = running.charge(&life, at(25));
    assert!(second.is_settled);
    assert_eq!(minutes(&first), [0, 3, 17, 0, 0, 0]);
    assert_eq!(minutes(&second), [0, 0, -8, 0, 0, 0]);
}

#[test]
fn a_price_that_is_not_known_costs_nothing_and_its_time_counts() {
    let mut unpriced = meter(Some(7));
    unpriced.price = None;
    let charge = unpriced.charge(&claimed(0), at(9));
    let total = charge.hours.values().map(|uses| uses.total());
    let total: Vec<Amount> = total.collect();
    assert_eq!(
        total,
        [Amount {
            ms: 7 * MINUTE_MS,
            micros: 0
        }]
    );
}

#[test]
fn the_highest_price_for_the_longest_time_overflows_nothing() {
    let mut dear = meter(None);
    dear.price = Some(i64::MAX);
    let end = dear.started.plus_millis(i64::MAX);
    assert_eq!(cost_between(&dear, dear.started, end), i64::MAX);
}

prop_compose! {
    fn a_run()(from in -5_000_i64..90_000_000, ms in -10_i64..40_000_000, reason in 0_usize..11)
        -> MeteredRun {
        let started = at(0).plus_millis(from);
        MeteredRun {
            started,
            resolved: started.plus_millis(ms),
            reason: EndReason::ALL[reason],
        }
    }
}

proptest! {
    #[test]
    fn the_parts_are_the_whole_however_often_a_machine_is_charged(
        price in 0_i64..100_000_000,
        length in 0_i64..100_000_000,
        runs in proptest::collection::vec(a_run(), 0..8),
        first_claim in proptest::option::of(-1_000_i64..50_000_000),
        leaving in proptest::option::of(0_i64..100_000_000),
        looks in proptest::collection::vec(0_i64..100_000_000, 0..6),
    ) {
        let end = at(0).plus_millis(length);
        let whole = Meter { price: Some(price), started: at(0), charged: at(0), ended: Some(end) };
        let moment = |ms: i64| at(0).plus_millis(ms);
        let life = Life {
            first_claim: first_claim.map(moment),
            leaving: leaving.map(moment),
            runs,
            ..Life::default()
        };
        let at_once = whole.charge(&life, end);
        let mut hours: BTreeMap<Timestamp, Uses> = BTreeMap::new();
        let mut stepwise = Meter { ended: None, ..whole };
        let mut looks: Vec<i64> = looks.into_iter().filter(|look| *look < length).collect();
        looks.sort_unstable();
        let looks = looks.into_iter().map(|look| (None, moment(look)));
        for (ended, known) in looks.chain([(Some(end), end)]) {
            stepwise.ended = ended;
            let charge = stepwise.charge(&life, known);
            stepwise.charged = charge.charged;
            for (hour, uses) in charge.hours {
                *hours.entry(hour).or_default() += uses;
            }
        }
        let is_empty = |uses: &Uses| uses.total() == Amount::default();
        hours.retain(|_, uses| !is_empty(uses));
        let mut expected = at_once.hours;
        expected.retain(|_, uses| !is_empty(uses));
        prop_assert_eq!(&hours, &expected);
        let mut total = Amount::default();
        for uses in hours.values() {
            total += uses.total();
        }
        prop_assert_eq!(total.ms, length);
        let micros = i128::from(price) * i128::from(length) / i128::from(HOUR_MS);
        prop_assert_eq!(i128::from(total.micros), micros);
    }
}

#[test]
fn machines_made_together_are_charged_at_different_times_and_each_at_its_own() {
    let mut by_minute = [0; 5];
    for number in 0..1_000 {
        let id = format!("w{number}");
        let key = WorkerKey::parse("a/b".parse().unwrap(), "g", &id).unwrap();
        let first = next_charge(&key, at(0));
        assert!(at(0) < first && first <= at(5));
        assert_eq!(
            next_charge(&key, first),
            first.plus_millis(CHARGED_EVERY_MS)
        );
        // A charge that is late keeps the phase.
        let late = first.plus_millis(CHARGED_EVERY_MS / 3);
        assert_eq!(next_charge(&key, late), first.plus_millis(CHARGED_EVERY_MS));
        let minute = (first.millis_since(at(0)) - 1) / MINUTE_MS;
        by_minute[usize::try_from(minute).unwrap()] += 1;
    }
    assert!(
        by_minute.iter().all(|count| (150..250).contains(count)),
        "{by_minute:?}"
    );
}
