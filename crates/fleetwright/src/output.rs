//! Everything a command prints goes through here: results, notes, errors, questions.
//!
//! A reader that has gone away (`| head`) is no failure, so that error is dropped; nothing here
//! panics on a closed pipe as the print macros do. A result that could not be written for another
//! reason is remembered until the command ends, which then has failed.

mod age;
mod diff;
mod progress;
mod table;

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

pub(crate) use age::{age, parse_moment};
pub(crate) use diff::unified;
pub(crate) use progress::Progress;
pub(crate) use table::{Column, Kind, details, grid, printable, screen_width, table};

use crate::failure::Failure;

/// Why a result did not reach its reader: the first reason.
static NOT_WRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// Whether tables are printed in full width, whatever the screen.
static WIDE: AtomicBool = AtomicBool::new(false);

/// Prints tables in full width from now on.
pub(crate) fn set_wide(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// Prints a result.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    record_write(writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush()));
}

/// Prints a result as it is, byte for byte: a file, a script.
pub(crate) fn out_raw(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    record_write(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Keeps in mind that a result was not written.
pub(crate) fn record_write(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _another_was_first = NOT_WRITTEN.set(error);
    }
}

/// Whether all results went where they should.
pub(crate) fn check_written() -> Result<(), Failure> {
    match NOT_WRITTEN.get() {
        None => Ok(()),
        Some(error) => Err(Failure::failed(format!("cannot write the output: {error}"))),
    }
}

/// Prints a document for programs.
pub(crate) fn json(document: &Value) {
    out(&pretty(document));
}

/// JSON as people like to read it.
pub(crate) fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).expect("a JSON value can be written as text")
}

/// Says something that is not a result: progress, a warning, what was done.
pub(crate) fn note(text: &str) {
    let _reader_has_gone = writeln!(std::io::stderr().lock(), "{text}");
}

/// Says what went wrong, and what to do.
pub(crate) fn failure(failure: &Failure) {
    if failure.is_logged {
        return;
    }
    note(&format!("error: {}", failure.message));
    if let Some(advice) = &failure.hint {
        note(&format!("  hint: {advice}"));
    }
}

/// Whether results go to a person's screen.
pub(crate) fn to_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether results may have colours.
pub(crate) fn in_colour() -> bool {
    to_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Asks before something is destroyed. Nobody there to answer is a refusal.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(
            Failure::usage(format!("would {what}, but there is no terminal to ask on"))
                .with_hint("give --yes if that is meant"),
        );
    }
    let mut stderr = std::io::stderr().lock();
    let _reader_has_gone = write!(stderr, "{what}? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::failed("nothing was done")),
    }
}
