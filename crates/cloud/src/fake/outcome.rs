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
    /// Machines are made, and the response is lost.
    AnswerLost,
    /// The request is lost, and none is made.
    CallLost,
    /// Machines are made, and their workers never start.
    NeverUp,
    /// Machines are made and end by themselves after this many milliseconds.
    Dying(i64),
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
