//! The machines of a canary, and what happened to them.

use crate::time::Timestamp;

/// Which image a machine started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CanaryGroup {
    /// The new build.
    Canary,
    /// The build in use.
    Control,
}

/// The outcome of the start of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartOutcome {
    /// It may still register, or claim its first task.
    Pending,
    /// It registered and claimed a task.
    Good,
    NeverRegistered,
    NeverClaimed,
    /// The provider refused the image.
    Refused,
    /// The worker ran beside the image, not in it: whatever it did says nothing about the image.
    BesideImage,
}

/// One run of a task on the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunTrial {
    pub resolved: Timestamp,
    pub is_good: bool,
    pub duration_ms: Option<i64>,
}

/// A machine of the test.
///
/// A machine that was stopped before it could claim a task shows nothing: leave it out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trial {
    pub created: Timestamp,
    /// Identifies the machine. Orders machines that were created at the same time.
    pub id: String,
    pub group: CanaryGroup,
    pub start: StartOutcome,
    /// From its creation to its registration.
    pub ready_ms: Option<i64>,
    /// In any order.
    pub runs: Vec<RunTrial>,
}

/// A machine with its runs in the order of their ends.
pub(super) struct Member<'a> {
    pub trial: &'a Trial,
    pub runs: Vec<&'a RunTrial>,
}

/// The machines in the order of their creation.
pub(super) struct Sequence<'a> {
    members: Vec<Member<'a>>,
}

impl StartOutcome {
    /// `None`: it is not known yet, or says nothing.
    pub(super) fn is_good(self) -> Option<bool> {
        match self {
            Self::Pending | Self::BesideImage => None,
            Self::Good => Some(true),
            Self::NeverRegistered | Self::NeverClaimed | Self::Refused => Some(false),
        }
    }
}

impl RunTrial {
    /// A clock that stepped can make a duration negative: then it is not known.
    pub(super) fn valid_duration(&self) -> Option<i64> {
        self.duration_ms.filter(|ms| *ms >= 0)
    }
}

impl Trial {
    /// A clock that stepped can make it negative: then it is not known.
    pub(super) fn valid_ready(&self) -> Option<i64> {
        self.ready_ms.filter(|ms| *ms >= 0)
    }
}

impl<'a> Sequence<'a> {
    pub(super) fn new(trials: &'a [Trial], since: Timestamp) -> Self {
        let is_evidence =
            |it: &&Trial| it.created >= since && it.start != StartOutcome::BesideImage;
        let mut trials: Vec<&Trial> = trials.iter().filter(is_evidence).collect();
        trials.sort_unstable();
        let members = trials.into_iter().map(|trial| {
            let mut runs: Vec<&RunTrial> = trial.runs.iter().collect();
            runs.sort_unstable();
            Member { trial, runs }
        });
        Self {
            members: members.collect(),
        }
    }

    pub(super) fn by_creation(&self) -> impl Iterator<Item = (CanaryGroup, &Member<'a>)> {
        let members = self.members.iter();
        members.map(|member| (member.trial.group, member))
    }

    /// Values of the machines that have one, in the order of the moments at which they had it.
    pub(super) fn by_moment(
        &self,
        value: impl Fn(&Member<'a>) -> Option<(Timestamp, f64)>,
    ) -> impl Iterator<Item = (CanaryGroup, f64)> {
        let members = self.members.iter();
        let valued = members.filter_map(|member| {
            let (moment, value) = value(member)?;
            Some((moment, member.trial, value))
        });
        let mut valued: Vec<_> = valued.collect();
        // Stable: machines with the same moment stay in the order of their creation.
        valued.sort_by_key(|(moment, _, _)| *moment);
        let groups = valued.into_iter();
        groups.map(|(_, trial, value)| (trial.group, value))
    }

    pub(super) fn group(&self, group: CanaryGroup) -> impl Iterator<Item = &Member<'a>> {
        let members = self.members.iter();
        members.filter(move |member| member.trial.group == group)
    }

    pub(super) fn has_ready_times(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.trial.valid_ready().is_some())
    }

    /// Whether a good first run has a duration.
    pub(super) fn has_durations(&self) -> bool {
        let mut runs = self.members.iter().filter_map(|member| member.runs.first());
        runs.any(|run| run.is_good && run.valid_duration().is_some())
    }
}
