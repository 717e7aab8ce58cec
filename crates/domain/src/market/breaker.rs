//! The breaker of an offering: after a failure it is not used for a while, then tried with one
//! machine.

use serde::{Deserialize, Serialize};

use crate::id::{names, text_in_json};
use crate::launch::Cause;
use crate::time::{SECOND_MS, Timestamp};

/// The first pause; each further failure in a row doubles it.
const FIRST_PAUSE_MS: i64 = 60 * SECOND_MS;
/// The first pause after an answer that says nothing about the offering.
const FIRST_SHORT_PAUSE_MS: i64 = 10 * SECOND_MS;
/// While tasks wait, every offering is tried again within about this time.
const LONGEST_PAUSE_MS: i64 = 180 * SECOND_MS;
/// The same if a trial shows soon, and for little money, whether it works.
const LONGEST_CHEAP_PAUSE_MS: i64 = 120 * SECOND_MS;
/// The pause of an offering that a person must change.
const CONFIGURATION_PAUSE_MS: i64 = 480 * SECOND_MS;
/// Pauses are up to this share shorter or longer, so that offerings that failed together are not
/// tried together.
const JITTER: f64 = 0.2;
/// A trial without a result for this long does not keep the next one from being made.
const TRIAL_MS: i64 = 120 * SECOND_MS;

/// A failure of an offering, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Capacity,
    Quota,
    Configuration,
    Throttled,
    Credentials,
    Unavailable,
    Lost,
    /// A launch was accepted, and its machine disappeared before it registered.
    Vanished,
    /// A machine did not register in time.
    Registration,
}

names! {
    Trouble, "not a trouble of an offering",
    Capacity = "capacity",
    Quota = "quota",
    Configuration = "configuration",
    Throttled = "throttled",
    Credentials = "credentials",
    Unavailable = "unavailable",
    Lost = "lost",
    Vanished = "vanished",
    Registration = "registration",
}

text_in_json!(Trouble);

impl From<Cause> for Trouble {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Capacity => Self::Capacity,
            Cause::Quota => Self::Quota,
            Cause::Configuration => Self::Configuration,
            Cause::Throttled => Self::Throttled,
            Cause::Credentials => Self::Credentials,
            Cause::Unavailable => Self::Unavailable,
            Cause::Lost => Self::Lost,
        }
    }
}

impl Trouble {
    /// The shortest pause after the first failure.
    pub fn least_pause_ms(self) -> i64 {
        with_noise(self.first_pause_ms(), 0.0)
    }

    fn first_pause_ms(self) -> i64 {
        match self {
            Self::Throttled => FIRST_SHORT_PAUSE_MS,
            // A person must change it.
            Self::Configuration => CONFIGURATION_PAUSE_MS,
            Self::Capacity
            | Self::Quota
            | Self::Credentials
            | Self::Unavailable
            | Self::Lost
            | Self::Vanished
            | Self::Registration => FIRST_PAUSE_MS,
        }
    }

    /// Whether a trial shows soon, and for little money, that the offering works again.
    pub fn is_cheap_to_try(self) -> bool {
        match self {
            Self::Capacity | Self::Unavailable | Self::Lost | Self::Vanished => true,
            // Full quotas are tried where a machine is wanted anyway; a boot takes long.
            Self::Quota
            | Self::Configuration
            | Self::Throttled
            | Self::Credentials
            | Self::Registration => false,
        }
    }

    /// The pause after a failure that followed this many others.
    fn pause_ms(self, n_before: u32) -> i64 {
        let first = self.first_pause_ms();
        let longest = if self.is_cheap_to_try() {
            LONGEST_CHEAP_PAUSE_MS
        } else {
            LONGEST_PAUSE_MS
        };
        (first << n_before.min(16)).min(longest.max(first))
    }
}

/// Counts failures in a row, and says when the offering may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Breaker {
    /// A burst of failures counts once.
    pub failures_in_a_row: u32,
    /// The last one.
    pub trouble: Option<Trouble>,
    /// When it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    pub open_until: Option<Timestamp>,
    /// When it was tried after a pause, while the result is not known.
    pub tried: Option<Timestamp>,
    /// An accepted launch has failed later, so acceptance proves nothing here.
    pub fails_late: bool,
}

/// Whether an offering may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    /// It failed, and is not used before this time.
    Open {
        until: Timestamp,
    },
    /// The pause is over: it may be tried with one machine.
    HalfOpen,
    /// It is being tried; at the latest, the next trial is due at this time.
    OnTrial {
        until: Timestamp,
    },
}

impl Breaker {
    pub fn state(&self, now: Timestamp) -> BreakerState {
        // A pause that lies further ahead than any can last was written by a clock that was set.
        let until = self
            .open_until
            .filter(|until| *until > now && until.millis_since(now) <= 2 * CONFIGURATION_PAUSE_MS);
        if let Some(until) = until {
            return BreakerState::Open { until };
        }
        if self.failures_in_a_row == 0 {
            return BreakerState::Closed;
        }
        let next = self.tried.map(|tried| (tried, tried.plus_millis(TRIAL_MS)));
        match next {
            Some((tried, until)) if tried <= now && now < until => BreakerState::OnTrial { until },
            Some(_) | None => BreakerState::HalfOpen,
        }
    }

    /// The pause after one more failure of the same kind, without the noise; `None`: it is closed.
    pub fn next_pause_ms(&self) -> Option<i64> {
        let trouble = self.trouble.filter(|_| self.failures_in_a_row > 0)?;
        Some(trouble.pause_ms(self.failures_in_a_row))
    }

    /// A launch is asked for.
    pub(super) fn ask(&mut self, now: Timestamp) {
        if self.failures_in_a_row > 0 {
            self.tried = Some(now);
        }
    }

    /// Failures while it is open, other than that of a trial, belong to the burst that opened it.
    pub(super) fn fail(&mut self, trouble: Trouble, salt: u64, now: Timestamp) {
        (self.trouble, self.failed) = (Some(trouble), Some(now));
        if matches!(self.state(now), BreakerState::Open { .. }) && self.tried.is_none() {
            return;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.tried = None;
        let n_before = (self.failures_in_a_row - 1).min(16);
        let pause = trouble.pause_ms(n_before);
        let noise = fraction(salt ^ now.as_millis().unsigned_abs() ^ u64::from(n_before) << 48);
        self.open_until = Some(now.plus_millis(with_noise(pause, noise)));
    }

    /// A launch was accepted, which closes it. While it is open and nothing was tried, the launch
    /// was asked for before the failure, and shows nothing.
    pub(super) fn accept(&mut self, now: Timestamp) -> bool {
        let is_open = matches!(self.state(now), BreakerState::Open { .. });
        let is_proof = !is_open || self.tried.is_some();
        if is_proof {
            self.close();
        }
        is_proof
    }

    /// A machine that was launched then has registered. It shows nothing about launches that were
    /// refused with its own or after it. Returns whether it closes the breaker.
    pub(super) fn register(&mut self, launched: Timestamp, now: Timestamp) -> bool {
        let failed = self.failed.filter(|failed| *failed <= now);
        let is_older = failed.is_some_and(|failed| launched <= failed);
        let is_proof = !is_older || self.trouble == Some(Trouble::Registration);
        if is_proof {
            self.close();
        }
        is_proof
    }

    /// Something has shown that it works.
    pub(super) fn close(&mut self) {
        self.failures_in_a_row = 0;
        self.tried = None;
        self.open_until = None;
    }
}

/// The pause with noise, which is from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    reason = "at most twice the longest pause"
)]
fn with_noise(pause_ms: i64, noise: f64) -> i64 {
    let factor = 1.0 + JITTER * (2.0 * noise - 1.0);
    (pause_ms as f64 * factor) as i64
}

/// A number from 0 to below 1 that looks random.
fn fraction(seed: u64) -> f64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 7;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    /// Fails again as soon as a trial is due, and returns the pauses in seconds.
    fn pauses(trouble: Trouble, count: usize) -> Vec<f64> {
        let mut breaker = Breaker::default();
        let mut now = at(0);
        (0..count)
            .map(|_| {
                breaker.ask(now);
                breaker.fail(trouble, SALT, now);
                let until = breaker.open_until.unwrap();
                let pause = until.millis_since(now) as f64 / 1_000.0;
                now = until;
                pause
            })
            .collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_differ_by_a_fifth_at_most() {
        let expected = [
            (Trouble::Capacity, [60.0, 120.0, 120.0, 120.0, 120.0]),
            (Trouble::Quota, [60.0, 120.0, 180.0, 180.0, 180.0]),
            (Trouble::Registration, [60.0, 120.0, 180.0, 180.0, 180.0]),
            (Trouble::Throttled, [10.0, 20.0, 40.0, 80.0, 160.0]),
            (Trouble::Configuration, [480.0; 5]),
        ];
        for (trouble, lengths) in expected {
            for (pause, length) in pauses(trouble, 5).into_iter().zip(lengths) {
                let ratio = pause / length;
                assert!((0.8..=1.2).contains(&ratio), "{trouble}: {pause} {length}");
            }
        }
    }

    #[test]
    fn a_burst_of_failures_counts_once() {
        let mut breaker = Breaker::default();
        for seconds in 0..30 {
            breaker.fail(Trouble::Quota, SALT, at(seconds));
        }
        assert_eq!(breaker.failures_in_a_row, 1);
        assert!(breaker.open_until.unwrap() <= at(72));
    }

    #[test]
    fn after_the_pause_one_trial_decides() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.state(at(0)), BreakerState::Closed);
        breaker.fail(Trouble::Capacity, SALT, at(0));
        let until = breaker.open_until.unwrap();
        assert_eq!(breaker.state(at(1)), BreakerState::Open { until });
        assert_eq!(breaker.state(until), BreakerState::HalfOpen);
        breaker.ask(at(80));
        let next = at(200);
        assert_eq!(breaker.state(at(81)), BreakerState::OnTrial { until: next });
        // A trial without a result does not block for ever.
        assert_eq!(breaker.state(next), BreakerState::HalfOpen);
        breaker.close();
        assert_eq!(breaker.state(at(82)), BreakerState::Closed);
    }

    #[test]
    fn what_was_launched_before_a_refusal_does_not_close_it() {
        let mut breaker = Breaker::default();
        breaker.fail(Trouble::Capacity, SALT, at(0));
        assert!(!breaker.accept(at(1)));
        breaker.register(at(-90), at(1));
        breaker.register(at(-30), at(80));
        assert_eq!(breaker.state(at(80)), BreakerState::HalfOpen);
        breaker.ask(at(80));
        assert!(breaker.accept(at(81)));
        breaker.fail(Trouble::Capacity, SALT, at(90));
        // It was made by the call that was refused the rest.
        breaker.register(at(90), at(91));
        assert!(matches!(breaker.state(at(91)), BreakerState::Open { .. }));
        breaker.register(at(170), at(190));
        assert_eq!(breaker.state(at(190)), BreakerState::Closed);
        // A machine that registers at last shows that boots only take long.
        breaker.fail(Trouble::Registration, SALT, at(200));
        breaker.register(at(150), at(201));
        assert_eq!(breaker.state(at(201)), BreakerState::Closed);
        // The clock was set back after the failure.
        breaker.fail(Trouble::Capacity, SALT, at(9_000));
        breaker.register(at(300), at(400));
        assert_eq!(breaker.state(at(400)), BreakerState::Closed);
    }

    #[test]
    fn a_clock_that_was_set_back_opens_nothing_for_long() {
        let mut breaker = Breaker::default();
        breaker.fail(Trouble::Capacity, SALT, at(100_000));
        assert_eq!(breaker.state(at(0)), BreakerState::HalfOpen);
        breaker.ask(at(200_000));
        assert_eq!(breaker.state(at(0)), BreakerState::HalfOpen);
    }

    #[test]
    fn the_breaker_of_every_cause_opens() {
        for cause in Cause::ALL {
            let trouble = Trouble::from(cause);
            assert_eq!(trouble.as_str(), cause.as_str());
            assert_eq!(trouble.to_string().parse(), Ok(trouble));
            assert!(pauses(trouble, 1)[0] >= 8.0);
            let mut breaker = Breaker::default();
            assert_eq!(breaker.next_pause_ms(), None);
            breaker.fail(trouble, SALT, at(0));
            let first = trouble.first_pause_ms();
            let next = Some((first * 2).min(LONGEST_PAUSE_MS.max(first)));
            assert_eq!(breaker.next_pause_ms(), next);
        }
    }
}
