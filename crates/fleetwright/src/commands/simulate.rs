//! Simulates fleets: compares strategies, and replays recorded loads.

mod arguments;
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
}

pub(crate) fn run(verb: &Verb, json: bool) -> Result<(), Failure> {
    match verb {
        Verb::Trace(arguments) => trace::run(arguments, json),
        Verb::Scenarios(arguments) => scenarios::run(arguments, json),
    }
}
