//! A launch: the intent to start workers, written down before any cloud hears of it.
//!
//! What it asked for counts as capacity until the answer is known, so nothing is launched twice. A
//! lost answer makes it unknown, never failed: the scan finds out by its token.

use std::fmt;
use std::str::FromStr;

use crate::Version;
use crate::id::{LaunchConfigId, LaunchToken, PoolId, ProviderId, WorkerId};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Names it everywhere: to the cloud, which must not act on one token twice, and on the machines.
    pub token: LaunchToken,
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    /// How many machines were wanted; at least 1.
    pub machines: u32,
    /// How many tasks each of them runs at a time; at least 1.
    pub capacity_each: u32,
    /// The most to pay per hour and machine, in dollars; `None` leaves it to the cloud.
    pub max_price: Option<f64>,
    pub state: LaunchState,
    /// When a process began to ask the cloud, written down before it does. Only that process may ask.
    /// `None`: nobody has asked, so nothing was made.
    pub asked: Option<Timestamp>,
    /// How many machines were made, as far as is known.
    pub made: u32,
    /// The plan (by its number within the pool) that decided on it.
    pub plan: i64,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// Where a launch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchState {
    /// Decided on; the cloud may or may not know yet.
    Open,
    /// The cloud made machines; each has its worker.
    Accepted,
    /// The cloud made nothing.
    Refused { cause: Cause, problem: String },
    /// Nobody knows what the cloud made.
    Unknown { problem: String },
    /// The cloud was never asked: that is our affair, and speaks against nobody.
    Withdrawn { problem: String },
}

/// Why a cloud made nothing, by what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Out of stock there: try elsewhere.
    Capacity,
    /// A limit of the account: try elsewhere; the launch config is not ill.
    Quota,
    /// The launch config itself is wrong: a person must change it.
    Configuration,
    /// We ask too often: slow down; the launch config is not ill.
    Throttled,
    /// Our credentials do not work: a person must look.
    Credentials,
    /// The cloud itself does not work.
    Unavailable,
    /// It was asked, and no machine ever appeared.
    Lost,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cause")]
pub struct BadCause(pub String);

impl Cause {
    pub const ALL: [Self; 7] = [
        Self::Capacity,
        Self::Quota,
        Self::Configuration,
        Self::Throttled,
        Self::Credentials,
        Self::Unavailable,
        Self::Lost,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Quota => "quota",
            Self::Configuration => "configuration",
            Self::Throttled => "throttled",
            Self::Credentials => "credentials",
            Self::Unavailable => "unavailable",
            Self::Lost => "lost",
        }
    }

    /// Does a refusal of this kind speak against the launch config?
    pub fn is_ill_health(self) -> bool {
        match self {
            Self::Capacity | Self::Configuration | Self::Lost => true,
            Self::Quota | Self::Throttled | Self::Credentials | Self::Unavailable => false,
        }
    }
}

/// The worker id that a launch offers to its machine of this number, where names are left to us.
pub fn offered_id(token: &LaunchToken, number: u32) -> Option<WorkerId> {
    format!("{token}-{number}").parse().ok()
}

/// The launch that offers this worker id, if the id has the form of an offered one.
pub fn offered_by(id: &WorkerId) -> Option<LaunchToken> {
    let (token, number) = id.as_str().rsplit_once('-')?;
    let token = token.parse().ok()?;
    let is_offered = offered_id(&token, number.parse().ok()?).as_ref() == Some(id);
    is_offered.then_some(token)
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Cause {
    type Err = BadCause;

    fn from_str(text: &str) -> Result<Self, BadCause> {
        Self::ALL
            .into_iter()
            .find(|cause| cause.as_str() == text)
            .ok_or_else(|| BadCause(text.to_owned()))
    }
}

impl LaunchState {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Accepted => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
            Self::Withdrawn { .. } => "withdrawn",
        }
    }

    /// Might the cloud still have made machines that we do not know?
    pub fn is_pending(&self) -> bool {
        match self {
            Self::Open | Self::Unknown { .. } => true,
            Self::Accepted | Self::Refused { .. } | Self::Withdrawn { .. } => false,
        }
    }
}

impl Launch {
    pub fn capacity(&self) -> u64 {
        u64::from(self.machines) * u64::from(self.capacity_each)
    }

    /// Number of machines that the provider failed to create for a reason that counts against the
    /// launch config: it refused for such a cause, or created fewer than requested.
    pub fn failed_machines(&self) -> u32 {
        match &self.state {
            LaunchState::Refused { cause, .. } if cause.is_ill_health() => self.machines,
            LaunchState::Accepted => self.machines.saturating_sub(self.made),
            LaunchState::Refused { .. }
            | LaunchState::Open
            | LaunchState::Unknown { .. }
            | LaunchState::Withdrawn { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offered_id_names_its_launch_and_other_ids_name_none() {
        let token: LaunchToken = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        for number in [0, 7, 999] {
            let id = offered_id(&token, number).unwrap();
            assert_eq!(offered_by(&id), Some(token.clone()));
        }
        for other in [
            "i-0123456789",
            "fN1SbArXTPSVFNUvaOlinQ",
            "fN1SbArXTPSVFNUvaOlinQ-",
            "fN1SbArXTPSVFNUvaOlinQ-07",
            "fN1SbArXTPSVFNUvaOlinQ-a",
        ] {
            assert_eq!(offered_by(&other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn causes_print_and_parse_alike() {
        for cause in Cause::ALL {
            assert_eq!(cause.to_string().parse(), Ok(cause));
        }
        assert!("weather".parse::<Cause>().is_err());
    }
}
