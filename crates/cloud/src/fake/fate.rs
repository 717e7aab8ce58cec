//! What the fake cloud can be told to do: the good, the bad and the nasty.

use domain::launch::Cause;

use crate::LaunchOrder;

/// What becomes of one call to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Machines are made, as many as there is stock for.
    Made,
    /// At most so many are made.
    Partial(u32),
    /// None is made, and the cloud says why. What it says at its door (that it is too busy, does not work, or does not
    /// know us) it also says to a call that it has heard before.
    Refused(Cause),
    /// They are made, and the answer is lost.
    AnswerLost,
    /// None is made, and nobody can tell.
    CallLost,
    /// They are made and never come up.
    NeverUp,
    /// They are made and die by themselves after so many milliseconds.
    Dying(i64),
}

/// Decides on each launch that no script speaks of; with chance in it, or with a plan.
pub type Decider = Box<dyn FnMut(&LaunchOrder<'_>) -> Fate + Send>;

/// The calls that a cloud knows, for counting and for making them fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Launch,
    Look,
    Owned,
    End,
    Refresh,
}
