//! A launch: the intent to start workers, written down before any cloud hears of it.
//!
//! What it asked for counts as capacity until the answer is known, so nothing is launched twice. A
//! lost answer makes it unknown, never failed: the scan finds out by its token.
//!
//! Everybody may read a launch, and nobody writes into one: each move consumes the launch and gives
//! back what has become of it, or `None` if somebody was faster.
//!
//! ```compile_fail,E0594
//! fn assign(launch: &mut domain::launch::Launch) {
//!     launch.state = domain::launch::LaunchState::Accepted;
//! }
//! ```

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::Version;
use crate::id::{LaunchConfigId, LaunchToken, PoolId, ProviderId, WorkerId};
use crate::time::Timestamp;

/// A launch as it is stored: for loading, and for tests.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLaunch {
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

/// What is known of a launch that is decided on.
pub struct NewLaunch {
    pub token: LaunchToken,
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    pub machines: u32,
    pub capacity_each: u32,
    pub max_price: Option<f64>,
    pub plan: i64,
}

/// May be read as it is stored, and changes only by its moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch(StoredLaunch);

/// What the cloud said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchAnswer {
    /// It made this many machines.
    Made(u32),
    Refused {
        cause: Cause,
        problem: String,
    },
    /// Nobody knows.
    Unknown {
        problem: String,
    },
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

impl Deref for Launch {
    type Target = StoredLaunch;

    fn deref(&self) -> &StoredLaunch {
        &self.0
    }
}

impl NewLaunch {
    /// Written down before any cloud hears of it.
    pub fn decide(self, now: Timestamp) -> Launch {
        Launch(StoredLaunch {
            token: self.token,
            pool_id: self.pool_id,
            provider_id: self.provider_id,
            launch_config_id: self.launch_config_id,
            machines: self.machines,
            capacity_each: self.capacity_each,
            max_price: self.max_price,
            state: LaunchState::Open,
            asked: None,
            made: 0,
            plan: self.plan,
            created: now,
            last_modified: now,
            version: Version::FIRST,
        })
    }
}

impl Launch {
    /// What the store has loaded.
    pub fn from_stored(stored: StoredLaunch) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredLaunch {
        self.0
    }

    /// Somebody asks the cloud from now on, and nobody else may. `None`: another has asked, or the
    /// launch is over.
    pub fn ask(self, now: Timestamp) -> Option<Self> {
        let mut stored = self.0;
        if stored.state != LaunchState::Open || stored.asked.is_some() {
            return None;
        }
        stored.asked = Some(now);
        stored.last_modified = now;
        Some(Self(stored))
    }

    /// The cloud has answered; it may do so again, and late. `None`: what is known is more than this.
    pub fn settle(self, answer: LaunchAnswer, now: Timestamp) -> Option<Self> {
        let mut stored = self.0;
        let is_pending = stored.state.is_pending();
        stored.state = match answer {
            LaunchAnswer::Made(machines) => {
                stored.made = stored.made.max(machines);
                LaunchState::Accepted
            }
            // A scan has found machines of it, or given it up.
            LaunchAnswer::Refused { .. } | LaunchAnswer::Unknown { .. } if !is_pending => {
                return None;
            }
            LaunchAnswer::Unknown { problem } => LaunchState::Unknown { problem },
            // Some of its machines have been seen: it was not refused, whatever the answer says.
            LaunchAnswer::Refused { .. } if stored.made > 0 => LaunchState::Accepted,
            LaunchAnswer::Refused { cause, problem } => LaunchState::Refused { cause, problem },
        };
        stored.last_modified = now;
        Some(Self(stored))
    }

    /// The cloud was not asked by whoever wrote down at this moment, if at all, that it would.
    /// `None`: another asks or has, or the launch is over.
    pub fn withdraw(
        self,
        asked: Option<Timestamp>,
        problem: String,
        now: Timestamp,
    ) -> Option<Self> {
        let mut stored = self.0;
        if !stored.state.is_pending() || stored.asked != asked {
            return None;
        }
        stored.state = LaunchState::Withdrawn { problem };
        stored.last_modified = now;
        Some(Self(stored))
    }

    /// A machine of it was found: it is no longer to come. `None`: the launch is over.
    pub fn find_machine(self) -> Option<Self> {
        let mut stored = self.0;
        if !stored.state.is_pending() {
            return None;
        }
        stored.made = stored.machines.min(stored.made + 1);
        Some(Self(stored))
    }

    /// Nobody will tell its outcome any more: the machines that were found are all there are. `None`:
    /// the launch is over.
    pub fn give_up(self, problem: String, now: Timestamp) -> Option<Self> {
        let mut stored = self.0;
        if !stored.state.is_pending() {
            return None;
        }
        stored.state = match stored.made {
            0 => LaunchState::Refused {
                cause: Cause::Lost,
                problem,
            },
            _ => LaunchState::Accepted,
        };
        stored.last_modified = now;
        Some(Self(stored))
    }

    pub fn capacity(&self) -> u64 {
        u64::from(self.machines) * u64::from(self.capacity_each)
    }

    /// Machines that the cloud did not make, where that speaks against the launch config: it
    /// refused for such a cause, or it made fewer than were asked for.
    pub fn not_made(&self) -> u32 {
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
    use proptest::prelude::*;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn launch() -> Launch {
        let new = NewLaunch {
            token: "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap(),
            pool_id: "pp/wt".parse().unwrap(),
            provider_id: "p".parse().unwrap(),
            launch_config_id: "lc".parse().unwrap(),
            machines: 3,
            capacity_each: 1,
            max_price: None,
            plan: 1,
        };
        new.decide(at(1))
    }

    fn refused() -> LaunchAnswer {
        LaunchAnswer::Refused {
            cause: Cause::Capacity,
            problem: "none left".to_owned(),
        }
    }

    fn unknown() -> LaunchAnswer {
        LaunchAnswer::Unknown {
            problem: "no answer".to_owned(),
        }
    }

    #[test]
    fn one_process_asks_and_no_other_withdraws() {
        let asked = launch().ask(at(5)).unwrap();
        assert_eq!((asked.asked, asked.last_modified), (Some(at(5)), at(5)));
        assert_eq!(asked.clone().ask(at(6)), None);
        for by in [None, Some(at(4))] {
            let text = "too late".to_owned();
            assert_eq!(asked.clone().withdraw(by, text, at(7)), None);
        }
        let withdrawn = asked.withdraw(Some(at(5)), "held up".to_owned(), at(7));
        let withdrawn = withdrawn.unwrap();
        assert_eq!(withdrawn.state.as_str(), "withdrawn");
        assert_eq!(withdrawn.clone().ask(at(8)), None);
        assert_eq!(withdrawn.settle(unknown(), at(9)), None);
    }

    #[test]
    fn a_machine_that_was_found_outweighs_a_refusal() {
        let refusal = launch().settle(refused(), at(5)).unwrap();
        assert_eq!((refusal.state.as_str(), refusal.not_made()), ("refused", 3));
        let found = launch().settle(unknown(), at(5)).unwrap();
        let found = found.find_machine().unwrap();
        assert_eq!((found.made, found.state.as_str()), (1, "unknown"));
        let accepted = found.clone().settle(refused(), at(6)).unwrap();
        assert_eq!((accepted.made, accepted.state.as_str()), (1, "accepted"));
        let concluded = found.give_up("lost".to_owned(), at(6)).unwrap();
        assert_eq!(concluded.state, LaunchState::Accepted);
        assert_eq!(concluded.find_machine(), None);
    }

    #[test]
    fn a_late_answer_that_machines_were_made_is_always_taken() {
        let given_up = launch().give_up("lost".to_owned(), at(5)).unwrap();
        assert_eq!(given_up.state.as_str(), "refused");
        let late = given_up.settle(LaunchAnswer::Made(2), at(6)).unwrap();
        assert_eq!((late.made, late.state.as_str()), (2, "accepted"));
        assert_eq!(late.clone().give_up(String::new(), at(7)), None);
        let again = late.settle(LaunchAnswer::Made(1), at(8)).unwrap();
        assert_eq!(again.made, 2);
    }

    /// How far a launch has come.
    fn rank(state: &LaunchState) -> u8 {
        match state {
            LaunchState::Open => 0,
            LaunchState::Unknown { .. } => 1,
            LaunchState::Refused { .. } | LaunchState::Withdrawn { .. } => 2,
            LaunchState::Accepted => 3,
        }
    }

    proptest! {
        #[test]
        fn a_state_never_moves_backward(moves in proptest::collection::vec(0_u8..7, 0..20)) {
            let mut launch = launch();
            for (now, step) in (10..).zip(moves) {
                let (before, now) = (launch.clone(), at(now));
                let moved = match step {
                    0 => launch.clone().ask(now),
                    1 => launch.clone().settle(LaunchAnswer::Made(2), now),
                    2 => launch.clone().settle(refused(), now),
                    3 => launch.clone().settle(unknown(), now),
                    4 => launch.clone().withdraw(before.asked, String::new(), now),
                    5 => launch.clone().find_machine(),
                    _ => launch.clone().give_up(String::new(), now),
                };
                launch = moved.unwrap_or(launch);
                prop_assert!(rank(&launch.state) >= rank(&before.state));
                prop_assert!(launch.made >= before.made);
                prop_assert!(launch.asked >= before.asked);
            }
        }
    }

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
