//! Workers: each row stands for a machine or host, with its state.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Version;
use crate::id::{LaunchConfigId, ProviderId, WorkerKey};
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
    /// The launch that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_token: Option<String>,
    /// The configuration that the worker gets when it registers; `None` uses the pool's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_config: Option<Value>,
    /// The last decision about whether it should stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Why it was ended, if we ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
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

/// The previous registration secret. It is accepted for a short time, because the reply with the
/// current secret may have been lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    pub digest: String,
    pub until: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: WorkerState,
    /// How many tasks it runs at a time; at least 1.
    pub capacity: u32,
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

/// The state does not allow this transition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from} worker cannot become {to}")]
pub struct InvalidTransition {
    pub from: WorkerState,
    pub to: WorkerState,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a worker state (requested, running, stopping, stopped)")]
pub struct BadWorkerState(pub String);

impl WorkerState {
    pub const ALL: [Self; 4] = [
        Self::Requested,
        Self::Running,
        Self::Stopping,
        Self::Stopped,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }

    pub fn register(self) -> Result<Self, InvalidTransition> {
        match self {
            Self::Requested => Ok(Self::Running),
            // Registering twice is an attack or a bug, never a retry.
            Self::Running | Self::Stopping | Self::Stopped => Err(InvalidTransition {
                from: self,
                to: Self::Running,
            }),
        }
    }

    /// Asked to stop: a running worker is stopping; other states are unchanged where they are
    /// later.
    pub fn stop(self) -> Self {
        match self {
            Self::Requested | Self::Running => Self::Stopping,
            Self::Stopping | Self::Stopped => self,
        }
    }
}

impl Terms {
    /// Whether it was asked to stop when it is next idle.
    pub fn is_draining(&self) -> bool {
        self.advice.as_ref().is_some_and(|advice| advice.terminate)
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for WorkerState {
    type Err = BadWorkerState;

    fn from_str(text: &str) -> Result<Self, BadWorkerState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| BadWorkerState(text.to_owned()))
    }
}

impl Worker {
    /// How long a row lasts by default.
    pub const DEFAULT_LIFE_MS: i64 = 7 * DAY_MS;

    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires < now
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

    /// The worker has stopped (or was asked to stop, for providers that must ask a cloud first).
    pub fn leave(&mut self, state: WorkerState, now: Timestamp) {
        self.state = state;
        self.terms.stopped_at.get_or_insert(now.as_millis());
        self.last_modified = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_requested_worker_can_register() {
        assert_eq!(WorkerState::Requested.register(), Ok(WorkerState::Running));
        for state in [
            WorkerState::Running,
            WorkerState::Stopping,
            WorkerState::Stopped,
        ] {
            let refused = state.register().unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("a {state} worker cannot become running")
            );
        }
    }

    #[test]
    fn stopping_never_brings_a_worker_back() {
        assert_eq!(WorkerState::Running.stop(), WorkerState::Stopping);
        assert_eq!(WorkerState::Stopped.stop(), WorkerState::Stopped);
    }

    #[test]
    fn states_print_and_parse_alike() {
        for state in WorkerState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("standalone".parse::<WorkerState>().is_err());
    }
}
