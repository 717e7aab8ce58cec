//! Workers: each row stands for a machine or host, with its state.
//!
//! Other modules can read the fields of a worker, and cannot write them. Each transition consumes
//! the worker and returns the changed one, or an error. So no caller can forget a check:
//!
//! ```compile_fail,E0594
//! fn assign(worker: &mut domain::worker::Worker) {
//!     worker.state = domain::worker::WorkerState::Running;
//! }
//! ```

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Version;
use crate::id::{LaunchConfigId, OfferingId, ProviderId, WorkerKey, names};
use crate::time::{DAY_MS, Timestamp};

/// The state of a worker. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// Decided; the cloud may or may not know yet.
    Requested,
    /// It proved its identity (or was declared by hand) and may claim work.
    Running,
    /// It was asked to stop.
    Stopping,
    /// It has stopped. The row remains until it expires, and blocks its id.
    Stopped,
}

/// The limits that a worker got when it was made or last registered, and what is remembered about
/// it. Stored with the worker, so later changes of its pool do not affect it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Terms {
    /// The worker is ended after this time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate_after: Option<i64>,
    /// How long credentials last, in milliseconds; `None` is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reregistration_timeout: Option<i64>,
    /// How long it may go without claiming work, in milliseconds; `None` is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_inactivity_timeout: Option<i64>,
    /// How long it may take until it first asks for work, in milliseconds; `None` is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_claim_timeout: Option<i64>,
    /// How long it may be idle before it is asked to stop for lack of work, in milliseconds; `None`
    /// is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_hold_ms: Option<i64>,
    /// The offering of its launch, if a strategy of the pool learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offering: Option<OfferingId>,
    /// The launch that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_token: Option<String>,
    /// People declared it: no launch made it, and it lives until somebody removes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// A Taskcluster's worker manager made it, and we took it over: its machine carries that one's
    /// tags, and its first renewal shows a secret that we do not know.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
    /// The launch config whose content a declared worker got when it last registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_id: Option<LaunchConfigId>,
    /// The configuration that the worker gets when it registers; `None` uses the pool's. A machine
    /// that has registered or stopped does not need it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_config: Option<Value>,
    /// The last decision about whether it should stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Why it was ended, if we ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// When its machine was made, by the clock of its provider, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_at: Option<i64>,
    /// When it first registered, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<i64>,
    /// When it was first known to be stopping or stopped, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<i64>,
}

/// A decision about whether a worker should stop when it is next idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Advice {
    pub terminate: bool,
    pub reason: String,
    /// Milliseconds.
    pub decided_at: i64,
}

/// The beginning of the reason of advice that no plan withdraws.
const FINAL: &str = "for good: ";

impl Advice {
    /// The decision of a person that a worker stops when it is next idle.
    pub fn make_final(reason: &str, now: Timestamp) -> Self {
        Self {
            terminate: true,
            reason: format!("{FINAL}{reason}"),
            decided_at: now.as_millis(),
        }
    }

    /// Whether no plan may withdraw it.
    pub fn is_final(&self) -> bool {
        self.terminate && self.reason.starts_with(FINAL)
    }
}

/// The previous registration secret. It is accepted for a short time, because the reply with the
/// current secret may have been lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    pub digest: String,
    pub until: Timestamp,
}

/// The fields of a worker. Only the store and tests make a worker of them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: WorkerState,
    /// How many tasks it runs at a time; at least 1.
    pub capacity: u32,
    /// Dollars per hour, as agreed when it was launched or declared; `None`: not known.
    pub price: Option<f64>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub last_modified: Timestamp,
    pub last_checked: Timestamp,
    pub terms: Terms,
    /// The provider's own data; only the provider reads it.
    pub provider_data: Value,
    /// Keyed digest of the secret that the next re-registration must contain.
    pub secret: Option<String>,
    pub previous_secret: Option<PreviousSecret>,
    pub version: Version,
}

/// The fields of a new worker; its first transition sets the others.
pub struct NewWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub capacity: u32,
    pub price: Option<f64>,
    pub expires: Timestamp,
    pub terms: Terms,
    pub provider_data: Value,
}

/// Its fields are those of [`StoredWorker`], and only its transitions change them.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker(StoredWorker);

/// The state of the worker does not allow this transition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from} worker cannot become {to}")]
pub struct WorkerStateError {
    pub from: WorkerState,
    pub to: WorkerState,
}

names! {
    WorkerState, "not a worker state (requested, running, stopping, stopped)",
    Requested = "requested",
    Running = "running",
    Stopping = "stopping",
    Stopped = "stopped",
}

impl Terms {
    /// Whether it was asked to stop when it is next idle.
    pub fn is_draining(&self) -> bool {
        self.advice.as_ref().is_some_and(|advice| advice.terminate)
    }
}

impl Deref for Worker {
    type Target = StoredWorker;

    fn deref(&self) -> &StoredWorker {
        &self.0
    }
}

impl NewWorker {
    /// A launched machine, which has not registered yet.
    pub fn request(self, now: Timestamp) -> Worker {
        self.begin(WorkerState::Requested, now)
    }

    /// A worker that people declare.
    pub fn declare(mut self, now: Timestamp) -> Worker {
        self.terms.declared = true;
        self.begin(WorkerState::Running, now)
    }

    /// A machine that a Taskcluster's worker manager made, in its state there. To register it gets
    /// as long as if it were made now.
    pub fn take_over(mut self, state: WorkerState, made: Timestamp, now: Timestamp) -> Worker {
        self.terms.taken_over = true;
        if state > WorkerState::Requested {
            // It has its configuration. Its limits begin now: its work so far is not known.
            self.terms.worker_config = None;
            self.terms.registered_at = Some(now.as_millis());
        }
        if state >= WorkerState::Stopping {
            self.terms.stopped_at = Some(now.as_millis());
        }
        let mut stored = self.begin(state, now).0;
        if state > WorkerState::Requested {
            stored.created = made;
        }
        Worker(stored)
    }

    /// A machine that has to end.
    pub fn reject(self, now: Timestamp) -> Worker {
        self.begin(WorkerState::Stopping, now)
    }

    fn begin(self, state: WorkerState, now: Timestamp) -> Worker {
        Worker(StoredWorker {
            key: self.key,
            provider_id: self.provider_id,
            launch_config_id: self.launch_config_id,
            state,
            capacity: self.capacity,
            price: self.price,
            created: now,
            expires: self.expires,
            last_modified: now,
            last_checked: now,
            terms: self.terms,
            provider_data: self.provider_data,
            secret: None,
            previous_secret: None,
            version: Version::FIRST,
        })
    }
}

impl Worker {
    /// How long a row lasts by default.
    pub const DEFAULT_LIFE_MS: i64 = 7 * DAY_MS;

    /// For the store, which loads rows, and for tests: it checks nothing.
    pub fn from_stored(stored: StoredWorker) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredWorker {
        self.0
    }

    /// The worker after the store has written it.
    pub fn with_version(mut self, version: Version) -> Self {
        self.0.version = version;
        self
    }

    /// A worker that people declared and that runs does not expire: it lives until somebody removes
    /// it.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        let is_kept = self.is_declared() && self.state == WorkerState::Running;
        self.expires < now && !is_kept
    }

    /// Whether people declared it: no launch made it.
    pub fn is_declared(&self) -> bool {
        self.terms.declared
    }

    /// The answer when it asks whether it should stop, with the reason; `None` if nothing was
    /// decided.
    pub fn should_terminate(&self) -> Option<(bool, &str)> {
        if self.state >= WorkerState::Stopping {
            return Some((
                true,
                self.terms.end_reason.as_deref().unwrap_or("asked to stop"),
            ));
        }
        let advice = self.terms.advice.as_ref()?;
        Some((advice.terminate, &advice.reason))
    }

    /// A launched machine registers once. A second registration is an attack or a bug, never a
    /// retry.
    pub fn check_unregistered(&self) -> Result<(), WorkerStateError> {
        match self.state {
            WorkerState::Requested => Ok(()),
            WorkerState::Running | WorkerState::Stopping | WorkerState::Stopped => {
                Err(WorkerStateError {
                    from: self.state,
                    to: WorkerState::Running,
                })
            }
        }
    }

    /// A machine that was taken over before it registered, and that did so there since. It has to
    /// renew its credentials here before they expire.
    pub fn note_registered_there(
        self,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<Self, WorkerStateError> {
        self.check_unregistered()?;
        let mut stored = self.0;
        stored.state = WorkerState::Running;
        stored.terms.worker_config = None;
        stored.terms.registered_at = Some(now.as_millis());
        stored.terms.terminate_after = Some(expires.as_millis());
        stored.last_modified = now;
        Ok(Self(stored))
    }

    /// Gives a worker that has proved its identity credentials until `expires`; it renews them with
    /// the secret of this digest. A declared worker runs from the start and may register again.
    pub fn register(
        self,
        secret: String,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<Self, WorkerStateError> {
        let is_declared = self.terms.launch_token.is_none();
        if !(is_declared && self.state == WorkerState::Running) {
            self.check_unregistered()?;
        }
        let mut stored = self.0;
        if stored.state == WorkerState::Requested {
            // It cannot register again, and gets it with the reply.
            stored.terms.worker_config = None;
        }
        stored.state = WorkerState::Running;
        stored.previous_secret = None;
        stored.terms.registered_at.get_or_insert(now.as_millis());
        Ok(Self(stored).with_credentials(secret, expires, now))
    }

    /// Gives a declared worker a launch config, whose content it gets when it next registers.
    pub fn assign(mut self, id: LaunchConfigId, price: Option<f64>) -> Self {
        self.0.launch_config_id = Some(id);
        self.0.price = price;
        self
    }

    /// Notes that a declared worker gets the content of its launch config now.
    pub fn note_config(mut self) -> Self {
        self.0.terms.config_id = self.0.launch_config_id.clone();
        self
    }

    /// Replaces the secret of a running worker; its credentials last until `expires`.
    pub fn renew(
        mut self,
        previous: PreviousSecret,
        secret: String,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<Self, WorkerStateError> {
        if self.state != WorkerState::Running {
            return Err(WorkerStateError {
                from: self.state,
                to: WorkerState::Running,
            });
        }
        self.0.previous_secret = Some(previous);
        Ok(self.with_credentials(secret, expires, now))
    }

    fn with_credentials(mut self, secret: String, expires: Timestamp, now: Timestamp) -> Self {
        self.0.secret = Some(secret);
        if let Some(terminate_after) = &mut self.0.terms.terminate_after {
            *terminate_after = expires.as_millis();
        }
        self.0.last_modified = now;
        self
    }

    /// Changes the fields that people declare.
    pub fn redeclare(
        mut self,
        expires: Timestamp,
        capacity: Option<u32>,
        provider_data: Option<Value>,
        now: Timestamp,
    ) -> Self {
        let stored = &mut self.0;
        stored.expires = expires;
        stored.capacity = capacity.unwrap_or(stored.capacity);
        if let Some(provider_data) = provider_data {
            stored.provider_data = provider_data;
        }
        stored.last_modified = now;
        self
    }

    /// Stores the decision whether it should end when it is next idle.
    pub fn advise(mut self, advice: Advice) -> Self {
        self.0.terms.advice = Some(advice);
        self
    }

    /// Keeps its row until this moment.
    pub fn keep_until(mut self, expires: Timestamp) -> Self {
        self.0.expires = expires;
        self
    }

    /// Replaces the reason for its end.
    pub fn set_end_reason(mut self, reason: String) -> Self {
        self.0.terms.end_reason = Some(reason);
        self
    }

    /// Begins its end. Changes nothing if that has begun.
    pub fn stop(self, reason: &str, now: Timestamp) -> Self {
        match self.state {
            WorkerState::Requested | WorkerState::Running => {
                self.leave(WorkerState::Stopping, reason, now)
            }
            WorkerState::Stopping | WorkerState::Stopped => self,
        }
    }

    /// Ends it: its machine does not run any more. Changes nothing if it has ended.
    pub fn mark_stopped(self, reason: &str, now: Timestamp) -> Self {
        if self.state == WorkerState::Stopped {
            return self;
        }
        let mut stopped = self.leave(WorkerState::Stopped, reason, now);
        stopped.0.last_checked = now;
        stopped
    }

    fn leave(mut self, state: WorkerState, reason: &str, now: Timestamp) -> Self {
        let stored = &mut self.0;
        stored.state = state;
        stored.last_modified = now;
        let terms = &mut stored.terms;
        // It cannot register any more, and its row is kept for days.
        terms.worker_config = None;
        terms.stopped_at.get_or_insert(now.as_millis());
        terms.end_reason.get_or_insert_with(|| reason.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn worker(state: WorkerState, is_launched: bool) -> Worker {
        let new = NewWorker {
            key: WorkerKey {
                pool_id: "pp/wt".parse().unwrap(),
                group: "g".parse().unwrap(),
                id: "w".parse().unwrap(),
            },
            provider_id: "p".parse().unwrap(),
            launch_config_id: None,
            capacity: 1,
            price: None,
            expires: at(1_000),
            terms: Terms {
                launch_token: is_launched.then(|| "fN1SbArXTPSVFNUvaOlinQ".to_owned()),
                worker_config: Some(Value::Null),
                terminate_after: Some(7),
                ..Terms::default()
            },
            provider_data: Value::Null,
        };
        Worker::from_stored(StoredWorker {
            state,
            ..new.request(at(1)).into_stored()
        })
    }

    #[test]
    fn a_launched_machine_registers_once_and_a_declared_worker_any_number_of_times() {
        for is_launched in [true, false] {
            for state in WorkerState::ALL {
                let registered =
                    worker(state, is_launched).register("digest".to_owned(), at(90), at(5));
                let may = match state {
                    WorkerState::Requested => true,
                    WorkerState::Running => !is_launched,
                    WorkerState::Stopping | WorkerState::Stopped => false,
                };
                match registered {
                    Ok(registered) => {
                        assert!(may, "{state}");
                        assert_eq!(registered.state, WorkerState::Running);
                        assert_eq!(registered.secret.as_deref(), Some("digest"));
                        assert_eq!(registered.terms.registered_at, Some(5));
                        assert_eq!(registered.terms.terminate_after, Some(90));
                        let is_first = state == WorkerState::Requested;
                        assert_eq!(registered.terms.worker_config.is_none(), is_first);
                    }
                    Err(refused) => {
                        assert!(!may, "{state}");
                        let text = format!("a {state} worker cannot become running");
                        assert_eq!(refused.to_string(), text);
                    }
                }
            }
        }
    }

    #[test]
    fn only_a_running_worker_renews_its_credentials() {
        let previous = PreviousSecret {
            digest: "old".to_owned(),
            until: at(50),
        };
        for state in WorkerState::ALL {
            let renewed =
                worker(state, true).renew(previous.clone(), "new".to_owned(), at(90), at(5));
            assert_eq!(renewed.is_ok(), state == WorkerState::Running, "{state}");
            if let Ok(renewed) = renewed {
                assert_eq!(renewed.previous_secret.as_ref(), Some(&previous));
                assert_eq!(renewed.secret.as_deref(), Some("new"));
            }
        }
    }

    #[test]
    fn a_stopped_worker_keeps_its_first_reason_and_time() {
        let gone = worker(WorkerState::Running, true)
            .stop("first", at(10))
            .stop("second", at(20));
        assert_eq!(gone.state, WorkerState::Stopping);
        assert_eq!(gone.last_modified, at(10));
        let gone = gone
            .mark_stopped("third", at(30))
            .mark_stopped("fourth", at(40));
        assert_eq!(gone.state, WorkerState::Stopped);
        assert_eq!((gone.last_modified, gone.last_checked), (at(30), at(30)));
        assert_eq!(gone.terms.stopped_at, Some(10));
        assert_eq!(gone.terms.worker_config, None);
        assert_eq!(gone.terms.end_reason.as_deref(), Some("first"));
        assert_eq!(gone.stop("fifth", at(50)).state, WorkerState::Stopped);
    }

    proptest! {
        #[test]
        fn a_state_never_moves_backward(
            start in 0_usize..4,
            is_launched: bool,
            moves in proptest::collection::vec(0_u8..7, 0..20),
        ) {
            let mut worker = worker(WorkerState::ALL[start], is_launched);
            for (now, step) in (10..).zip(moves) {
                let (before, now) = (worker.clone(), at(now));
                let previous = || PreviousSecret { digest: String::new(), until: now };
                let moved = match step {
                    0 => worker.clone().register(String::new(), now, now).ok(),
                    1 => worker.clone().renew(previous(), String::new(), now, now).ok(),
                    2 => Some(worker.clone().redeclare(now, None, None, now)),
                    3 => Some(worker.clone().stop("", now)),
                    4 => Some(worker.clone().mark_stopped("", now)),
                    5 => Some(worker.clone().keep_until(now)),
                    _ => Some(worker.clone().with_version(Version(7))),
                };
                worker = moved.unwrap_or(worker);
                prop_assert!(worker.state >= before.state);
                prop_assert!(worker.terms.stopped_at >= before.terms.stopped_at);
            }
        }
    }

    #[test]
    fn states_print_and_parse_alike() {
        for state in WorkerState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("standalone".parse::<WorkerState>().is_err());
    }
}
