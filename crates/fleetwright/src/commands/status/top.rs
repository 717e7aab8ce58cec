//! `top`: the status again and again, with keys on a terminal.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::keys::{Key, Terminal};
use super::parts::{self, Parts, PoolQuery};
use super::screen::{self, Extent};
use super::top_screen::{Action, Choices, Seen};
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::explain;
use crate::failure::Failure;
use crate::session::Session;
use crate::{machine, output};

/// How often to look.
#[derive(Args, Debug)]
pub(crate) struct Pace {
    /// Interval, such as 2s or 1m
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    every: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) pace: Pace,
    /// Print one screen, and end
    #[arg(long)]
    pub(super) once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let start = domain::time::Timestamp::from_millis(0);
    let end = output::parse_moment(text, start).map_err(|_| expected());
    let millis = u64::try_from(end?.millis_since(start)).unwrap_or(0);
    match millis {
        0 => Err(expected()),
        millis => Ok(Duration::from_millis(millis)),
    }
}

fn expected() -> String {
    "expected a duration of at least a second, such as 2s or 1m".to_owned()
}

pub(super) async fn run(pace: &Pace, session: &Session) -> Result<(), Failure> {
    if session.json || !Terminal::is_usable() {
        return print(pace, session).await;
    }
    // The first error is one of the command, not of a screen.
    let parts = parts::read(&PoolQuery::default(), session).await?;
    let mut terminal = Terminal::open().context("cannot use the terminal")?;
    show(&mut terminal, parts, pace, session).await
}

/// Without a terminal: one screen after another, or with `--json` one line for each.
async fn print(pace: &Pace, session: &Session) -> Result<(), Failure> {
    loop {
        let parts = parts::read(&PoolQuery::default(), session).await?;
        if session.json {
            output::out(&parts.document().to_string());
        } else {
            let extent = Extent {
                all: false,
                height: screen::USUAL_HEIGHT,
                width: output::screen_width(),
            };
            let now = machine::now();
            output::out(&format!(
                "{}\n\n",
                screen::text(&parts, extent, now).trim_end()
            ));
        }
        output::check_written()?;
        machine::pause(pace.every).await;
    }
}

/// The end of the wait for the next screen.
enum Step {
    Act(Action),
    Look,
    End,
}

async fn show(
    terminal: &mut Terminal,
    parts: Parts,
    pace: &Pace,
    session: &Session,
) -> Result<(), Failure> {
    let mut ended = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut choices = Choices::default();
    let (mut parts, mut error) = (Some(parts), None);
    loop {
        let (width, height) = Terminal::size();
        let height = usize::from(height);
        let seen = Seen {
            parts: parts.as_ref(),
            error: error.as_deref(),
            now: machine::now(),
        };
        terminal
            .draw(&choices.lines(&seen, width, height))
            .context("cannot draw the screen")?;
        let step = tokio::select! {
            key = terminal.key() => match key {
                Some(key) => Step::Act(choices.press(key, parts.as_ref(), height)),
                None => Step::End,
            },
            _ = ended.recv() => Step::End,
            () = machine::pause(pace.every) => Step::Look,
        };
        let pool = match step {
            Step::End | Step::Act(Action::Quit) => return Ok(()),
            Step::Act(Action::Draw) => continue,
            Step::Act(Action::Explain(pool)) => Some(pool),
            Step::Look => choices.explained_pool().map(str::to_owned),
            Step::Act(Action::Read) => None,
        };
        // The letters of a search, and the end of an explanation, wait for their screen.
        let is_plain = pool.is_none() && choices.is_list();
        let read = async {
            match pool {
                Some(pool) => explain_pool(&pool, &mut choices, session).await,
                None => {
                    let read = parts::read(&choices.query(), session).await;
                    read.map(|read| parts = Some(read))
                }
            }
        };
        // A server that does not answer must not keep the screen open.
        let read = tokio::select! {
            read = read => read,
            () = terminal.ended(|key| is_plain && key == Key::Char('q')) => return Ok(()),
            _ = ended.recv() => return Ok(()),
        };
        error = read.err().map(|failure| failure.message);
    }
}

async fn explain_pool(pool: &str, choices: &mut Choices, session: &Session) -> Result<(), Failure> {
    let call =
        Call::get(FLEETWRIGHT, &["explain", "pool", pool]).to(format!("explain pool {pool}"));
    let reply = session.client.call(&call).await?;
    choices.explain(pool, &explain::pool_text(&reply));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_second_or_longer() {
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0s", "2", "", "soon", "-2s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
