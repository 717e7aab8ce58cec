//! Generates shell completions and manual pages from the command definitions.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::failure::Failure;
use crate::output;

/// The variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "FLEETWRIGHT_COMPLETE";

/// Prints a script that asks this program whenever a key is pressed.
pub(crate) fn print(shell: Shell) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells
        .completer(&name)
        .with_context(|| format!("there are no completions for {name}"))?;
    let mut script = Vec::new();
    completer
        .write_registration(
            VARIABLE,
            "fleetwright",
            "fleetwright",
            "fleetwright",
            &mut script,
        )
        .context("cannot write the script")?;
    output::out_raw(&script);
    Ok(())
}

/// Writes a page for each command into the folder.
pub(crate) fn write_pages(folder: &Path, command: Command) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let name = command.get_name().to_owned();
    clap_mangen::generate_to(command, folder)
        .and_then(|()| keep_tables(folder, &name))
        .with_context(|| format!("cannot write manual pages into {}", folder.display()))?;
    output::out(&format!("wrote manual pages into {}", folder.display()));
    Ok(())
}

fn keep_tables(folder: &Path, name: &str) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let page = entry?.path();
        // The folder may have pages of other programs.
        let file = page.file_name().and_then(|file| file.to_str());
        if file.is_some_and(|file| file.starts_with(name) && file.ends_with(".1")) {
            let text = std::fs::read_to_string(&page)?;
            std::fs::write(&page, with_tables(&text))?;
        }
    }
    Ok(())
}

/// Keeps the line breaks of the tables and examples at the end of a page.
fn with_tables(page: &str) -> String {
    const TITLE: &str = ".SH EXTRA\n";
    match page.split_once(TITLE) {
        None => page.to_owned(),
        Some((before, tables)) => {
            let (tables, after) = match tables.find("\n.SH ") {
                Some(end) => tables.split_at(end + 1),
                None => (tables, ""),
            };
            format!("{before}{TITLE}.nf\n{tables}.fi\n{after}")
        }
    }
}
