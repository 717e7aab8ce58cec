//! `fleetwright worker run`, in short `worker --identity`: runs the reference worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use api_client::with_causes;
use clap::{Args, Subcommand, ValueEnum};
use engine::clock::SystemClock;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use server::config::{Log, LogFormat};
use worker::relay::Relay;
use worker::{
    CallError, Cloud, Identity, Instance, METADATA_URL, Machine, Names, Proof, RegistrationError,
    Stops, Worker, WorkerError,
};

use super::name;
use super::worker as managed;
use crate::failure::{Exit, Failure};
use crate::input::read_text;
use crate::machine;

/// The commands of the group `worker`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Noun {
    /// Short for `worker run --identity FILE`
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run a worker: claim tasks, run them and report their results
    ///
    /// The worker stops when it is idle and not needed. On SIGTERM it claims no more tasks and
    /// finishes running ones; on a second SIGTERM or SIGINT it stops at once. Tasks run as the
    /// user of the worker; see docs/worker.md for their isolation.
    Run(Arguments),
    #[command(flatten)]
    Managed(managed::Verb),
}

#[derive(Args, Debug, Default)]
#[command(group = clap::ArgGroup::new("who").required(true))]
struct Arguments {
    /// JSON file with the identity of the worker and its proof
    #[arg(long, value_name = "FILE", group = "who")]
    identity: Option<PathBuf>,
    /// Source of the identity, instead of a file
    #[arg(long, group = "who")]
    provider: Option<Source>,
    /// Pool id, such as demo/linux
    #[arg(long, value_name = "POOL", value_parser = name::pool, env = "FLEETWRIGHT_WORKER_POOL")]
    pool: Option<String>,
    /// Worker group
    #[arg(long, value_name = "GROUP", value_parser = name::worker, env = "FLEETWRIGHT_WORKER_GROUP")]
    group: Option<String>,
    /// Worker id
    #[arg(long, value_name = "WORKER", value_parser = name::worker, env = "FLEETWRIGHT_WORKER_ID")]
    id: Option<String>,
    /// Provider id on the server
    #[arg(long, value_name = "PROVIDER", default_value = "static")]
    provider_id: String,
    /// File with the worker's secret of 44 characters (`-`: standard input)
    #[arg(long, value_name = "FILE", env = "FLEETWRIGHT_WORKER_SECRET_FILE")]
    secret_file: Option<String>,
    /// Maximum number of concurrent tasks (default: from the worker configuration, or 1)
    #[arg(long, value_name = "N")]
    capacity: Option<u32>,
    /// Folder for tasks and state (default: in your data folder)
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Time limit for running tasks after a request to stop
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN_SECONDS)]
    drain_seconds: u64,
    /// URL of the machine's metadata service (default: http://169.254.169.254)
    #[arg(long, value_name = "URL", env = "FLEETWRIGHT_METADATA_URL")]
    metadata_url: Option<String>,
    /// URL of the relay of this datacentre, for `--provider relay`
    #[arg(long, value_name = "URL", env = "FLEETWRIGHT_RELAY_URL")]
    relay_url: Option<String>,
    /// PEM file with a certificate of this host and its key, for a relay that wants one
    #[arg(long, value_name = "FILE")]
    relay_certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Source {
    /// A worker created with `worker create`; flags name it
    Static,
    /// An EC2 instance; its metadata service names it
    Aws,
    /// A machine of Google Compute Engine; its metadata server names it
    Google,
    /// A virtual machine of Azure; its metadata service names it
    Azure,
    /// A host of a datacentre; the relay there names it
    Relay,
}

/// Less than the 20 s after which a service manager kills the process.
const DRAIN_SECONDS: u64 = 10;
const STATIC_FLAGS: &str =
    "--provider static needs --root-url, --pool, --group, --id and --secret-file";

pub(crate) enum WorkerCommand {
    Manage(managed::Verb),
    Run(WorkerRun),
}

pub(crate) struct WorkerRun(Arguments);

impl Noun {
    pub(crate) fn into_command(self) -> Result<WorkerCommand, Failure> {
        match (self.identity, self.verb) {
            (None, Some(Verb::Managed(verb))) => Ok(WorkerCommand::Manage(verb)),
            (None, Some(Verb::Run(arguments))) => Ok(WorkerCommand::Run(WorkerRun(arguments))),
            (Some(identity), None) => Ok(WorkerCommand::Run(WorkerRun(Arguments {
                identity: Some(identity),
                drain_seconds: DRAIN_SECONDS,
                ..Arguments::default()
            }))),
            (None, None) | (Some(_), Some(_)) => Err(Failure::usage(
                "expected either --identity FILE or a command",
            )
            .with_hint("`fleetwright worker --help` lists the commands")),
        }
    }
}

impl WorkerRun {
    pub(crate) async fn run(self, root_url: Option<String>, json: bool) -> Result<(), Failure> {
        let arguments = self.0;
        start_log(json)?;
        worker::keep_to_itself();
        let stops = Stops::on_signals()
            .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
        let drain_grace = Duration::from_secs(arguments.drain_seconds);
        let machine = Machine::new(
            Arc::new(SystemClock),
            StdRng::from_rng(&mut machine::random_source()),
        );
        let (identity, instance) = arguments.identity(root_url, &machine).await?;
        let worker = Worker {
            identity,
            machine,
            stops,
            drain_grace,
            instance,
        };
        worker.run().await.map_err(|error| {
            let mut failure = Failure::new(exit_of(&error), with_causes(&error));
            failure.hint = advice_for(failure.exit).map(str::to_owned);
            if json {
                tracing::error!("{}", failure.message);
            }
            failure.is_logged = json;
            failure
        })
    }
}

impl Arguments {
    async fn identity(
        self,
        root_url: Option<String>,
        machine: &Machine,
    ) -> Result<(Identity, Option<Instance>), Failure> {
        let bad = |error: &dyn std::error::Error| Failure::usage(with_causes(error));
        let Some(source) = self.provider else {
            let file = self.identity.as_deref().unwrap_or(Path::new(""));
            let identity = Identity::read(file).map_err(|error| bad(&error))?;
            return match self.work_dir {
                Some(work_dir) => Ok((identity.working_in(work_dir), None)),
                None => Ok((identity, None)),
            };
        };
        match source {
            Source::Static => {
                let root_url =
                    root_url.or_else(|| crate::client::from_environment("TASKCLUSTER_ROOT_URL"));
                let (Some(root_url), Some(pool), Some(group), Some(id), Some(secret_file)) =
                    (root_url, self.pool, self.group, self.id, self.secret_file)
                else {
                    return Err(Failure::usage(STATIC_FLAGS));
                };
                let secret = Secret::new(read_text(&secret_file)?.trim());
                let names = Names {
                    provider_id: &self.provider_id,
                    pool: &pool,
                    group: &group,
                    id: &id,
                };
                let work_dir = match self.work_dir {
                    Some(work_dir) => work_dir,
                    None => folder_of(&pool, &group, &id)?,
                };
                let identity = Identity::of(names, root_url, Proof::StaticSecret(secret))
                    .and_then(|identity| identity.with_capacity(self.capacity))
                    .map_err(|error| bad(&error))?;
                Ok((identity.working_in(work_dir), None))
            }
            Source::Relay => {
                let Some(url) = self.relay_url else {
                    return Err(Failure::usage("--provider relay needs --relay-url"));
                };
                let certificate = self.relay_certificate.as_deref();
                let relay = Relay::at(&url, certificate).map_err(|error| bad(&error))?;
                let identity = relay.identity(machine).await;
                let identity = identity
                    .map_err(|error| Failure::failed(with_causes(&error)))?
                    .with_capacity(self.capacity)
                    .map_err(|error| bad(&error))?;
                let work_dir = match self.work_dir {
                    Some(work_dir) => work_dir,
                    None => folder_of(identity.pool.as_str(), &identity.group, &identity.id)?,
                };
                Ok((identity.working_in(work_dir), None))
            }
            Source::Aws => self.launched_by(Cloud::Aws).await,
            Source::Google => self.launched_by(Cloud::Google).await,
            Source::Azure => self.launched_by(Cloud::Azure).await,
        }
    }

    /// The identity of the worker for which a cloud's machine was launched.
    async fn launched_by(self, cloud: Cloud) -> Result<(Identity, Option<Instance>), Failure> {
        let bad = |error: &dyn std::error::Error| Failure::usage(with_causes(error));
        let work_dir = match self.work_dir {
            Some(work_dir) => work_dir,
            None => default_folder()?,
        };
        let url = self.metadata_url.or_else(|| usual_metadata_url(cloud));
        let url = url.as_deref().unwrap_or(METADATA_URL);
        let instance = Instance::at(cloud, url).map_err(|error| bad(&error))?;
        let identity = instance
            .identity()
            .await
            .map_err(|error| Failure::failed(with_causes(&error)))?
            .with_capacity(self.capacity)
            .map_err(|error| bad(&error))?;
        Ok((identity.working_in(work_dir), Some(instance)))
    }
}

/// The address that the environment gives to programs of this cloud.
fn usual_metadata_url(cloud: Cloud) -> Option<String> {
    match cloud {
        Cloud::Aws => crate::client::from_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
        Cloud::Google => {
            let host = crate::client::from_environment("GCE_METADATA_HOST")?;
            Some(format!("http://{host}"))
        }
        Cloud::Azure => None,
    }
}

/// The default folder of a worker of this machine.
fn folder_of(pool: &str, group: impl ToString, id: impl ToString) -> Result<PathBuf, Failure> {
    let folder = default_folder()?.join(pool).join(group.to_string());
    Ok(folder.join(id.to_string()))
}

fn default_folder() -> Result<PathBuf, Failure> {
    dirs::data_dir()
        .map(|folder| folder.join("fleetwright").join("worker"))
        .ok_or_else(|| Failure::usage("no default work folder").with_hint("set --work-dir"))
}

pub(super) fn start_log(json: bool) -> Result<(), Failure> {
    let format = if json {
        LogFormat::Json
    } else {
        LogFormat::Pretty
    };
    let filter = crate::client::from_environment("FLEETWRIGHT_LOG");
    let default = Log::default();
    let log = Log {
        format,
        filter: filter.unwrap_or(default.filter),
        ..default
    };
    server::telemetry::log_to_stderr(&log).map_err(Failure::usage)
}

fn exit_of(error: &WorkerError) -> Exit {
    match error {
        WorkerError::NotRegistered(RegistrationError { source, .. }) => match source {
            CallError::NoAnswer { .. } => Exit::Unreachable,
            CallError::Refused { status, .. } if *status < 500 => Exit::NotAllowed,
            CallError::Refused { .. } | CallError::BadReply { .. } => Exit::Failed,
        },
        WorkerError::RootUrl(_) => Exit::Usage,
        WorkerError::Settings(_)
        | WorkerError::Folder(_)
        | WorkerError::Guardian(_)
        | WorkerError::Unwanted(_) => Exit::Failed,
    }
}

fn advice_for(exit: Exit) -> Option<&'static str> {
    if exit == Exit::NotAllowed {
        Some(
            "the server does not know this worker, or its proof is wrong or was already used; \
             see `fleetwright worker show`",
        )
    } else if exit == Exit::Unreachable {
        Some("check that the server runs and that the root URL is right")
    } else {
        None
    }
}
