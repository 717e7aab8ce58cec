//! The status of the fleet.
//!
//! It is one screen, once or again and again.

mod keys;
mod parts;
mod pool_rows;
mod screen;
mod top;
mod top_screen;

use clap::Args;

use self::parts::PoolQuery;
use self::screen::Extent;
use super::Session;
use crate::failure::{Exit, Failure};
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Print all problems, pools and rows
    #[arg(long)]
    all: bool,
    /// Exit with code 1 if a problem is ill
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Show it again and again, with keys to sort, filter and explain, as `top` does
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    pace: top::Pace,
}

pub(crate) use self::pool_rows::levels as pool_levels;
pub(crate) use self::top::Arguments as TopArguments;

pub(crate) async fn top(arguments: TopArguments, session: &Session) -> Result<(), Failure> {
    if arguments.once {
        return show(false, false, session).await;
    }
    top::run(&arguments.pace, session).await
}

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    if arguments.watch {
        return top::run(&arguments.pace, session).await;
    }
    show(arguments.all, arguments.check, session).await
}

async fn show(all: bool, check: bool, session: &Session) -> Result<(), Failure> {
    let parts = parts::read(&PoolQuery::default(), session).await?;
    let is_well = parts.status["isWell"] == true;
    if session.json {
        output::json(&parts.document());
    } else {
        let height = output::screen_height().map_or(screen::USUAL_HEIGHT, usize::from);
        let extent = Extent {
            all,
            height,
            width: output::screen_width(),
        };
        output::out(screen::text(&parts, extent, session.now).trim_end());
    }
    if is_well || !check {
        return Ok(());
    }
    // The problems are printed already.
    Err(Failure {
        is_logged: true,
        ..Failure::new(Exit::Failed, "not all is well")
    })
}
