//! The `fleetwright` program: server, client and tools.
#![doc = include_str!("../README.md")]

mod api_help;
mod cli;
mod client;
mod code;
mod commands;
mod data_folder;
mod demo;
#[cfg(test)]
mod documented;
mod failure;
mod help;
#[cfg(feature = "import")]
mod import;
mod input;
mod launch_config_keys;
mod machine;
mod mcp;
mod misspelt;
mod monitoring;
mod normal_pool;
mod output;
mod owner_file;
mod rule_lines;
mod session;
mod watching;

use std::process::ExitCode;

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    // The builds of images run below this program as their supervisor.
    if let Some(code) = cloud::image::run_build_part() {
        return code;
    }
    cli::run(std::env::args_os())
}
