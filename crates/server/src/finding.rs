//! The result of one check of the doctor.

use std::fmt::Display;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Good,
    Warning,
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    pub state: State,
    /// How to fix the problem.
    pub advice: Option<String>,
}

impl Finding {
    pub(crate) fn good(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state: State::Good,
            advice: None,
        }
    }

    pub(crate) fn bad(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            state: State::Bad,
            advice: Some(advice.into()),
        }
    }

    /// `good` if it works; otherwise `bad` with the problem, and the advice.
    pub(crate) fn of<T>(
        result: Result<T, impl Display>,
        good: impl Into<String>,
        bad: impl Display,
        advice: &str,
    ) -> Self {
        match result {
            Ok(_) => Self::good(good),
            Err(problem) => Self::bad(format!("{bad}: {problem}"), advice),
        }
    }

    pub(crate) fn warning(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Warning,
            ..Self::bad(what, advice)
        }
    }
}
