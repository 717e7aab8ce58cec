//! Commands that this build leaves out: they say how to build them.

use std::ffi::OsString;

use clap::Args;

use crate::failure::Failure;

/// Whatever follows the name of the command.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<OsString>,
}

pub(crate) fn failure(feature: &str) -> Failure {
    Failure::usage(format!(
        "this build of fleetwright leaves out the command `{feature}`"
    ))
    .with_hint(format!(
        "build it with: cargo build --release --features {feature}"
    ))
}
