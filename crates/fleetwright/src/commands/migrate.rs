//! Migrates the database to this version.

use std::path::PathBuf;

use api_client::with_causes;
use clap::Args;
use store::{Options, Store};

use super::serve::{check, doctor, read};
use crate::failure::Failure;
use crate::{machine, output};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Configuration file of the server
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only list pending migrations
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(arguments: Arguments, json: bool) -> Result<(), Failure> {
    let config = read(&arguments.config)?;
    check(&config)?;
    let failed = |error: store::StoreError| {
        Failure::failed(format!(
            "cannot migrate the database: {}",
            with_causes(&error)
        ))
        .with_hint(format!("run `{}`", doctor(&arguments.config)))
    };
    let options = Options {
        url: config.database.url.clone(),
        connections: 1,
    };
    // Opening would create it, but a dry run creates nothing.
    if let Some(file) = options.missing_file().filter(|_| arguments.dry_run) {
        let file = file.display();
        if json {
            output::json(&serde_json::json!({"dryRun": true, "missing": file.to_string()}))
        } else {
            output::out(&format!("would create the database {file}"))
        }
        return Ok(());
    }
    let store = Store::open(&options).map_err(failed)?;
    let names = if arguments.dry_run {
        store.pending_migrations().await
    } else {
        store.migrate(machine::now().as_millis()).await
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
    let verb = if arguments.dry_run {
        "would apply"
    } else {
        "applied"
    };
    for name in names {
        output::out(&format!("{verb} {name}"));
    }
    Ok(())
}
