//! Scripted outcomes of calls to the fake cloud.

use domain::launch::Cause;

use crate::LaunchOrder;

/// The outcome of one launch call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchOutcome {
    /// Machines are made, as many as the stock allows.
    Made,
    /// At most this many machines are made.
    Partial(u32),
    /// None is made, and the cloud reports this cause. Causes that do not depend on the order
    /// (throttled, unavailable, bad credentials) are reported also when the token was used before.
    Refused(Cause),
    /// The same, with the words of the cloud.
    RefusedSaying(Cause, String),
    /// Machines are made, and the response is lost.
    AnswerLost,
    /// The request is lost, and none is made.
    CallLost,
    /// Machines are made, and their workers never start.
    NeverUp,
    /// Machines are made and end by themselves after this many milliseconds.
    Dying(i64),
}

impl LaunchOutcome {
    /// The cause and the words, if it is a refusal.
    pub(super) fn refusal(&self) -> Option<(Cause, &str)> {
        match self {
            Self::Refused(cause) => Some((*cause, "the script says so")),
            Self::RefusedSaying(cause, words) => Some((*cause, words)),
            Self::Made
            | Self::Partial(_)
            | Self::AnswerLost
            | Self::CallLost
            | Self::NeverUp
            | Self::Dying(_) => None,
        }
    }
}

/// Decides the outcome of each launch that has no scripted one.
pub type Decider = Box<dyn FnMut(&LaunchOrder<'_>) -> LaunchOutcome + Send>;

/// The calls to a cloud, for counting them and for making them fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Launch,
    Look,
    Owned,
    End,
    Refresh,
    UploadImage,
    FindImage,
    DeleteImage,
    OwnedImages,
    PreparePool,
    ReleasePool,
    Terminate,
}
