//! `--watch` of lists: runs the command again and again, and prints the list whenever it changed.

use std::time::Duration;

use clap::ArgMatches;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::output;

/// The id of the flag in all lists.
pub(crate) const FLAG: &str = "watch_list";
/// The interval of asking again.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// Moves to the top of the screen, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Whether the command has the flag.
pub(crate) fn is_wanted(matches: &ArgMatches) -> bool {
    let flag = matches.try_get_one::<bool>(FLAG).ok().flatten();
    let below = matches.subcommand();
    flag == Some(&true) || below.is_some_and(|(_, matches)| is_wanted(matches))
}

/// Runs the command until it fails. `pause` waits for the interval.
pub(crate) fn run(
    mut command: impl FnMut() -> Result<(), Failure>,
    mut pause: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut before: Option<String> = None;
    loop {
        let (done, text) = output::captured(&mut command);
        match done {
            Ok(()) => {
                let steady = steady(&text);
                if before.as_ref() != Some(&steady) {
                    print(&text);
                    before = Some(steady);
                }
            }
            // The server may start again.
            Err(failure) if failure.exit == Exit::Unreachable && before.is_some() => {
                output::failure(&failure);
            }
            Err(failure) => return Err(failure),
        }
        output::check_written()?;
        pause()?;
    }
}

fn print(text: &str) {
    match serde_json::from_str::<Value>(text) {
        // One line for each change, for programs.
        Ok(document @ (Value::Object(_) | Value::Array(_))) => output::out(&document.to_string()),
        Ok(_) | Err(_) if output::to_terminal() => output::out(&format!("{CLEAR}{text}")),
        Ok(_) | Err(_) => output::out(&format!("{text}\n\n")),
    }
}

/// The words of a table without ages, which change every second, and without its widths.
fn steady(text: &str) -> String {
    let is_age = |word: &&str| {
        let is_length = word.strip_suffix(['s', 'm', 'h', 'd', 'y']);
        let is_length = is_length.is_some_and(|digits| digits.parse::<u32>().is_ok());
        is_length || matches!(*word, "ago" | "in" | "now")
    };
    let lines = text.lines().map(|line| {
        let words = line.split_whitespace().filter(|word| !is_age(word));
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_widths_are_no_changes() {
        assert_eq!(steady("a/b  9s ago  idle"), steady("a/b  10s ago   idle"));
        assert_eq!(steady("a/b  now  idle"), steady("a/b  1m ago  idle"));
        assert_ne!(steady("a/b  9s ago  idle"), steady("a/b  9s ago  busy"));
        assert_ne!(steady("a/b"), steady("a/b\na/c"));
    }

    #[test]
    fn an_outage_in_between_ends_nothing_and_other_errors_do() {
        let away = || Failure::new(Exit::Unreachable, "away");
        let mut outcomes =
            vec![Ok(()), Err(away()), Ok(()), Err(Failure::failed("no"))].into_iter();
        let mut n_pauses = 0;
        let pause = || {
            n_pauses += 1;
            Ok(())
        };
        let ended = run(|| outcomes.next().unwrap(), pause).unwrap_err();
        assert_eq!((ended.message.as_str(), n_pauses), ("no", 3));
        let first = run(|| Err(away()), || panic!("it ends")).unwrap_err();
        assert_eq!(first.exit, Exit::Unreachable);
    }
}
