//! The one binary: server, client and tools.
#![doc = include_str!("../README.md")]

mod api_help;
mod cli;
mod client;
mod code;
mod commands;
mod data_folder;
#[cfg(test)]
mod documented;
mod failure;
mod import;
mod input;
mod machine;
mod normal_pool;
mod output;
mod owner_file;
mod session;

use std::process::ExitCode;

/// A request makes some hundred small texts; docs/performance.md says what this saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
