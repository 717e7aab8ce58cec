//! The server's configuration.

use clap::Subcommand;

use crate::output;

const EXAMPLE: &str = include_str!("../../../../docs/config.example.toml");

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Print a configuration with every key and its description
    Example,
}

pub(crate) fn run(verb: Verb) {
    match verb {
        Verb::Example => output::out_raw(EXAMPLE.as_bytes()),
    }
}
