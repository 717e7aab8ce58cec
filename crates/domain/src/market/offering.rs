//! The memory of an offering: of one type of machine at one place of one provider.

use serde::{Deserialize, Serialize};

use super::average::{Average, decay};
use super::breaker::{Breaker, BreakerState, Trouble};
use crate::id::OfferingId;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

/// A machine is expected to register after this time before any has.
pub const USUAL_BOOT_MS: f64 = 180_000.0;
const USUAL_DEVIATION_MS: f64 = 90_000.0;
/// The newest boot counts at least this much in the mean.
const BOOT_STEP: f64 = 0.05;
/// Registrations and failures count half after this time.
const HALF_LIFE_MS: i64 = HOUR_MS;
/// Interruptions and hours of work count half after this time: storms come every few hours.
const HAZARD_HALF_LIFE_MS: i64 = 8 * HOUR_MS;
/// This many registrations are assumed, so that one failure is not all that is known.
const ASSUMED_REGISTRATIONS: f64 = 4.0;
const ASSUMED_INTERRUPTIONS: f64 = 0.02;
const ASSUMED_HOURS: f64 = 2.0;
/// Machines that may start at the same time after some have registered again.
const FIRST_WINDOW: u32 = 8;
/// Machines that may start at the same time after a quota was used up.
const QUOTA_WINDOW: u32 = 2;
/// A window above this is no limit.
const WIDE_WINDOW: u32 = 1_000;
/// Boots that are needed to know what is late.
const ENOUGH_BOOTS: u64 = 3;
/// No machine is late earlier after its launch.
const LEAST_LATENESS_MS: f64 = 2.0 * MINUTE_MS as f64;
/// A machine whose row is younger is not late: the row is made soon after the launch.
pub const NEVER_LATE_MS: i64 = 90 * SECOND_MS;
/// No machine is given up earlier.
const LEAST_PATIENCE_MS: f64 = 4.0 * MINUTE_MS as f64;
/// Machines that do not register are given up after this time at the latest, unless their pool has
/// another limit.
pub const USUAL_TIMEOUT_MS: f64 = 30.0 * MINUTE_MS as f64;
/// A machine that exists for this long was not refused late.
pub const SURVIVAL_MS: i64 = 100 * SECOND_MS;

/// The memory of an offering, as it is stored and as a plan uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OfferingMemory {
    /// The time from launch to registration, in milliseconds.
    boot: Average,
    counts: Counts,
    pub breaker: Breaker,
    /// Machines that one pool may have starting at a time; `None`: no limit.
    pub window: Option<u32>,
    /// Different for each offering.
    salt: u64,
}

/// Counts that are forgotten with time; valid at `as_of`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Counts {
    registered: f64,
    never_registered: f64,
    interruptions: f64,
    worker_hours: f64,
    as_of: Option<Timestamp>,
}

/// An event of machines of an offering.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum OfferingNews {
    /// A launch was decided.
    Asked,
    /// The provider accepted a launch.
    Accepted,
    Failed {
        trouble: Trouble,
    },
    /// The provider accepted a launch, and could not make the machine.
    FailedLate {
        trouble: Trouble,
    },
    /// A machine registered, this long after its launch.
    #[serde(rename_all = "camelCase")]
    Registered {
        after_ms: i64,
    },
    /// A machine that had been accepted was there for [`SURVIVAL_MS`].
    Survived,
    /// A running machine was taken away by the provider.
    Interrupted,
    /// Workers ran for this many hours in total.
    Ran {
        hours: f64,
    },
}

impl OfferingMemory {
    pub fn new(id: &OfferingId) -> Self {
        // FNV-1a: the same on every machine.
        let salt = id
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self {
            salt,
            ..Self::default()
        }
    }

    pub fn observe(&mut self, news: OfferingNews, now: Timestamp) {
        self.counts.age(now);
        match news {
            OfferingNews::Asked => self.breaker.ask(now),
            OfferingNews::Accepted => {
                let is_enough =
                    !self.breaker.fails_late && self.breaker.trouble != Some(Trouble::Registration);
                if is_enough && self.breaker.accept(now) {
                    self.widen(2, 0);
                }
            }
            OfferingNews::Failed { trouble } => self.fail(trouble, now),
            OfferingNews::FailedLate { trouble } => {
                self.fail(trouble, now);
                self.breaker.fails_late = true;
                self.window = Some(1);
            }
            OfferingNews::Registered { after_ms } => {
                self.counts.registered += 1.0;
                self.boot.add(after_ms.max(0) as f64, BOOT_STEP);
                let launched = now.plus_millis(-after_ms.max(0));
                // Whether a quota has room again is shown by launches.
                let is_proof = self.breaker.register(launched, now);
                if is_proof && self.breaker.trouble != Some(Trouble::Quota) {
                    self.widen(4, FIRST_WINDOW);
                }
            }
            OfferingNews::Survived => {
                if self.breaker.fails_late {
                    self.widen(2, 0);
                    self.breaker.close();
                }
            }
            OfferingNews::Interrupted => self.counts.interruptions += 1.0,
            OfferingNews::Ran { hours } => self.counts.worker_hours += hours.max(0.0),
        }
    }

    /// Lets more machines start at a time, if their number is limited.
    fn widen(&mut self, factor: u32, least: u32) {
        let window = self.window.filter(|window| *window < WIDE_WINDOW);
        self.window = window.map(|window| window.saturating_mul(factor).max(least));
    }

    fn fail(&mut self, trouble: Trouble, now: Timestamp) {
        match trouble {
            Trouble::Vanished => {
                self.breaker.fails_late = true;
                self.window = Some(1);
            }
            Trouble::Registration => {
                self.counts.never_registered += 1.0;
                self.window = Some(1);
            }
            // Machines become free one by one.
            Trouble::Quota => self.window = Some(QUOTA_WINDOW),
            Trouble::Capacity
            | Trouble::Configuration
            | Trouble::Throttled
            | Trouble::Credentials
            | Trouble::Unavailable
            | Trouble::Lost => {}
        }
        self.breaker.fail(trouble, self.salt, now);
    }

    pub fn state(&self, now: Timestamp) -> BreakerState {
        self.breaker.state(now)
    }

    /// Whether a machine can be had there now.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        matches!(
            self.state(now),
            BreakerState::Closed | BreakerState::HalfOpen
        )
    }

    /// Whether it gives no machines because a quota is used up.
    pub fn lacks_quota(&self) -> bool {
        self.breaker.failures_in_a_row > 0 && self.breaker.trouble == Some(Trouble::Quota)
    }

    /// The expected time from launch to registration in milliseconds. `promised` counts until some
    /// have registered.
    pub fn boot_ms(&self, promised: Option<i64>) -> f64 {
        match (self.boot.count, promised) {
            (0, Some(promised)) => (promised as f64).max(1.0),
            (0, None) => USUAL_BOOT_MS,
            _ => self.boot.mean.max(1.0),
        }
    }

    /// The same, if anything is known about it.
    pub fn known_boot_ms(&self, promised: Option<i64>) -> Option<i64> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an average of times that were milliseconds"
        )]
        let learned = (self.boot.count > 0).then(|| self.boot.mean.max(1.0) as i64);
        learned.or(promised)
    }

    fn deviation_ms(&self) -> f64 {
        match self.boot.count {
            0 => USUAL_DEVIATION_MS,
            _ => self.boot.deviation,
        }
    }

    /// A machine that has been starting for longer than this is not counted on.
    pub fn late_after_ms(&self, promised: Option<i64>) -> f64 {
        let boot = self.boot_ms(promised);
        let spread = boot + 3.0 * self.deviation_ms();
        spread.max(2.0 * boot).max(LEAST_LATENESS_MS)
    }

    /// A machine that has been starting for longer than this is given up. Never later than `limit`.
    ///
    /// After failed boots, the machines that are tried have the entire limit until some boots are
    /// known: they may only be slow.
    pub fn give_up_after_ms(&self, limit: f64, promised: Option<i64>) -> f64 {
        let patience = if self.boot.count >= ENOUGH_BOOTS {
            self.boot.mean + 5.0 * self.deviation_ms()
        } else if self.breaker.trouble == Some(Trouble::Registration) {
            limit
        } else {
            self.late_after_ms(promised).max(limit / 2.0)
        };
        patience.max(LEAST_PATIENCE_MS).min(limit)
    }

    /// The same without a limit of the pool.
    pub fn usual_patience_ms(&self) -> f64 {
        self.give_up_after_ms(USUAL_TIMEOUT_MS, None)
    }

    /// The share of machines that register. `promised` by the provider counts for the machines that
    /// are assumed.
    pub fn reliability(&self, promised: Option<f64>, now: Timestamp) -> f64 {
        let counts = self.counts.at(now);
        let assumed = ASSUMED_REGISTRATIONS * promised_share(promised);
        let registered = counts.registered + assumed;
        registered / (counts.registered + counts.never_registered + ASSUMED_REGISTRATIONS)
    }

    /// Whether an interruption was seen and is not forgotten.
    pub fn was_interrupted(&self, now: Timestamp) -> bool {
        self.counts.at(now).interruptions >= ASSUMED_INTERRUPTIONS
    }

    /// The share of machines that register, in proportion to what the provider promised. A promise
    /// alone is kept, however low it is.
    pub fn kept_promise(&self, promised: Option<f64>, now: Timestamp) -> f64 {
        self.reliability(promised, now) / promised_share(promised)
    }

    /// Interruptions in an hour of one worker.
    pub fn hazard(&self, now: Timestamp) -> f64 {
        let counts = self.counts.at(now);
        (counts.interruptions + ASSUMED_INTERRUPTIONS) / (counts.worker_hours + ASSUMED_HOURS)
    }
}

/// A provider that promises nothing means all machines.
fn promised_share(promised: Option<f64>) -> f64 {
    promised.unwrap_or(1.0).clamp(0.01, 1.0)
}

impl Counts {
    fn at(mut self, now: Timestamp) -> Self {
        self.age(now);
        self
    }

    fn age(&mut self, now: Timestamp) {
        let since = self.as_of.unwrap_or(now);
        let passed_ms = now.millis_since(since);
        let left = decay(passed_ms, HALF_LIFE_MS);
        self.registered *= left;
        self.never_registered *= left;
        let left = decay(passed_ms, HAZARD_HALF_LIFE_MS);
        self.interruptions *= left;
        self.worker_hours *= left;
        // A moment far ahead was written by a clock that was set, and would stop forgetting.
        let is_ahead = since.millis_since(now) > MINUTE_MS;
        self.as_of = Some(if is_ahead { now } else { since.max(now) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    fn new() -> OfferingMemory {
        OfferingMemory::new(&OfferingId::new(&"cloud".parse().unwrap(), "west m5.large"))
    }

    fn failed(trouble: Trouble) -> OfferingNews {
        OfferingNews::Failed { trouble }
    }

    /// Registered after this many seconds.
    fn registered(seconds: i64) -> OfferingNews {
        OfferingNews::Registered {
            after_ms: seconds * SECOND_MS,
        }
    }

    #[test]
    fn boots_are_expected_as_promised_until_some_are_known() {
        let mut memory = new();
        assert_eq!(memory.boot_ms(None), USUAL_BOOT_MS);
        assert_eq!(memory.boot_ms(Some(20_000)), 20_000.0);
        memory.observe(registered(40), at(0));
        assert_eq!(memory.boot_ms(Some(20_000)), 40_000.0);
        // At least two minutes, twice the boot, and three deviations more than the boot.
        assert_eq!(memory.late_after_ms(None), 120_000.0);
        assert_eq!(new().late_after_ms(None), 450_000.0);
    }

    #[test]
    fn a_machine_is_given_up_early_when_boots_are_known() {
        let mut memory = new();
        assert_eq!(memory.give_up_after_ms(1_800_000.0, None), 900_000.0);
        for _ in 0..3 {
            memory.observe(registered(100), at(0));
        }
        let patience = memory.give_up_after_ms(1_800_000.0, None);
        assert_eq!(patience, LEAST_PATIENCE_MS);
        for _ in 0..20 {
            memory.observe(registered(900), at(0));
        }
        let patience = memory.give_up_after_ms(1_800_000.0, None);
        assert!(
            patience > 900_000.0 && patience <= 1_800_000.0,
            "{patience}"
        );
        assert_eq!(memory.give_up_after_ms(600_000.0, None), 600_000.0);
    }

    #[test]
    fn a_machine_of_an_unknown_offering_has_time_for_an_ordinary_or_promised_boot() {
        let memory = new();
        // Half of these limits would be less than a boot.
        assert_eq!(memory.give_up_after_ms(300_000.0, None), 300_000.0);
        assert_eq!(memory.give_up_after_ms(720_000.0, None), 450_000.0);
        let promised = memory.give_up_after_ms(1_800_000.0, Some(720_000));
        assert_eq!(promised, 1_440_000.0);
    }

    #[test]
    fn the_machine_that_is_tried_after_failed_boots_has_the_entire_limit() {
        let mut memory = new();
        memory.observe(failed(Trouble::Registration), at(0));
        assert_eq!(memory.give_up_after_ms(1_800_000.0, None), 1_800_000.0);
        // Its boots may take longer than half of the limit.
        for _ in 0..3 {
            memory.observe(registered(1_200), at(1_300));
        }
        let patience = memory.give_up_after_ms(1_800_000.0, None);
        assert!(patience >= 1_200_000.0, "{patience}");
    }

    #[test]
    fn failed_boots_lower_the_reliability_and_are_forgotten() {
        let mut memory = new();
        assert_eq!(memory.reliability(None, at(0)), 1.0);
        assert_eq!(memory.reliability(Some(0.5), at(0)), 0.5);
        for _ in 0..4 {
            memory.observe(failed(Trouble::Registration), at(0));
        }
        assert_eq!(memory.reliability(None, at(0)), 0.5);
        assert_eq!(memory.kept_promise(Some(0.5), at(0)), 0.5);
        assert_eq!(new().kept_promise(Some(0.5), at(0)), 1.0);
        assert_eq!(memory.window, Some(1));
        assert!((memory.reliability(None, at(3_600)) - 4.0 / 6.0).abs() < 1e-9);
        // A clock that steps back forgets nothing.
        assert_eq!(memory.reliability(None, at(-3_600)), 0.5);
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_while_does_not_stop_forgetting() {
        let mut memory = new();
        memory.observe(OfferingNews::Asked, at(1_000_000));
        for _ in 0..4 {
            memory.observe(failed(Trouble::Registration), at(0));
        }
        assert_eq!(memory.reliability(None, at(0)), 0.5);
        assert!((memory.reliability(None, at(3_600)) - 4.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn after_failed_boots_the_window_opens_with_registrations() {
        let mut memory = new();
        memory.observe(failed(Trouble::Registration), at(0));
        let mut windows = Vec::new();
        for _ in 0..6 {
            memory.observe(registered(100), at(500));
            windows.push(memory.window);
        }
        let expected = [Some(8), Some(32), Some(128), Some(512), Some(2_048), None];
        assert_eq!(windows, expected);
        assert_eq!(memory.state(at(500)), BreakerState::Closed);
    }

    #[test]
    fn acceptance_closes_the_breaker_unless_machines_fail_later() {
        let mut silent = new();
        silent.observe(failed(Trouble::Registration), at(0));
        silent.observe(OfferingNews::Asked, at(100));
        silent.observe(OfferingNews::Accepted, at(101));
        let state = silent.state(at(102));
        assert!(matches!(state, BreakerState::OnTrial { .. }), "{state:?}");
        silent.observe(registered(90), at(190));
        assert_eq!(silent.state(at(190)), BreakerState::Closed);

        let mut memory = new();
        memory.observe(failed(Trouble::Capacity), at(0));
        memory.observe(OfferingNews::Asked, at(100));
        memory.observe(OfferingNews::Accepted, at(101));
        assert_eq!(memory.state(at(101)), BreakerState::Closed);

        memory.observe(failed(Trouble::Vanished), at(200));
        memory.observe(OfferingNews::Asked, at(300));
        memory.observe(OfferingNews::Accepted, at(301));
        assert!(matches!(
            memory.state(at(302)),
            BreakerState::OnTrial { .. }
        ));
        memory.observe(OfferingNews::Survived, at(400));
        assert_eq!(memory.state(at(400)), BreakerState::Closed);
        assert_eq!(memory.window, Some(2));
    }

    #[test]
    fn an_accepted_launch_proves_nothing_after_one_that_failed_later() {
        let mut memory = new();
        let late = OfferingNews::FailedLate {
            trouble: Trouble::Quota,
        };
        memory.observe(late, at(0));
        assert!(memory.lacks_quota() && !memory.is_usable(at(1)));
        memory.observe(OfferingNews::Asked, at(100));
        memory.observe(OfferingNews::Accepted, at(101));
        let state = memory.state(at(102));
        assert!(matches!(state, BreakerState::OnTrial { .. }), "{state:?}");
        assert_eq!(memory.window, Some(1));
        memory.observe(OfferingNews::Survived, at(400));
        assert_eq!(memory.state(at(400)), BreakerState::Closed);
    }

    #[test]
    fn after_a_full_quota_few_machines_are_asked_for_at_a_time() {
        let mut memory = new();
        memory.observe(failed(Trouble::Quota), at(0));
        assert!(memory.lacks_quota() && !memory.is_usable(at(1)));
        let mut windows = vec![memory.window];
        for seconds in 100..103 {
            memory.observe(OfferingNews::Accepted, at(seconds));
            windows.push(memory.window);
        }
        assert_eq!(windows, [Some(2), Some(4), Some(8), Some(16)]);
        assert!(!memory.lacks_quota() && memory.is_usable(at(103)));
    }

    #[test]
    fn a_machine_that_was_made_before_a_refusal_does_not_close_the_breaker() {
        for (trouble, closes) in [
            (Trouble::Capacity, false),
            (Trouble::Quota, false),
            (Trouble::Unavailable, false),
            (Trouble::Registration, true),
            (Trouble::Vanished, false),
        ] {
            let mut memory = new();
            memory.observe(failed(trouble), at(0));
            let window = memory.window;
            memory.observe(registered(100), at(30));
            let is_closed = memory.state(at(30)) == BreakerState::Closed;
            assert_eq!(is_closed, closes, "{trouble}");
            assert_eq!(memory.window != window, closes, "{trouble}");
        }
    }

    #[test]
    fn interruptions_count_by_hours_of_work() {
        let mut memory = new();
        assert_eq!(memory.hazard(at(0)), 0.01);
        memory.observe(OfferingNews::Ran { hours: 8.0 }, at(0));
        memory.observe(OfferingNews::Interrupted, at(0));
        assert!((memory.hazard(at(0)) - 0.102).abs() < 1e-9);
    }

    #[test]
    fn memory_is_stored_and_read_back_exactly() {
        let mut memory = new();
        for (seconds, news) in [
            (0, OfferingNews::Asked),
            (7, registered(33)),
            (1_000, failed(Trouble::Quota)),
            (1_777, OfferingNews::Interrupted),
            (1_900, OfferingNews::Ran { hours: 1.0 / 3.0 }),
        ] {
            let text = serde_json::to_string(&news).unwrap();
            assert_eq!(serde_json::from_str::<OfferingNews>(&text).unwrap(), news);
            memory.observe(news, at(seconds));
        }
        let text = serde_json::to_string(&memory).unwrap();
        assert_eq!(
            serde_json::from_str::<OfferingMemory>(&text).unwrap(),
            memory
        );
    }
}
