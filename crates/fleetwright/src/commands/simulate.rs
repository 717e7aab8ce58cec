//! Simulates fleets: scenarios, recorded loads and histories.

mod arguments;
mod canary;
mod recorded;
mod scenarios;
mod trace;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Simulate a recorded load, as Taskcluster's simulator does
    ///
    /// Workers start up in a fixed time, and stop after the idle time. Of a trace that is longer
    /// than a day, the days 1 to 6 count. The strategy taskcluster counts as Taskcluster's
    /// simulator does: requested capacity once.
    Trace(trace::Arguments),
    /// Compare strategies in simulated scenarios
    ///
    /// The others are compared with the first strategy, with the same load and the same luck. See
    /// docs/simulation.md.
    Scenarios(scenarios::Arguments),
    /// Simulate a server's own recorded history, with its present configuration and with another
    ///
    /// Downloads what the server recorded, simulates its pools with the same tasks and with clouds
    /// as they were observed, and compares the result with what was recorded. Flags and files
    /// change the configuration. See docs/simulation.md.
    Recorded(recorded::Arguments),
    /// Simulate canaries: how often new images are wrongly promoted or rolled back, and how soon
    ///
    /// Each simulated image is judged as a server judges it, whenever one of its machines failed
    /// to start or ended its first task. See docs/simulation.md.
    Canary(canary::Arguments),
}

impl Verb {
    /// Runs what needs no server. `Err`: what does.
    pub(crate) fn run_local(
        self,
        json: bool,
    ) -> Result<Result<(), Failure>, Box<recorded::Arguments>> {
        match self {
            Self::Trace(arguments) => Ok(trace::run(&arguments, json)),
            Self::Scenarios(arguments) => Ok(scenarios::run(&arguments, json)),
            Self::Canary(arguments) => {
                canary::run(&arguments, json);
                Ok(Ok(()))
            }
            Self::Recorded(arguments) if arguments.needs_server() => Err(Box::new(arguments)),
            Self::Recorded(arguments) => Ok(recorded::run_local(&arguments, json)),
        }
    }
}

pub(crate) use recorded::run_remote;
