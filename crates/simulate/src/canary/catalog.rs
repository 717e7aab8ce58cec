//! The catalog of canaries: images, and the fleets in which they are tested.

use std::fmt;
use std::str::FromStr;

/// An image, and the fleet in which it is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CanaryScenario {
    EqualReliable,
    Equal,
    EqualFlaky,
    EqualOutage,
    EqualBadMachines,
    EqualHeavyTails,
    EqualOneTask,
    EqualHalf,
    NeverRegisters,
    StartsFail10,
    StartsFail20,
    TasksFail15,
    TasksFail20,
    TasksFail20OneTask,
    TasksFailAll,
    Slower30,
    Slower30Steady,
    Slower30HeavyTails,
    SlowerBoot30,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a canary scenario; there are {known}")]
pub struct UnknownCanaryScenario {
    text: String,
    known: String,
}

/// The fleet and the image of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct CanaryWorld {
    /// The share of the canary.
    pub share: f64,
    /// The share of starts that fail with either image.
    pub failed_starts: f64,
    /// The share of runs that fail with either image.
    pub failed_runs: f64,
    /// The deviation of the logarithm of durations.
    pub spread: f64,
    /// The mean number of tasks of a machine, at least 1.
    pub tasks: f64,
    /// Whether all starts and runs fail for an hour.
    pub has_outage: bool,
    /// The share of machines on which most runs fail.
    pub bad_machines: f64,
    /// The share of starts that fail because of the new image.
    pub broken_starts: f64,
    /// The share of runs that fail because of the new image.
    pub broken_runs: f64,
    /// The factor of the durations of runs with the new image.
    pub slower_runs: f64,
    /// The factor of the times until a machine registers.
    pub slower_boot: f64,
}

/// A usual fleet with an image that is as good as the one in use.
const USUAL: CanaryWorld = CanaryWorld {
    share: 0.1,
    failed_starts: 0.02,
    failed_runs: 0.03,
    spread: 0.5,
    tasks: 4.0,
    has_outage: false,
    bad_machines: 0.0,
    broken_starts: 0.0,
    broken_runs: 0.0,
    slower_runs: 1.0,
    slower_boot: 1.0,
};

impl CanaryScenario {
    pub const ALL: [Self; 19] = [
        Self::EqualReliable,
        Self::Equal,
        Self::EqualFlaky,
        Self::EqualOutage,
        Self::EqualBadMachines,
        Self::EqualHeavyTails,
        Self::EqualOneTask,
        Self::EqualHalf,
        Self::NeverRegisters,
        Self::StartsFail10,
        Self::StartsFail20,
        Self::TasksFail15,
        Self::TasksFail20,
        Self::TasksFail20OneTask,
        Self::TasksFailAll,
        Self::Slower30,
        Self::Slower30Steady,
        Self::Slower30HeavyTails,
        Self::SlowerBoot30,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::EqualReliable => "equal-reliable",
            Self::Equal => "equal",
            Self::EqualFlaky => "equal-flaky",
            Self::EqualOutage => "equal-outage",
            Self::EqualBadMachines => "equal-bad-machines",
            Self::EqualHeavyTails => "equal-heavy-tails",
            Self::EqualOneTask => "equal-one-task",
            Self::EqualHalf => "equal-half",
            Self::NeverRegisters => "never-registers",
            Self::StartsFail10 => "starts-fail-10",
            Self::StartsFail20 => "starts-fail-20",
            Self::TasksFail15 => "tasks-fail-15",
            Self::TasksFail20 => "tasks-fail-20",
            Self::TasksFail20OneTask => "tasks-fail-20-one-task",
            Self::TasksFailAll => "tasks-fail-all",
            Self::Slower30 => "slower-30",
            Self::Slower30Steady => "slower-30-steady",
            Self::Slower30HeavyTails => "slower-30-heavy-tails",
            Self::SlowerBoot30 => "slower-boot-30",
        }
    }

    /// One line for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::EqualReliable => "equal images; 0.5 % of starts and 1 % of runs fail",
            Self::Equal => "equal images; 2 % of starts and 3 % of runs fail",
            Self::EqualFlaky => "equal images; 10 % of starts and of runs fail",
            Self::EqualOutage => "equal images; all starts and runs fail for an hour",
            Self::EqualBadMachines => "equal images; 5 % of machines fail 80 % of their runs",
            Self::EqualHeavyTails => "equal images; 5 % of runs take over 12 times the median",
            Self::EqualOneTask => "equal images; a machine runs one task",
            Self::EqualHalf => "equal images; half of the machines are the canary",
            Self::NeverRegisters => "no machine registers",
            Self::StartsFail10 => "10 % more starts fail: the margin",
            Self::StartsFail20 => "20 % more starts fail",
            Self::TasksFail15 => "15 % more runs fail: the margin",
            Self::TasksFail20 => "20 % more runs fail",
            Self::TasksFail20OneTask => "20 % more runs fail; a machine runs one task",
            Self::TasksFailAll => "all runs fail",
            Self::Slower30 => "runs take 30 % longer; 5 % take over 2.3 times the median",
            Self::Slower30Steady => "runs take 30 % longer; 5 % take over 1.4 times the median",
            Self::Slower30HeavyTails => "runs take 30 % longer; 5 % take over 5 times the median",
            Self::SlowerBoot30 => "machines take 30 % longer to register",
        }
    }

    pub fn is_equal(self) -> bool {
        let world = self.world();
        let breaks_nothing = world.broken_starts == 0.0 && world.broken_runs == 0.0;
        breaks_nothing && world.slower_runs <= 1.0 && world.slower_boot <= 1.0
    }

    pub(super) fn world(self) -> CanaryWorld {
        let mut world = USUAL;
        match self {
            Self::Equal => {}
            Self::EqualReliable => {
                (world.failed_starts, world.failed_runs) = (0.005, 0.01);
            }
            Self::EqualFlaky => {
                (world.failed_starts, world.failed_runs) = (0.1, 0.1);
            }
            Self::EqualOutage => {
                world.has_outage = true;
            }
            Self::EqualBadMachines => world.bad_machines = 0.05,
            Self::EqualHeavyTails => world.spread = 1.5,
            Self::EqualOneTask => world.tasks = 1.0,
            Self::EqualHalf => world.share = 0.5,
            Self::NeverRegisters => world.broken_starts = 1.0,
            Self::StartsFail10 => world.broken_starts = 0.1,
            Self::StartsFail20 => world.broken_starts = 0.2,
            Self::TasksFail15 => world.broken_runs = 0.15,
            Self::TasksFail20 => world.broken_runs = 0.2,
            Self::TasksFail20OneTask => {
                (world.broken_runs, world.tasks) = (0.2, 1.0);
            }
            Self::TasksFailAll => world.broken_runs = 1.0,
            Self::Slower30 => world.slower_runs = 1.3,
            Self::Slower30Steady => {
                (world.slower_runs, world.spread) = (1.3, 0.2);
            }
            Self::Slower30HeavyTails => {
                (world.slower_runs, world.spread) = (1.3, 1.0);
            }
            Self::SlowerBoot30 => world.slower_boot = 1.3,
        }
        world
    }
}

impl fmt::Display for CanaryScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CanaryScenario {
    type Err = UnknownCanaryScenario;

    fn from_str(text: &str) -> Result<Self, UnknownCanaryScenario> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| UnknownCanaryScenario {
            text: text.to_owned(),
            known: Self::ALL.map(Self::as_str).join(", "),
        })
    }
}
