//! A machine with a wrong clock, and the clock of its database.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::time::{Clock, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use engine::database_clock::{DatabaseClock, skew_ms, skew_problem};
use store::probe::DatabaseTime;
use testing::Chance;

/// 2026-09-21T14:13:20.000Z
const START_MS: i64 = 1_790_000_000_000;

/// Smaller steps are normal corrections by a time service.
const MAX_STEP_MS: i64 = 2_000;
/// A step is reported this long.
const STEP_SHOWN_MS: i64 = HOUR_MS;
/// People are warned of greater differences.
const MAX_SKEW_MS: i64 = 5_000;

/// A machine: how far its time of day is ahead of the database's, and its monotonic clock.
struct Machine {
    database_ms: AtomicI64,
    ahead_ms: AtomicI64,
    steady_ms: AtomicI64,
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        self.database()
            .plus_millis(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn steady_ms(&self) -> i64 {
        self.steady_ms.load(Ordering::SeqCst)
    }
}

impl Machine {
    fn new(ahead_ms: i64) -> (Arc<Self>, DatabaseClock) {
        let machine = Arc::new(Self {
            database_ms: AtomicI64::new(START_MS),
            ahead_ms: AtomicI64::new(ahead_ms),
            steady_ms: AtomicI64::new(77),
        });
        let clock = DatabaseClock::new(Arc::clone(&machine) as _);
        (machine, clock)
    }

    fn database(&self) -> Timestamp {
        Timestamp::from_millis(self.database_ms.load(Ordering::SeqCst))
    }

    fn pass_ms(&self, millis: i64) {
        self.steady_ms.fetch_add(millis, Ordering::SeqCst);
        self.database_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// As a suspended machine sees it: its monotonic clock stands.
    fn is_suspended_for_ms(&self, millis: i64) {
        self.database_ms.fetch_add(millis, Ordering::SeqCst);
    }

    fn set_by_ms(&self, millis: i64) {
        self.ahead_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// The clock of the database is set, and that of the machine stays.
    fn set_database_by_ms(&self, millis: i64) {
        self.database_ms.fetch_add(millis, Ordering::SeqCst);
        self.ahead_ms.fetch_sub(millis, Ordering::SeqCst);
    }

    /// Takes this long, half of it before the database reads its clock.
    async fn measure(&self, clock: &DatabaseClock, took_ms: i64) {
        let reading = async {
            self.pass_ms(took_ms / 2);
            let now = self.database();
            self.pass_ms(took_ms - took_ms / 2);
            Ok::<_, Infallible>(exactly(now))
        };
        clock.measure(reading).await.unwrap();
    }
}

fn exactly(now: Timestamp) -> DatabaseTime {
    DatabaseTime {
        earliest: now,
        latest: now,
    }
}

#[tokio::test]
async fn a_wrong_time_of_day_changes_nothing_whenever_it_is_set() {
    for ahead_ms in [0, 2 * HOUR_MS, -2 * HOUR_MS, 8 * HOUR_MS, -8 * HOUR_MS] {
        let (machine, clock) = Machine::new(ahead_ms);
        assert!(clock.doubt().unwrap().contains("not known yet"));
        machine.measure(&clock, 0).await;
        for step_ms in [0, 2 * HOUR_MS, -2 * HOUR_MS, -8 * HOUR_MS, 8 * HOUR_MS] {
            machine.set_by_ms(step_ms);
            assert_eq!(clock.now(), machine.database(), "{ahead_ms} {step_ms}");
            assert_eq!(clock.doubt().is_some(), step_ms != 0);
            machine.pass_ms(3 * SECOND_MS);
            assert_eq!(clock.now(), machine.database());
            machine.measure(&clock, 0).await;
            assert_eq!((clock.now(), clock.doubt()), (machine.database(), None));
        }
        // The time has passed evenly all along, and people hear of the difference.
        assert_eq!(clock.even_ms(), i64::MAX);
        let hours = ahead_ms.abs() / HOUR_MS;
        let warnings = clock.warnings();
        assert_eq!(warnings.len(), usize::from(hours > 0), "{warnings:?}");
        let said = format!("is {} s ", hours * 3_600);
        assert!(
            warnings.iter().all(|one| one.contains(&said)),
            "{warnings:?}"
        );
    }
}

#[tokio::test]
async fn a_small_step_of_the_time_of_day_is_a_correction_and_a_larger_one_a_doubt() {
    for (step_ms, is_doubted) in [
        (MAX_STEP_MS, false),
        (MAX_STEP_MS + 1, true),
        (-MAX_STEP_MS, false),
        (-MAX_STEP_MS - 1, true),
    ] {
        let (machine, clock) = Machine::new(0);
        machine.measure(&clock, 0).await;
        machine.set_by_ms(step_ms);
        let mut doubts = clock.doubts();
        assert_eq!(clock.doubt().is_some(), is_doubted, "{step_ms}");
        assert_eq!(*doubts.borrow_and_update(), is_doubted, "{step_ms}");
        let woken = tokio::time::timeout(std::time::Duration::ZERO, clock.wakeup.notified());
        assert_eq!(
            woken.await.is_ok(),
            is_doubted,
            "a doubt asks for a measurement"
        );
        machine.measure(&clock, 0).await;
        assert!(!*doubts.borrow_and_update());
    }
}

#[tokio::test]
async fn a_suspended_machine_doubts_its_time_and_then_has_the_databases() {
    let (machine, clock) = Machine::new(0);
    machine.measure(&clock, 0).await;
    machine.is_suspended_for_ms(2 * HOUR_MS);
    assert!(clock.doubt().unwrap().contains("was suspended"));
    // The database cannot be reached at first.
    let away = clock.measure(async { Err::<DatabaseTime, _>("away") });
    assert_eq!(away.await, Err("away"));
    assert!(clock.doubt().is_some());
    machine.measure(&clock, 0).await;
    assert_eq!((clock.now(), clock.doubt()), (machine.database(), None));
    assert_eq!(clock.even_ms(), 0);
    machine.pass_ms(MINUTE_MS);
    assert_eq!(clock.even_ms(), MINUTE_MS);
    assert_eq!(
        clock.warnings(),
        ["the clock was set forward by 7200 s, or this machine was suspended"]
    );
    machine.pass_ms(STEP_SHOWN_MS);
    assert_eq!(clock.warnings(), Vec::<String>::new());
}

#[tokio::test]
async fn a_machine_suspended_during_a_measurement_measures_again() {
    for before_reading in [true, false] {
        let (machine, clock) = Machine::new(0);
        machine.measure(&clock, 0).await;
        let reading = async {
            if before_reading {
                machine.is_suspended_for_ms(HOUR_MS);
            }
            let now = machine.database();
            if !before_reading {
                machine.is_suspended_for_ms(HOUR_MS);
            }
            Ok::<_, Infallible>(exactly(now))
        };
        clock.measure(reading).await.unwrap();
        assert!(*clock.doubts().borrow(), "{before_reading}");
        assert!(clock.doubt().is_some());
        machine.measure(&clock, 0).await;
        assert_eq!((clock.now(), clock.doubt()), (machine.database(), None));
    }
}

#[tokio::test]
async fn a_step_of_the_databases_clock_is_followed_and_remembered() {
    for step_ms in [2 * HOUR_MS, -2 * HOUR_MS, 8 * HOUR_MS, -8 * HOUR_MS] {
        let (machine, clock) = Machine::new(0);
        machine.measure(&clock, 0).await;
        machine.set_database_by_ms(step_ms);
        machine.measure(&clock, 0).await;
        assert_eq!(clock.now(), machine.database());
        assert_eq!(clock.even_ms(), 0);
        let warnings = clock.warnings();
        let said = [
            if step_ms < 0 {
                "set back by"
            } else {
                "set forward by"
            },
            "that of the database",
        ];
        assert!(
            warnings[0].contains(said[0]) && warnings[1].contains(said[1]),
            "{warnings:?}"
        );
    }
}

#[tokio::test]
async fn a_reading_in_full_seconds_moves_no_time_that_agrees() {
    let (machine, clock) = Machine::new(0);
    for _ in 0..50 {
        machine.pass_ms(SECOND_MS / 7);
        let second = machine.database().start_of(SECOND_MS);
        let latest = second.plus_millis(SECOND_MS - 1);
        let earliest = second;
        let reading = async { Ok::<_, Infallible>(DatabaseTime { earliest, latest }) };
        clock.measure(reading).await.unwrap();
        assert_eq!(clock.now(), machine.database());
    }
}

#[test]
fn the_difference_of_clocks_excludes_the_time_of_the_request() {
    let at = |millis: i64| Timestamp::from_millis(START_MS + millis);
    let (before, after) = (at(0), at(300));
    for (theirs_ms, skew) in [
        (0, 0),
        (300, 0),
        (-1_000, 0),
        (-1_001, 1),
        (301, -1),
        (-HOUR_MS, HOUR_MS - 1_000),
        (HOUR_MS, 300 - HOUR_MS),
    ] {
        let theirs = DatabaseTime {
            earliest: at(theirs_ms),
            latest: at(theirs_ms + 1_000),
        };
        assert_eq!(skew_ms(before, after, theirs), skew, "{theirs_ms}");
    }
    assert_eq!(skew_problem(MAX_SKEW_MS), None);
    assert_eq!(skew_problem(-MAX_SKEW_MS), None);
    let said = skew_problem(-MAX_SKEW_MS - 1).unwrap();
    assert!(said.contains("5.001 s behind"), "{said}");
}

/// Whatever happens: after a measurement the time differs from the database's by no more than the
/// measurement took, and until the next one by no more than the clocks moved without a sign. A
/// suspended machine is in doubt.
#[tokio::test]
async fn the_time_is_that_of_the_database_or_in_doubt() {
    for seed in 0..500 {
        let chance = Chance::new(seed);
        let (machine, clock) = Machine::new(chance.between(-8 * HOUR_MS, 8 * HOUR_MS));
        machine.measure(&clock, 0).await;
        let mut unseen_ms = 0;
        let mut history = Vec::new();
        for _ in 0..40 {
            let step_ms = chance.between(-8 * HOUR_MS, 8 * HOUR_MS);
            let (small_ms, took_ms) = (step_ms % SECOND_MS, step_ms.abs() % (10 * SECOND_MS));
            let n_fault = chance.below(7);
            history.push((n_fault, step_ms));
            match n_fault {
                0 => machine.pass_ms(step_ms.abs()),
                1 => machine.set_by_ms(step_ms),
                2 => {
                    // Both clocks of the machine drift.
                    machine.steady_ms.fetch_add(small_ms, Ordering::SeqCst);
                    machine.set_by_ms(small_ms);
                    unseen_ms += small_ms.abs();
                }
                3 => {
                    machine.set_database_by_ms(step_ms);
                    unseen_ms += step_ms.abs();
                }
                4 => {
                    machine.is_suspended_for_ms(step_ms.abs());
                    let is_long = step_ms.abs() > 2 * MAX_STEP_MS;
                    assert!(!is_long || clock.doubt().is_some(), "{seed} {history:?}");
                    unseen_ms += step_ms.abs();
                }
                _ => {
                    machine.measure(&clock, took_ms).await;
                    assert_eq!(clock.doubt(), None, "{seed} {history:?}");
                    unseen_ms = took_ms;
                }
            }
            let off_ms = clock.now().millis_since(machine.database()).abs();
            assert!(off_ms <= unseen_ms, "{seed} {off_ms} {history:?}");
        }
    }
}
