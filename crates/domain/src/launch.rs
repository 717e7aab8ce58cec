//! Launches: each is the intent to start workers, stored before the cloud is asked.
//!
//! A launch counts as capacity until its result is known, so nothing is launched twice. If the
//! answer is lost, the scan finds the machines by the token. Until then they count against the
//! maximum, and after half a minute no more as capacity to come.
//!
//! Other modules can read the fields of a launch, and cannot write them. Each transition consumes
//! the launch and returns the changed one, or an error. So no caller can forget a check:
//!
//! ```compile_fail,E0594
//! fn assign(launch: &mut domain::launch::Launch) {
//!     launch.state = domain::launch::LaunchState::Accepted;
//! }
//! ```

use std::ops::Deref;

use crate::Version;
use crate::id::{
    LaunchConfigId, LaunchToken, OfferingId, PoolId, ProviderId, WorkerId, names, text_in_json,
};
use crate::time::Timestamp;

/// The fields of a launch. Only the store and tests make a launch of them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLaunch {
    /// Identifies the launch: for the cloud, which must not act on one token twice, and on the
    /// machines.
    pub token: LaunchToken,
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    /// The offering of the bid that won, if the pool's strategy learns from its launches.
    pub offering: Option<OfferingId>,
    /// How many machines were requested; at least 1.
    pub machines: u32,
    /// How many tasks each machine runs at a time; at least 1.
    pub capacity_each: u32,
    /// Maximum price per hour and machine, in dollars; `None` leaves it to the cloud.
    pub max_price: Option<f64>,
    /// Agreed price per hour and machine, in dollars: that of the bid which won; `None`: not known.
    pub price: Option<f64>,
    pub state: LaunchState,
    /// When a process began to ask the cloud; stored before it asks. Only that process may ask.
    /// `None`: no process has asked, so no machine was made.
    pub asked: Option<Timestamp>,
    /// How many machines are known to have been made.
    pub made: u32,
    /// The plan that decided on it: its number within the pool.
    pub plan: i64,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// The fields of a new launch; `decide` sets the others.
pub struct NewLaunch {
    pub token: LaunchToken,
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    pub offering: Option<OfferingId>,
    pub machines: u32,
    pub capacity_each: u32,
    pub max_price: Option<f64>,
    pub price: Option<f64>,
    pub plan: i64,
}

/// Its fields are those of [`StoredLaunch`], and only its moves change them.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch(StoredLaunch);

/// The answer of a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchAnswer {
    /// It made this many machines.
    Made(u32),
    Refused {
        cause: Cause,
        problem: String,
    },
    /// It may have made machines or not.
    Unknown {
        problem: String,
    },
}

/// A move that the state of a launch does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchStateError {
    #[error("the launch is {0} already")]
    Settled(&'static str),
    #[error("another process asks the cloud for the launch")]
    AskedByAnother,
}

/// The state of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchState {
    /// Decided; the cloud may or may not know yet.
    Open,
    /// The cloud made machines; each has its worker.
    Accepted,
    /// The cloud made nothing.
    Refused { cause: Cause, problem: String },
    /// The result is not known.
    Unknown { problem: String },
    /// The cloud was never asked, for a reason of our own. This does not count against the launch
    /// config.
    Withdrawn { problem: String },
}

/// Why a cloud made nothing. Each cause has its own remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Out of stock: use another launch config.
    Capacity,
    /// A limit of the account: use another launch config. This one is not at fault.
    Quota,
    /// The launch config is wrong: a person must change it.
    Configuration,
    /// Too many requests: slow down. The launch config is not at fault.
    Throttled,
    /// Our credentials are not accepted: a person must check them.
    Credentials,
    /// The cloud does not work.
    Unavailable,
    /// The cloud was asked, and its answer was lost, or no machine ever appeared.
    Lost,
}

names! {
    Cause, "not a cause",
    Capacity = "capacity",
    Quota = "quota",
    Configuration = "configuration",
    Throttled = "throttled",
    Credentials = "credentials",
    Unavailable = "unavailable",
    Lost = "lost",
}

text_in_json!(Cause);

impl Cause {
    /// Whether a refusal for this cause counts against the launch config.
    pub fn is_ill_health(self) -> bool {
        match self {
            Self::Capacity | Self::Configuration | Self::Lost => true,
            Self::Quota | Self::Throttled | Self::Credentials | Self::Unavailable => false,
        }
    }
}

fn check_pending(state: &LaunchState) -> Result<(), LaunchStateError> {
    if state.is_pending() {
        return Ok(());
    }
    Err(LaunchStateError::Settled(state.as_str()))
}

/// The worker id that a launch offers to its machine with this number, if ids are left to us.
pub fn offered_id(token: &LaunchToken, number: u32) -> Option<WorkerId> {
    format!("{token}-{number}").parse().ok()
}

/// The launch that offers this worker id, if the id has the form of an offered id.
pub fn offered_by(id: &WorkerId) -> Option<LaunchToken> {
    let (token, number) = id.as_str().rsplit_once('-')?;
    let token = token.parse().ok()?;
    let is_offered = offered_id(&token, number.parse().ok()?).as_ref() == Some(id);
    is_offered.then_some(token)
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

    /// Whether the cloud may still have made machines that we do not know.
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
            offering: self.offering,
            machines: self.machines,
            capacity_each: self.capacity_each,
            max_price: self.max_price,
            price: self.price,
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
    /// For the store, which loads rows, and for tests: it checks nothing.
    pub fn from_stored(stored: StoredLaunch) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredLaunch {
        self.0
    }

    /// Reserves the call to the cloud for one process.
    pub fn ask(self, now: Timestamp) -> Result<Self, LaunchStateError> {
        let mut stored = self.0;
        if stored.state != LaunchState::Open {
            return Err(LaunchStateError::Settled(stored.state.as_str()));
        }
        if stored.asked.is_some() {
            return Err(LaunchStateError::AskedByAnother);
        }
        stored.asked = Some(now);
        stored.last_modified = now;
        Ok(Self(stored))
    }

    /// Stores the answer of the cloud, which may come late and more than once.
    pub fn settle(self, answer: LaunchAnswer, now: Timestamp) -> Result<Self, LaunchStateError> {
        let mut stored = self.0;
        let pending = check_pending(&stored.state);
        stored.state = match answer {
            LaunchAnswer::Made(machines) => {
                stored.made = stored.made.max(machines);
                LaunchState::Accepted
            }
            LaunchAnswer::Unknown { problem } => {
                pending?;
                LaunchState::Unknown { problem }
            }
            LaunchAnswer::Refused { cause, problem } => {
                pending?;
                // A scan has found machines of it: the cloud did not refuse.
                match stored.made {
                    0 => LaunchState::Refused { cause, problem },
                    _ => LaunchState::Accepted,
                }
            }
        };
        stored.last_modified = now;
        Ok(Self(stored))
    }

    /// Ends a launch that the cloud was not asked for. `asked` is the time at which the caller
    /// reserved the call, `None` if it did not.
    pub fn withdraw(
        self,
        asked: Option<Timestamp>,
        problem: String,
        now: Timestamp,
    ) -> Result<Self, LaunchStateError> {
        let mut stored = self.0;
        check_pending(&stored.state)?;
        if stored.asked != asked {
            return Err(LaunchStateError::AskedByAnother);
        }
        stored.state = LaunchState::Withdrawn { problem };
        stored.last_modified = now;
        Ok(Self(stored))
    }

    /// Counts a machine that a scan has found.
    pub fn add_machine(self) -> Result<Self, LaunchStateError> {
        let mut stored = self.0;
        check_pending(&stored.state)?;
        stored.made = stored.machines.min(stored.made + 1);
        Ok(Self(stored))
    }

    /// Settles a launch whose answer was lost: it made the machines that scans have found, and no
    /// others.
    pub fn give_up(self, problem: String, now: Timestamp) -> Result<Self, LaunchStateError> {
        let mut stored = self.0;
        check_pending(&stored.state)?;
        let was_lost = matches!(stored.state, LaunchState::Unknown { .. });
        stored.state = match stored.made {
            0 => LaunchState::Refused {
                cause: Cause::Lost,
                problem,
            },
            _ => LaunchState::Accepted,
        };
        // It failed when the answer was lost. A launch since then shows more than its end.
        if !was_lost || stored.made > 0 {
            stored.last_modified = now;
        }
        Ok(Self(stored))
    }

    pub fn capacity(&self) -> u64 {
        u64::from(self.machines) * u64::from(self.capacity_each)
    }

    /// Machines that were requested and not made, if this counts against the launch config: the
    /// cloud refused for such a cause, or it made fewer.
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
            offering: None,
            machines: 3,
            capacity_each: 1,
            max_price: None,
            price: None,
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
        let by_another = LaunchStateError::AskedByAnother;
        let asked = launch().ask(at(5)).unwrap();
        assert_eq!((asked.asked, asked.last_modified), (Some(at(5)), at(5)));
        assert_eq!(asked.clone().ask(at(6)), Err(by_another));
        for by in [None, Some(at(4))] {
            let text = "too late".to_owned();
            assert_eq!(asked.clone().withdraw(by, text, at(7)), Err(by_another));
        }
        let withdrawn = asked.withdraw(Some(at(5)), "held up".to_owned(), at(7));
        assert_eq!(withdrawn.unwrap().state.as_str(), "withdrawn");
        let text = "another process asks the cloud for the launch";
        assert_eq!(by_another.to_string(), text);
    }

    #[test]
    fn a_settled_launch_refuses_every_move_but_news_of_machines() {
        let text = || "late".to_owned();
        let states = [
            launch().settle(LaunchAnswer::Made(3), at(5)),
            launch().settle(refused(), at(5)),
            launch().withdraw(None, text(), at(5)),
        ];
        for (settled, name) in states.into_iter().zip(["accepted", "refused", "withdrawn"]) {
            let settled = settled.unwrap();
            let again = || settled.clone();
            for moved in [
                again().ask(at(6)),
                again().settle(refused(), at(6)),
                again().settle(unknown(), at(6)),
                again().withdraw(None, text(), at(6)),
                again().add_machine(),
                again().give_up(text(), at(6)),
            ] {
                assert_eq!(moved, Err(LaunchStateError::Settled(name)));
            }
            let error = LaunchStateError::Settled(name).to_string();
            assert_eq!(error, format!("the launch is {name} already"));
            let found = again().settle(LaunchAnswer::Made(3), at(6)).unwrap();
            assert_eq!((found.made, found.state.as_str()), (3, "accepted"));
        }
        // Its answer was lost: another call could make the machines a second time.
        let lost = launch().settle(unknown(), at(5)).unwrap().ask(at(6));
        assert_eq!(lost, Err(LaunchStateError::Settled("unknown")));
    }

    #[test]
    fn a_machine_that_was_found_outweighs_a_refusal() {
        let refusal = launch().settle(refused(), at(5)).unwrap();
        assert_eq!(
            (refusal.state.as_str(), refusal.failed_machines()),
            ("refused", 3)
        );
        let found = launch().settle(unknown(), at(5)).unwrap();
        let found = found.add_machine().unwrap();
        assert_eq!((found.made, found.state.as_str()), (1, "unknown"));
        let accepted = found.clone().settle(refused(), at(6)).unwrap();
        assert_eq!((accepted.made, accepted.state.as_str()), (1, "accepted"));
        let concluded = found.give_up("lost".to_owned(), at(6)).unwrap();
        assert_eq!(concluded.state, LaunchState::Accepted);
    }

    #[test]
    fn a_late_answer_that_machines_were_made_is_always_taken() {
        let given_up = launch().give_up("lost".to_owned(), at(5)).unwrap();
        assert_eq!(given_up.state.as_str(), "refused");
        let late = given_up.settle(LaunchAnswer::Made(2), at(6)).unwrap();
        assert_eq!((late.made, late.state.as_str()), (2, "accepted"));
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
                    5 => launch.clone().add_machine(),
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
