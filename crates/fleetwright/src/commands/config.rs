//! The configuration of a server.

use clap::Subcommand;

use crate::output;

const EXAMPLE: &str = include_str!("../../../../docs/config.example.toml");

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Print a configuration that explains every key
    Example,
}

pub(crate) fn run(verb: Verb) {
    match verb {
        Verb::Example => output::out_raw(EXAMPLE.as_bytes()),
    }
}
