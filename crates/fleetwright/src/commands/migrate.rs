//! Brings the database to the form that this version needs.

use std::path::PathBuf;

use api_client::with_causes;
use clap::Args;
use store::{Options, Store};

use super::serve::{check, doctor, read};
use crate::failure::Failure;
use crate::{machine, output};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The configuration that names the database
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only say what there is to do
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(arguments: Arguments, json: bool) -> Result<(), Failure> {
    let config = read(&arguments.config)?;
    check(&config)?;
    let failed = |problem: store::StoreError| {
        Failure::failed(format!(
            "cannot migrate the database: {}",
            with_causes(&problem)
        ))
        .advise(format!("`{}` looks for causes", doctor(&arguments.config)))
    };
    let options = Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    // Opening would make it, and a dry run makes nothing.
    if let Some(file) = options.missing_file().filter(|_| arguments.dry_run) {
        let file = file.display();
        match json {
            true => output::json(&serde_json::json!({"dryRun": true, "missing": file.to_string()})),
            false => output::out(&format!(
                "there is no database at {file} yet: it would be made"
            )),
        }
        return Ok(());
    }
    let store = Store::open(&options).map_err(failed)?;
    let names = match arguments.dry_run {
        true => store.pending_migrations().await,
        false => store.migrate(machine::now().as_millis()).await,
    };
    let names = names.map_err(failed)?;
    store.close().await;
    if json {
        output::json(&serde_json::json!({"dryRun": arguments.dry_run, "migrations": names}));
        return Ok(());
    }
    if names.is_empty() {
        output::out("the database is up to date");
    }
    let verb = match arguments.dry_run {
        true => "would apply",
        false => "applied",
    };
    for name in names {
        output::out(&format!("{verb} {name}"));
    }
    Ok(())
}
