//! The reference worker as a command: `fleetwright worker run`, or in short `worker --identity`.
//!
//! It stands beside the commands that manage workers, since to people both are about workers.

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
use worker::aws::{METADATA_URL, Metadata};
use worker::{
    CallError, Identity, Machine, Names, Proof, RegistrationError, Stops, Worker, WorkerError,
};

use super::worker as managed;
use super::{Session, name};
use crate::failure::{Exit, Failure};
use crate::input::read_text;
use crate::machine;

/// All that there is about workers.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Noun {
    /// Be the worker that this file describes: short for `worker run --identity FILE`
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Be a worker: claim tasks, run them, report what became of them
    ///
    /// A worker goes when it is not needed and nothing is left to do. SIGTERM asks it to finish what runs
    /// and take nothing new, a second SIGTERM or SIGINT to end at once. Tasks run as the user who
    /// runs the worker; docs/worker.md says what they are kept from and what they are not.
    Run(Box<Arguments>),
    #[command(flatten)]
    Managed(managed::Verb),
}

#[derive(Args, Debug, Default)]
#[command(group = clap::ArgGroup::new("who").required(true))]
struct Arguments {
    /// A JSON file that says which worker this is, and proves it
    #[arg(long, value_name = "FILE", group = "who")]
    identity: Option<PathBuf>,
    /// Where to learn which worker this is, if not from a file
    #[arg(long, group = "who")]
    provider: Option<Source>,
    /// Its worker pool, such as demo/linux
    #[arg(long, value_name = "POOL", value_parser = name::pool, env = "FLEETWRIGHT_WORKER_POOL")]
    pool: Option<String>,
    /// Its worker group
    #[arg(long, value_name = "GROUP", value_parser = name::worker, env = "FLEETWRIGHT_WORKER_GROUP")]
    group: Option<String>,
    /// Its id
    #[arg(long, value_name = "WORKER", value_parser = name::worker, env = "FLEETWRIGHT_WORKER_ID")]
    id: Option<String>,
    /// The server's name for the provider
    #[arg(long, value_name = "PROVIDER", default_value = "static")]
    provider_id: String,
    /// A file with the 44 characters the worker proves itself with (`-`: standard input)
    #[arg(long, value_name = "FILE", env = "FLEETWRIGHT_WORKER_SECRET_FILE")]
    secret_file: Option<String>,
    /// How many tasks it runs at a time (default: as the worker configuration says, or 1)
    #[arg(long, value_name = "N")]
    capacity: Option<u32>,
    /// Where it works and keeps its state (default: a folder of its own below your data)
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// How long running tasks may go on once it is asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = DRAIN_SECONDS)]
    drain_seconds: u64,
    /// The metadata service of the instance
    #[arg(long, value_name = "URL", default_value = METADATA_URL, env = "AWS_EC2_METADATA_SERVICE_ENDPOINT")]
    metadata_url: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Source {
    /// A machine that was declared with `worker create`: flags say who it is
    Static,
    /// An instance of EC2: its metadata service says who it is
    Aws,
}

/// Whoever ends us kills what is left after 20 s.
const DRAIN_SECONDS: u64 = 10;
const STATIC_FLAGS: &str =
    "--provider static needs --root-url, --pool, --group, --id and --secret-file";

/// Manages workers, or is one.
pub(crate) enum Asked {
    Managing(managed::Verb),
    Working(Working),
}

/// What a worker was told on the command line.
pub(crate) struct Working(Box<Arguments>);

impl Noun {
    pub(crate) fn asked(self) -> Result<Asked, Failure> {
        match (self.identity, self.verb) {
            (None, Some(Verb::Managed(verb))) => Ok(Asked::Managing(verb)),
            (None, Some(Verb::Run(arguments))) => Ok(Asked::Working(Working(arguments))),
            (Some(identity), None) => Ok(Asked::Working(Working(Box::new(Arguments {
                identity: Some(identity),
                drain_seconds: DRAIN_SECONDS,
                ..Arguments::default()
            })))),
            (None, None) | (Some(_), Some(_)) => Err(Failure::usage(
                "give either --identity FILE or one of the commands",
            )
            .advise("`fleetwright worker --help` lists them")),
        }
    }
}

/// Asks the server about workers.
pub(crate) async fn manage(verb: managed::Verb, session: &Session) -> Result<(), Failure> {
    managed::run(verb, session).await
}

impl Working {
    /// Works until there is nothing left to do.
    pub(crate) async fn run(self, root_url: Option<String>, json: bool) -> Result<(), Failure> {
        let arguments = self.0;
        start_log(json)?;
        worker::keep_to_itself();
        let stops = Stops::on_signals()
            .map_err(|problem| Failure::failed(format!("cannot wait for signals: {problem}")))?;
        let drain_grace = Duration::from_secs(arguments.drain_seconds);
        let (identity, notices) = arguments.identity(root_url).await?;
        let worker = Worker {
            identity,
            machine: Machine::new(
                Arc::new(SystemClock),
                StdRng::from_rng(&mut machine::chance()),
            ),
            stops,
            drain_grace,
            notices,
        };
        worker.run().await.map_err(|problem| {
            let mut failure = Failure::new(exit_of(&problem), with_causes(&problem));
            failure.advice = advice_for(&problem).map(str::to_owned);
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
    ) -> Result<(Identity, Option<Metadata>), Failure> {
        let bad = |problem: &dyn std::error::Error| Failure::usage(with_causes(problem));
        let Some(source) = self.provider else {
            let file = self.identity.as_deref().unwrap_or(Path::new(""));
            let identity = Identity::read(file).map_err(|problem| bad(&problem))?;
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
                    None => default_folder()?.join(&pool).join(&group).join(&id),
                };
                let identity = Identity::of(names, root_url, Proof::StaticSecret(secret))
                    .and_then(|identity| identity.with_capacity(self.capacity))
                    .map_err(|problem| bad(&problem))?;
                Ok((identity.working_in(work_dir), None))
            }
            Source::Aws => {
                let work_dir = match self.work_dir {
                    Some(work_dir) => work_dir,
                    None => default_folder()?,
                };
                let metadata = Metadata::at(&self.metadata_url).map_err(|problem| bad(&problem))?;
                let identity = metadata
                    .identity(work_dir)
                    .await
                    .map_err(|problem| Failure::failed(with_causes(&problem)))?
                    .with_capacity(self.capacity)
                    .map_err(|problem| bad(&problem))?;
                Ok((identity, Some(metadata)))
            }
        }
    }
}

fn default_folder() -> Result<PathBuf, Failure> {
    dirs::data_dir()
        .map(|folder| folder.join("fleetwright").join("worker"))
        .ok_or_else(|| {
            Failure::usage("you have no home to work in").advise("name a folder with --work-dir")
        })
}

fn start_log(json: bool) -> Result<(), Failure> {
    let format = match json {
        true => LogFormat::Json,
        false => LogFormat::Pretty,
    };
    let filter = crate::client::from_environment("FLEETWRIGHT_LOG");
    let log = Log {
        format,
        filter: filter.unwrap_or_else(|| "info".to_owned()),
    };
    server::telemetry::log_to_stderr(&log).map_err(Failure::usage)
}

fn exit_of(problem: &WorkerError) -> Exit {
    match problem {
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

fn advice_for(problem: &WorkerError) -> Option<&'static str> {
    match exit_of(problem) {
        Exit::NotAllowed => Some(
            "the server knows no such worker, or its proof is wrong or used up: `fleetwright worker show` tells what it knows",
        ),
        Exit::Unreachable => Some("is the server running, and is the root URL its address?"),
        Exit::Failed
        | Exit::Usage
        | Exit::NotFound
        | Exit::Conflict
        | Exit::Differs
        | Exit::Interrupted => None,
    }
}
