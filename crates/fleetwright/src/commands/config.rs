//! The server's configuration, and those of programs that watch it.

use clap::Subcommand;

use crate::{monitoring, output};

const EXAMPLE: &str = include_str!("../../../../docs/config.example.toml");

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Print a configuration with every key and its description
    Example,
    /// Print a dashboard for Grafana, as JSON
    Dashboard,
    /// Print alerts for Prometheus, as YAML
    Alerts,
}

pub(crate) fn run(verb: Verb) {
    match verb {
        Verb::Example => output::out_raw(EXAMPLE.as_bytes()),
        Verb::Dashboard => output::json(&monitoring::dashboard()),
        Verb::Alerts => output::out_raw(monitoring::alerts().as_bytes()),
    }
}
