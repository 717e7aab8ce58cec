//! Keys: those that a builder of images gets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use api_client::with_causes;
use clap::Subcommand;
use server::config::builder_key_file;

use super::{serve, up};
use crate::data_folder::DataFolder;
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Print the keys for a builder, which reads them as its keys.file
    ///
    /// They are derived from the keys of the deployment. With them a builder seals what it writes
    /// into the tree and signs its builds; they open no token, and sign no link and no identity.
    /// Make the file again when the keys of the deployment changed.
    Builder {
        /// Configuration file of the server
        #[arg(long, value_name = "FILE", conflicts_with = "data")]
        config: Option<PathBuf>,
        /// Data folder of `up` (default: in your data folder)
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Write them into a new file that only you can read
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(crate) fn run(verb: Verb) -> Result<(), Failure> {
    let Verb::Builder {
        config,
        data,
        output,
    } = verb;
    let config = match (config, data) {
        (Some(file), _) => serve::read(&file)?,
        (None, Some(path)) => up::configuration(None, &DataFolder::inspect(&path)?)?,
        (None, None) => {
            let path = DataFolder::default_path()?;
            up::configuration(None, &DataFolder::inspect(&path)?)?
        }
    };
    let keyring = config.keyring();
    let keyring = keyring.map_err(|error| Failure::usage(with_causes(&error)))?;
    let text = builder_key_file(&keyring);
    let Some(file) = output else {
        output::out_raw(text.as_bytes());
        return Ok(());
    };
    write_new(&file, &text)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}

fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
