//! Generates shell completions and manual pages from the command definitions.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

pub(crate) fn print(shell: Shell, mut command: Command) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "fleetwright", &mut script);
    output::out_raw(&script);
}

/// Writes a page for each command into the folder.
pub(crate) fn write_pages(folder: &Path, command: Command) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let page = folder.join(format!("{}.1", command.get_name()));
    clap_mangen::generate_to(command, folder)
        .and_then(|()| std::fs::read_to_string(&page))
        .and_then(|text| std::fs::write(&page, with_tables(&text)))
        .with_context(|| format!("cannot write manual pages into {}", folder.display()))?;
    output::out(&format!("wrote manual pages into {}", folder.display()));
    Ok(())
}

/// Keeps the line breaks of the tables at the end of the main page.
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
