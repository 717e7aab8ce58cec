//! Prints the output of all commands: results, notes, errors, questions.
//!
//! A closed pipe (`| head`) is not a failure; unlike the print macros, these functions do not
//! panic on it. Other write errors are recorded, and the command fails at its end.

mod age;
mod capture;
mod foreign;
mod progress;
mod table;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

pub(crate) use age::{age, clock, parse_moment, parse_past_moment};
pub(crate) use capture::{captured, is_capturing};
pub(crate) use foreign::ForeignText;
pub(crate) use progress::Progress;
pub(crate) use table::{
    Column, Kind, clock_of, details, grid, printable, screen_height, screen_width, table,
};

use crate::failure::Failure;

/// The first error of writing a result.
static NOT_WRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// Whether tables ignore the width of the screen.
static WIDE: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_wide(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// Prints a result.
pub(crate) fn out(text: &str) {
    if capture::keep(text) {
        return;
    }
    let mut stdout = std::io::stdout().lock();
    record_write(writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush()));
}

/// Prints a result byte for byte: a file, a script.
pub(crate) fn out_raw(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    record_write(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

pub(crate) fn record_write(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _only_the_first_counts = NOT_WRITTEN.set(error);
    }
}

pub(crate) fn check_written() -> Result<(), Failure> {
    match NOT_WRITTEN.get() {
        None => Ok(()),
        Some(error) => Err(Failure::failed(format!("cannot write the output: {error}"))),
    }
}

pub(crate) fn json(document: &Value) {
    out(&pretty(document));
}

/// Indented JSON.
pub(crate) fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).expect("a JSON value can be written as text")
}

/// `1 worker`, `2 workers`.
pub(crate) fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let s = if count == "1" { "" } else { "s" };
    format!("{count} {one}{s}")
}

/// Prints a note to standard error: progress, a warning.
pub(crate) fn note(text: &str) {
    let _closed_pipe = writeln!(std::io::stderr().lock(), "{text}");
}

pub(crate) fn failure(failure: &Failure) {
    if failure.is_logged {
        return;
    }
    note(&format!("error: {}", failure.message));
    if let Some(hint) = &failure.hint {
        note(&format!("  hint: {hint}"));
    }
}

/// Whether results go to a terminal.
pub(crate) fn to_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether to print colours.
pub(crate) fn in_colour() -> bool {
    to_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Asks for confirmation. Without a terminal and `--yes`, refuses.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!(
            "cannot ask for confirmation to {what}: no terminal"
        ))
        .with_hint("use --yes to confirm"));
    }
    let mut stderr = std::io::stderr().lock();
    let _closed_pipe = write!(stderr, "{what}? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::failed("nothing was done")),
    }
}
