//! Relays: runs one in a datacentre, and shows those that announced themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::relay::{Config, Machine, RelayError, Surroundings};
use access::Secret;
use api_client::with_causes;
use clap::{Args, Subcommand};
use engine::clock::SystemClock;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::config::parse_toml;
use tokio_util::sync::CancellationToken;

use super::run_worker::start_log;
use super::serve::{stop_signal, url_of};
use super::{Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::input::read_text;
use crate::machine;
use crate::output::{self, Column};

/// The commands of the group `relay`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Noun {
    /// Short for `relay run --config FILE`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run a relay: give credentials to the hosts of a datacentre
    ///
    /// A host asks it without credentials. The relay looks up the name of its address and the
    /// addresses of the name, and asks the worker manager for credentials. See docs/datacentre.md.
    Run(Arguments),
    #[command(flatten)]
    Listed(ListedVerb),
}

#[derive(Args, Debug)]
struct Arguments {
    /// Configuration file; docs/datacentre.md describes it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ListedVerb {
    List {
        #[command(flatten)]
        limit: Limit,
    },
    Show {
        /// Relay id
        #[arg(value_name = "RELAY", value_parser = name::worker)]
        id: String,
    },
}

pub(crate) enum RelayCommand {
    Listed(ListedVerb),
    Run(PathBuf),
}

impl Noun {
    pub(crate) fn into_command(self) -> Result<RelayCommand, Failure> {
        match (self.config, self.verb) {
            (None, Some(Verb::Listed(verb))) => Ok(RelayCommand::Listed(verb)),
            (None, Some(Verb::Run(Arguments { config }))) | (Some(config), None) => {
                Ok(RelayCommand::Run(config))
            }
            (None, None) | (Some(_), Some(_)) => {
                Err(Failure::usage("expected either --config FILE or a command")
                    .with_hint("`fleetwright relay --help` lists the commands"))
            }
        }
    }
}

pub(crate) async fn serve(file: PathBuf, json: bool) -> Result<(), Failure> {
    let config = read(&file)?;
    start_log(json)?;
    let token = config.access_token_file.display().to_string();
    let access_token = Secret::new(read_text(&token)?.trim());
    let (stop, signal) = (CancellationToken::new(), stop_signal()?);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            signal.await;
            stop.cancel();
        }
    });
    let surroundings = Surroundings {
        access_token,
        machine: Machine::new(
            Arc::new(SystemClock),
            StdRng::from_rng(&mut machine::random_source()),
        ),
        stop,
    };
    let (id, is_tls) = (config.relay_id.clone(), config.tls.is_some());
    let ready = |address| {
        output::out(&format!(
            "relay {id} is ready at {}",
            url_of(address, is_tls)
        ))
    };
    let ended = ::relay::run(config, surroundings, ready).await;
    ended.map_err(|error| {
        let text = format!("the relay stopped: {}", with_causes(&error));
        match error {
            RelayError::Config(_) | RelayError::WorkerManager(_) => Failure::usage(text),
            RelayError::Tls(_) | RelayError::Listen { .. } => Failure::failed(text),
        }
    })
}

/// Paths in the file are relative to its folder.
fn read(file: &Path) -> Result<Config, Failure> {
    let name = file.display().to_string();
    let text = read_text(&name)?;
    let mut config: Config = parse_toml(&text).map_err(|problem| {
        Failure::usage(format!("{name}: {problem}"))
            .with_hint("docs/datacentre.md describes all keys")
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    config.access_token_file = folder.join(&config.access_token_file);
    if let Some(tls) = &mut config.tls {
        tls.certificate_file = folder.join(&tls.certificate_file);
        tls.key_file = folder.join(&tls.key_file);
        tls.client_ca_file = tls.client_ca_file.as_ref().map(|file| folder.join(file));
    }
    Ok(config)
}

const KEY: &str = "relays";
const HOSTS: &str = "hosts";
/// A field of a row that the API does not have.
const POOLS: &str = "pools";

const LIST: &[Column] = &[
    Column::text("RELAY", "relayId"),
    Column::text("POOLS", POOLS),
    Column::number("SERVED", "served"),
    Column::number("REFUSED", "refused"),
    Column::number("FAILED", "failed"),
    Column::age("LAST SEEN", "lastSeen"),
    Column::age("SILENT SINCE", "silentSince"),
    Column::text("VERSION", "version"),
];

const DETAILS: &[Column] = &[
    Column::text("Relay", "relayId"),
    Column::text("Version", "version"),
    Column::text("Pools", POOLS),
    Column::number("Served", "served"),
    Column::number("Refused", "refused"),
    Column::number("Failed", "failed"),
    Column::age("Started", "started"),
    Column::age("First seen", "firstSeen"),
    Column::age("Last seen", "lastSeen"),
    Column::age("Silent since", "silentSince"),
];

const HOST: &[Column] = &[
    Column::text("ADDRESS", "address"),
    Column::text("HOST", "hostName"),
    Column::text("WORKER", "worker"),
    Column::text("OUTCOME", "outcome"),
    Column::age("LAST ASKED", "lastAsked"),
    Column::prose("REASON", "reason"),
];

pub(crate) async fn run(verb: ListedVerb, session: &Session) -> Result<(), Failure> {
    match verb {
        ListedVerb::List { limit } => {
            let call = Call::get(WORKER_MANAGER, &["relays"]).to("list relays");
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            session.described_rows(document, KEY, LIST, describe);
            Ok(())
        }
        ListedVerb::Show { id } => {
            let call = Call::get(WORKER_MANAGER, &["relay", &id])
                .to(format!("show relay {id}"))
                .list_command("fleetwright relay list");
            let reply = session.client.call(&call).await?;
            let hosts = json!({ HOSTS: reply[HOSTS] });
            session.described_details(reply, DETAILS, describe);
            if !session.json {
                session.rows(&hosts, HOSTS, HOST);
            }
            Ok(())
        }
    }
}

/// Adds the pools to a row.
fn describe(relay: &mut Value) {
    let pools = relay["workerPools"].as_array().into_iter().flatten();
    let pools: Vec<&str> = pools.filter_map(Value::as_str).collect();
    relay[POOLS] = json!(pools.join(", "));
}
