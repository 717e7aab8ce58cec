//! The failure of a command: message, hint and exit code.

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
    /// The exit code that shells use for Ctrl-C.
    Interrupted = 130,
}

/// The part of `--help` that documents them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure
  2  usage error, or confirmation needed and no terminal
  3  not found
  4  not allowed (missing, wrong or insufficient credentials)
  5  conflict with the current state
  6  server unreachable
  7  differences found with --check
130  interrupted by Ctrl-C";

/// Maximum number of failures to list; further ones are counted.
const MAX_LISTED: usize = 50;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Whether it was logged: then it is not printed again.
    pub(crate) is_logged: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
            is_logged: false,
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The messages of failures, indented.
pub(crate) fn listed<'a>(failures: impl ExactSizeIterator<Item = &'a Failure>) -> Vec<String> {
    let n_more = failures.len().saturating_sub(MAX_LISTED);
    let messages = failures.take(MAX_LISTED);
    let messages = messages.map(|failure| format!("  {}", failure.message.replace('\n', "\n  ")));
    let more = (n_more > 0).then(|| format!("  and {n_more} more"));
    messages.chain(more).collect()
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
            hint: error.advice,
            ..Self::usage(error.message)
        }
    }
}
