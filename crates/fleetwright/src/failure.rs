//! Why a command did not do what it was asked to, and the exit code that says so to scripts.

use std::process::ExitCode;

/// The exit codes. Scripts rely on them: a number never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    NotAllowed = 4,
    Conflict = 5,
    Unreachable = 6,
    Differs = 7,
    /// As shells count it for Ctrl-C.
    Interrupted = 130,
}

/// The part of `--help` that documents them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  wrong usage, or an answer was needed and nobody could be asked
  3  not found
  4  not allowed (no, wrong or insufficient credentials)
  5  conflict with what is there already
  6  the server cannot be reached
  7  something differs, and --check was given
130  interrupted by Ctrl-C";

/// What happened, to what, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) advice: Option<String>,
    /// Whether the log has it: then it is not said again.
    pub(crate) is_logged: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            advice: None,
            is_logged: false,
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<files::FileError> for Failure {
    fn from(error: files::FileError) -> Self {
        Self {
            advice: error.advice,
            ..Self::usage(error.message)
        }
    }
}
