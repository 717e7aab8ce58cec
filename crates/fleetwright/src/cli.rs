//! The command line: what can be said, and who does it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use domain::configuration::CONFIG_KEYS;

use tokio::runtime::{Builder, Runtime};

use crate::api_help::with_texts_of_api;
use crate::client::Flags;
use crate::commands::run_worker::Asked;
use crate::commands::{
    audit, client, completions, config, configuration, doctor, documentation, error, event,
    explain, launch_config, migrate, overrides, pool, provider, queue, role, run_worker, scope,
    serve, task, up, version,
};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::session::Session;
use crate::{code, import, output};

/// Keeps fleets of CI workers the right size.
#[derive(Parser, Debug)]
#[command(name = "fleetwright", version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

const SETTINGS: &str = "\
Client commands find their server and credentials in this order:
  flags        --root-url, --profile
  environment  TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID, TASKCLUSTER_ACCESS_TOKEN,
               TASKCLUSTER_CERTIFICATE, FLEETWRIGHT_PROFILE
  file         ~/.config/fleetwright/config.toml: root_url, client_id, access_token or
               access_token_file, and the same under [profiles.NAME]";

#[derive(Args, Debug)]
#[command(next_help_heading = "Options of all commands")]
struct Common {
    /// The address of the deployment
    #[arg(long, global = true, value_name = "URL")]
    root_url: Option<String>,
    /// The profile of your settings file to use
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    json: bool,
    /// Cut nothing in tables, however narrow the screen
    #[arg(long, global = true)]
    wide: bool,
    /// Show each request
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run everything on this machine, ready to use
    ///
    /// Makes its data folder, a key and the owner's credential on the first start, and keeps them.
    Up(up::Arguments),
    /// Run the server that a configuration describes
    Serve(serve::Arguments),
    /// Bring the database to the form that this version needs
    Migrate(migrate::Arguments),
    /// Look for what is wrong with an installation
    Doctor(doctor::Arguments),
    /// The configuration of a server
    #[command(subcommand)]
    Config(config::Verb),
    /// Worker pools
    #[command(subcommand)]
    Pool(pool::Verb),
    /// Worker configurations: rules from which worker pools follow
    #[command(subcommand)]
    Configuration(configuration::Verb),
    /// Launch configs: the ways to start a worker of a pool
    #[command(subcommand)]
    LaunchConfig(launch_config::Verb),
    /// Documentation of worker configurations and worker types
    #[command(subcommand)]
    Documentation(documentation::Verb),
    /// Overrides: what is paused or limited otherwise, for a time
    #[command(subcommand)]
    Override(overrides::Verb),
    /// Workers: those of a server, and how to be one
    Worker(run_worker::Noun),
    /// Tasks: what workers do
    #[command(subcommand)]
    Task(task::Verb),
    /// Task queues: how much waits and how much runs
    #[command(subcommand)]
    Queue(queue::Verb),
    /// Why things are as they are: decisions, with their reasons
    #[command(subcommand)]
    Explain(explain::Verb),
    /// Errors that providers and workers reported
    #[command(subcommand)]
    Error(error::Verb),
    /// Events: what happens, as it happens
    #[command(subcommand)]
    Event(event::Verb),
    /// Providers: those that can make workers
    #[command(subcommand)]
    Provider(provider::Verb),
    /// Clients: who may call the API
    #[command(subcommand)]
    Client(client::Verb),
    /// Roles: named sets of scopes
    #[command(subcommand)]
    Role(role::Verb),
    /// Scopes: what one may do
    #[command(subcommand)]
    Scope(scope::Verb),
    /// The audit log: who changed what
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Show what would make the server be as files say
    ///
    /// The files hold any of the lists workerConfigurations, workerPools, roles, clients and overrides,
    /// or one thing each. With patterns under the key owns, what matches and is in no file is removed; what is
    /// neither named nor owned is never touched. docs/configuration-as-code.md says all about it.
    Plan(code::Planning),
    /// Make the server be as files say
    ///
    /// Shows what will be done, and asks. What somebody changes meanwhile is not overwritten.
    Apply(code::Applying),
    /// Bring worker pools and roles over from elsewhere
    #[command(subcommand)]
    Import(import::Verb),
    /// Say which version this is
    Version,
    /// Write completions for a shell to standard output
    Completions { shell: completions::KnownShell },
    /// Write manual pages into a folder
    Man {
        /// The folder; it is made if it is not there
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Runs the command line and returns the exit code.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(problem) => return tell_usage(problem),
    };
    finish(cli.run())
}

/// Says what failed, if something did; a result that nobody could read is a failure too.
fn finish(done: Result<(), Failure>) -> ExitCode {
    match done.and_then(|()| output::all_written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    }
}

/// The whole command line, with the texts of the API where a command is one call of it.
pub(crate) fn command() -> clap::Command {
    with_texts_of_api(Cli::command())
        .mut_subcommand("up", up::with_help)
        .after_help(format!("{SETTINGS}\n\n{EXIT_CODES}"))
}

/// Help and versions are results; anything else that the parser says is a usage error.
fn tell_usage(mut problem: clap::Error) -> ExitCode {
    let advice = advice_on_flag(&problem);
    if advice.is_some() {
        // It would advise to pass the flag as a value.
        problem.remove(ContextKind::Suggested);
    }
    let written = problem.print();
    if let Some(advice) = advice {
        output::note(&format!("  hint: {advice}"));
    }
    if problem.use_stderr() {
        return Exit::Usage.into();
    }
    output::remember(written);
    finish(Ok(()))
}

/// What a flag that is not known was meant to be, if it is a key of a pool's config.
fn advice_on_flag(problem: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = problem.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = flag.strip_prefix("--")?;
    let is_same = |key: &&&str| key.to_ascii_lowercase() == name.replace('-', "").to_lowercase();
    let key = CONFIG_KEYS.iter().find(is_same)?;
    Some(format!(
        "{key} is a key of a pool's config: give all of the config with --config JSON or --file FILE"
    ))
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        let common = self.common;
        output::set_wide(common.wide);
        match self.command {
            Command::Up(arguments) => serving(up::run(arguments, common.root_url)),
            Command::Serve(arguments) => serving(serve::command(arguments)),
            Command::Migrate(arguments) => serving(migrate::run(arguments, common.json)),
            Command::Doctor(arguments) => {
                serving(doctor::run(arguments, common.root_url, common.json))
            }
            Command::Config(verb) => {
                config::run(verb);
                Ok(())
            }
            Command::Version => {
                version::run(common.json);
                Ok(())
            }
            Command::Completions { shell } => {
                completions::print(shell, command());
                Ok(())
            }
            Command::Man { folder } => completions::write_pages(&folder, command()),
            Command::Pool(verb) => common.ask(async |session| pool::run(verb, session).await),
            Command::Configuration(verb) => common.configure(verb),
            Command::LaunchConfig(verb) => {
                common.ask(async |session| launch_config::run(verb, session).await)
            }
            Command::Documentation(documentation::Verb::Check(arguments)) => {
                documentation::check(&arguments, common.json)
            }
            Command::Documentation(verb) => {
                common.ask(async |session| documentation::run(verb, session).await)
            }
            Command::Override(verb) => {
                common.ask(async |session| overrides::run(verb, session).await)
            }
            Command::Worker(noun) => match noun.asked()? {
                Asked::Managing(verb) => {
                    common.ask(async |session| run_worker::manage(verb, session).await)
                }
                Asked::Working(worker) => runtime(Builder::new_current_thread())?
                    .block_on(worker.run(common.root_url, common.json)),
            },
            Command::Task(verb) => common.ask(async |session| task::run(verb, session).await),
            Command::Queue(verb) => common.ask(async |session| queue::run(verb, session).await),
            Command::Explain(verb) => common.ask(async |session| explain::run(verb, session).await),
            Command::Event(verb) => common.ask(async |session| event::run(verb, session).await),
            Command::Error(verb) => common.ask(async |session| error::run(verb, session).await),
            Command::Provider(verb) => {
                common.ask(async |session| provider::run(verb, session).await)
            }
            Command::Client(verb) => common.ask(async |session| client::run(verb, session).await),
            Command::Role(verb) => common.ask(async |session| role::run(verb, session).await),
            Command::Scope(verb) => common.ask(async |session| scope::run(verb, session).await),
            Command::Audit(verb) => common.ask(async |session| audit::run(verb, session).await),
            Command::Plan(arguments) => {
                common.ask(async |session| code::plan(&arguments, session).await)
            }
            Command::Apply(arguments) => {
                common.ask(async |session| code::apply(&arguments, session).await)
            }
            Command::Import(verb) => common.import(verb),
        }
    }
}

impl Common {
    /// What can be done with files alone needs no server.
    fn configure(self, verb: configuration::Verb) -> Result<(), Failure> {
        match verb.here(self.json)? {
            None => Ok(()),
            Some(remote) => self.ask(async |session| configuration::run(remote, session).await),
        }
    }

    fn import(self, verb: import::Verb) -> Result<(), Failure> {
        let verbose = self.verbose;
        match verb {
            import::Verb::Taskcluster(arguments) => {
                self.ask(async |session| import::taskcluster(&arguments, session, verbose).await)
            }
            import::Verb::Rules(arguments) => runtime(Builder::new_current_thread())?
                .block_on(import::rules(&arguments, self.json, verbose)),
        }
    }

    /// Runs a client command to its end.
    fn ask(
        self,
        command: impl AsyncFnOnce(&Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let flags = Flags {
            root_url: self.root_url,
            profile: self.profile,
        };
        let session = Session::open(&flags, self.json, self.verbose)?;
        runtime(Builder::new_current_thread())?.block_on(command(&session))
    }
}

/// Runs on all cores, as servers do and what they are measured against.
fn serving(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    runtime(Builder::new_multi_thread())?.block_on(work)
}

fn runtime(mut builder: Builder) -> Result<Runtime, Failure> {
    let runtime = builder.enable_all().build();
    Ok(runtime.context("cannot start the runtime")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_pools_config_given_as_a_flag_is_explained() {
        let advice = |flag: &str| {
            let arguments = ["fleetwright", "pool", "create", "a/b", flag, "3"];
            advice_on_flag(&command().try_get_matches_from(arguments).unwrap_err())
        };
        let said = advice("--max-capacity").unwrap();
        assert!(said.starts_with("maxCapacity is a key"), "{said}");
        assert!(advice("--maxCapacity").is_some());
        assert_eq!(advice("--nonsense"), None);
    }
}
