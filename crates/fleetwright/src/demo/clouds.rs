//! The three fake clouds of the demo: their machines, and the failures that the scene scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use access::seal::Keyring;
use anyhow::Context as _;
use cloud::{FakeCloud, FakeSettings, LaunchOrder, LaunchOutcome, Provider, ProviderContext};
use contract::Schemas;
use domain::id::ProviderId;
use domain::time::{Clock, SECOND_MS, Timestamp};
use engine::clock::SystemClock;
use engine::rate_limit::{RateLimitedProvider, RateLimits, SystemTimer};

use super::scene::{Failure, Scene, whole};

/// Stands where a script put it, until it is released: from then on it is the system's.
pub(super) struct SceneClock(AtomicI64);

/// The time of a clock that is released.
const RELEASED: i64 = i64::MIN;

impl Clock for SceneClock {
    fn now(&self) -> Timestamp {
        match self.0.load(Ordering::SeqCst) {
            RELEASED => SystemClock.now(),
            millis => Timestamp::from_millis(millis),
        }
    }
}

impl SceneClock {
    /// It never goes back.
    pub(super) fn move_to(&self, moment: Timestamp) {
        self.0.fetch_max(moment.as_millis(), Ordering::SeqCst);
    }
}

pub(crate) struct Clouds {
    pub(super) clock: Arc<SceneClock>,
    pub(super) all: Vec<(ProviderId, Arc<FakeCloud>)>,
}

impl Clouds {
    /// The clouds of the scene at the time of the oldest act, with a maximum of machines for all.
    pub(crate) fn new(
        scene: &Scene,
        keyring: Arc<Keyring>,
        n_machines: u32,
        begin: Timestamp,
    ) -> anyhow::Result<Self> {
        let clock = Arc::new(SceneClock(AtomicI64::new(begin.as_millis())));
        let mut all = Vec::new();
        for (name, cloud) in &scene.clouds {
            let id: ProviderId = name.parse().context("the id of a cloud")?;
            let context = ProviderContext {
                id: id.clone(),
                schemas: Schemas::new(),
                keyring: Arc::clone(&keyring),
                root_url: String::new(),
                data: None,
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
            };
            let settings = FakeSettings {
                stock: u64::try_from(whole(cloud.share * f64::from(n_machines))).ok(),
                ..cloud.settings.clone()
            };
            let made = Arc::new(FakeCloud::new(context, settings));
            let clock = Arc::clone(&clock);
            made.decide_with(decider(&cloud.failures, clock));
            all.push((id, made));
        }
        Ok(Self { clock, all })
    }

    /// For a server of the past, whose calls need no pace.
    pub(super) fn providers(&self) -> Vec<(ProviderId, Arc<dyn Provider>)> {
        let all = self.all.iter();
        all.map(|(id, cloud)| (id.clone(), Arc::clone(cloud) as Arc<dyn Provider>))
            .collect()
    }

    /// For the server that people look at: calls are limited as those to a real cloud. From now on
    /// the clouds have the time of the system.
    pub(crate) fn released(&self) -> Vec<(ProviderId, Arc<dyn Provider>)> {
        self.clock.0.store(RELEASED, Ordering::SeqCst);
        let limited = |(id, cloud): (ProviderId, Arc<dyn Provider>)| {
            let limited = RateLimitedProvider::new(
                id.clone(),
                cloud,
                RateLimits::default(),
                Arc::new(SystemClock),
                Arc::new(SystemTimer),
            );
            (id, Arc::new(limited) as Arc<dyn Provider>)
        };
        self.providers().into_iter().map(limited).collect()
    }
}

/// Decides about each launch by the first failure of the scene that holds for it now.
fn decider(
    failures: &[Failure],
    clock: Arc<SceneClock>,
) -> impl FnMut(&LaunchOrder<'_>) -> LaunchOutcome + Send + 'static {
    let mut failures = failures.to_vec();
    move |order| {
        let mut matching = failures.iter_mut().filter(|it| it.concerns(order));
        let outcome = matching.find_map(|failure| failure.outcome(clock.now()));
        outcome.unwrap_or(LaunchOutcome::Made)
    }
}

impl Failure {
    fn concerns(&self, order: &LaunchOrder<'_>) -> bool {
        let is = |named: &Option<String>, id: &str| named.as_ref().is_none_or(|name| name == id);
        is(&self.pool, order.pool.id.as_str())
            && is(&self.launch_config, order.launch_config.id.as_str())
    }

    /// `None`: the launch succeeds.
    fn outcome(&mut self, now: Timestamp) -> Option<LaunchOutcome> {
        if let Some(period) = self.every_seconds
            && (now.as_millis() / SECOND_MS).rem_euclid(period) >= self.for_seconds
        {
            return None;
        }
        if let Some(left) = self.after.checked_sub(1) {
            self.after = left;
            return None;
        }
        if self.never_registers {
            return Some(LaunchOutcome::NeverUp);
        }
        let cause = self.refuses?;
        Some(LaunchOutcome::RefusedSaying(cause, self.saying.clone()))
    }
}

#[cfg(test)]
mod tests {
    use domain::launch::Cause;

    use super::*;

    fn failure(text: &str) -> Failure {
        serde_json::from_str(text).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * SECOND_MS)
    }

    #[test]
    fn a_failure_lets_the_first_launches_pass() {
        let mut quota = failure(r#"{"refuses": "quota", "saying": "no", "after": 2}"#);
        let outcomes: Vec<_> = (0..3).map(|_| quota.outcome(at(0))).collect();
        let refused = LaunchOutcome::RefusedSaying(Cause::Quota, "no".to_owned());
        assert_eq!(outcomes, [None, None, Some(refused)]);
    }

    #[test]
    fn a_failure_may_come_again_and_again() {
        let text = r#"{"refuses": "throttled", "everySeconds": 600, "forSeconds": 60}"#;
        let mut throttled = failure(text);
        let moments = [0, 59, 60, 599, 600, 660];
        let fails = moments.map(|seconds| throttled.outcome(at(seconds)).is_some());
        assert_eq!(fails, [true, true, false, false, true, false]);
    }

    #[test]
    fn a_released_clock_is_the_systems() {
        let clock = SceneClock(AtomicI64::new(5));
        clock.move_to(at(7));
        clock.move_to(at(6));
        assert_eq!(clock.now(), at(7));
        clock.0.store(RELEASED, Ordering::SeqCst);
        assert!(clock.now() > at(1_000_000));
    }
}
