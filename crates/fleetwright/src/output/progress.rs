//! Reports progress on operations that take longer than a second.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::note;
use crate::machine::Stopwatch;

const PATIENCE: Duration = Duration::from_secs(1);
/// Longer for logs than for terminals, where each line replaces the last.
const PATIENCE_OF_LOG: Duration = Duration::from_secs(5);

/// Progress of one operation, on standard error.
pub(crate) struct Progress {
    last: Stopwatch,
    on_terminal: bool,
    is_line_open: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self {
            last: Stopwatch::start(),
            on_terminal: std::io::stderr().is_terminal(),
            is_line_open: false,
        }
    }

    /// Reports the current one of several steps.
    pub(crate) fn step(&mut self, verb: &str, position: usize, total: usize, title: String) {
        self.report(|| format!("{verb}: {position} of {total}, now {title}"));
    }

    /// Prints the text if the last one is old enough.
    pub(crate) fn report(&mut self, text: impl FnOnce() -> String) {
        let patience = if self.on_terminal {
            PATIENCE
        } else {
            PATIENCE_OF_LOG
        };
        if self.last.elapsed() < patience {
            return;
        }
        self.last = Stopwatch::start();
        if self.on_terminal {
            self.is_line_open = true;
            let mut stderr = std::io::stderr().lock();
            let _closed_pipe = write!(stderr, "\r\x1b[K{}", text()).and_then(|()| stderr.flush());
        } else {
            note(&text());
        }
    }
}

impl Drop for Progress {
    /// Clears the line, so that the result starts on an empty one.
    fn drop(&mut self) {
        if self.is_line_open {
            let mut stderr = std::io::stderr().lock();
            let _closed_pipe = write!(stderr, "\r\x1b[K").and_then(|()| stderr.flush());
        }
    }
}
