//! Completions for shells and manual pages, from the definitions of the commands.

use std::path::Path;

use anyhow::Context as _;
use clap::{Command, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// A shell that we write completions for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn print(shell: KnownShell, mut command: Command) {
    let shell = match shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "fleetwright", &mut script);
    output::out_raw(&script);
}

/// Writes a page for each command into the folder.
pub(crate) fn write_pages(folder: &Path, command: Command) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("cannot write manual pages into {}", folder.display()))?;
    output::out(&format!("wrote manual pages into {}", folder.display()));
    Ok(())
}
