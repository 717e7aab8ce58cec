//! The command line: its commands, options and their dispatch.

use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::{CompleteEnv, Shell};
use domain::configuration::CONFIG_KEYS;

use tokio::runtime::Builder;

use crate::api_help::with_api_texts;
use crate::client::Flags;
use crate::commands::complete::with_ids;
#[cfg(not(all(feature = "import", feature = "simulate")))]
use crate::commands::left_out;
use crate::commands::relay::RelayCommand;
use crate::commands::run_worker::WorkerCommand;
use crate::commands::{
    audit, budget, builder, client, completions, config, cost, demo, doctor, documentation, down,
    error, event, explain, health, image, keys, launch_config, migrate, open, overrides, pool,
    process, provider, queue, relay, role, rules, run_worker, scope, secret, series, serve,
    startup, status, task, tree, up, version, wait, worker,
};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::help::with_help;
use crate::session::Session;
use crate::{code, machine, mcp, output, watching};

/// Scale fleets of CI workers, and schedule their tasks.
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
               access_token_file, and the same under [profiles.NAME]
  this machine the server of `fleetwright up`, with its owner's credentials";

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
struct Common {
    /// Root URL of the server
    #[arg(long, global = true, value_name = "URL")]
    root_url: Option<String>,
    /// Profile of the settings file
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print tables in full width
    #[arg(long, global = true)]
    wide: bool,
    /// Print each request
    #[arg(short, long, global = true)]
    verbose: bool,
}

/// Reports about all pools, and other views.
#[derive(Subcommand, Debug)]
enum Report {
    /// Show how long tasks waited, and for which causes
    ///
    /// The parts sum to the total. A run is charged when its wait has ended, in the hours and days
    /// in which it waited.
    Wait(wait::Arguments),
    /// Show which launches fail, in all pools
    ///
    /// Shows the launch configs that are shut off, on trial or paused, with the cause, the next try
    /// and the weight (own weight × balance × health). Then counts the launches by region, cause or
    /// launch config. The weights always count the last hour.
    Health(health::Arguments),
    /// Show how long machines take to start, by place or by launch config
    ///
    /// The steps: a process asked the provider for the machine, the provider made it, it
    /// registered, it first asked for work. Machines of pools that the caller may explain count.
    Startup(startup::Arguments),
    /// Show whether all is well: problems first, then the fleet on one screen
    ///
    /// With --check, the exit code is 1 if a problem is ill. docs/history.md has all kinds of
    /// problems.
    Status(status::Arguments),
    /// Show the state of the fleet again and again
    ///
    /// Keys sort and filter the pools, and explain one. Without a terminal, prints one screen after
    /// another.
    Top(status::TopArguments),
    /// Show waiting tasks, capacity, launches and cost over time
    ///
    /// Of all pools, of a pool, or of a launch config. Times that no server recorded are named.
    Series(series::Arguments),
    /// Show where the money went: useful, booting, idle, failed, leaving, lost
    ///
    /// Sums up what machines cost, with those that run now, and orders them by what they waste. A
    /// run that completed or failed by itself is useful. docs/costs.md has all rules.
    Cost(cost::Arguments),
    /// Show the log of a task, as `task log` does
    Logs(task::LogArguments),
    /// Show events, as `event tail` does
    Events(event::Tail),
    /// Open the pages of the server in a browser, signed in
    ///
    /// Makes a link that signs one browser in, once, with your credentials. Without a desktop, it
    /// only prints the link.
    Open(open::Arguments),
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a server with local workers on this machine
    ///
    /// The first start creates the data folder, a key and the owner's credentials. Later starts
    /// reuse them.
    Up(up::Arguments),
    /// End the server that `up` started, and wait until it has ended
    ///
    /// Worker processes go on, and `fleetwright up` takes them over again.
    Down(down::Arguments),
    /// Run a server with a made-up fleet that works, to look at
    ///
    /// Three fake clouds with a week of history, and pools that are busy, waiting, out of quota, or
    /// ill. Workers take tasks, machines fail. It needs no account and no network, and is ready in
    /// seconds. See docs/demo.md.
    Demo(demo::Arguments),
    /// Run a server from a configuration file
    Serve(serve::Arguments),
    /// Build and upload images on this machine, for servers that share a tree in ZooKeeper
    ///
    /// A server builds images itself, if it has the role `builder`. More machines run this command.
    /// It needs no database: see docs/image-builders.md.
    Builder(builder::Arguments),
    /// Migrate the database to this version
    Migrate(migrate::Arguments),
    /// Check an installation for errors
    Doctor(doctor::Arguments),
    /// Print an example of the server's configuration
    #[command(subcommand)]
    Config(config::Verb),
    /// Manage pools of workers
    #[command(subcommand, alias = "worker-pool")]
    Pool(pool::Verb),
    /// Manage worker configurations: the rules that pools are compiled from
    #[command(subcommand, aliases = ["configuration", "worker-configuration"])]
    Rules(rules::Verb),
    /// Manage images: how they are built, and where they are uploaded
    #[command(subcommand)]
    Image(image::Verb),
    /// List, show, pause and resume launch configs
    #[command(subcommand)]
    LaunchConfig(launch_config::Verb),
    /// Manage the documentation of worker configurations and worker types
    #[command(subcommand)]
    Documentation(documentation::Verb),
    /// Manage overrides: temporary pauses and capacity limits
    #[command(subcommand)]
    Override(overrides::Verb),
    /// Manage budgets: what may be spent on machines in an hour, a day or a month
    #[command(subcommand)]
    Budget(budget::Verb),
    /// Manage workers, or run one
    Worker(run_worker::Noun),
    /// Run a relay in a datacentre, or show relays
    Relay(relay::Noun),
    /// Create, show, follow and cancel tasks
    #[command(subcommand)]
    Task(task::Verb),
    /// List task queues with their numbers of pending and running tasks
    #[command(subcommand)]
    Queue(queue::Verb),
    /// Explain why a task waits, and decisions about a pool or a worker
    #[command(subcommand)]
    Explain(explain::Verb),
    #[command(flatten)]
    Report(Report),
    /// List and count the errors that providers and workers reported
    #[command(subcommand)]
    Error(error::Verb),
    /// Show events
    #[command(subcommand)]
    Event(event::Verb),
    /// List the processes of the deployment
    #[command(subcommand)]
    Process(process::Verb),
    /// List providers and their places
    #[command(subcommand)]
    Provider(provider::Verb),
    /// Show, watch, export and import the tree: the shared state of builders
    ///
    /// The tree is in ZooKeeper, or embedded in the database of one server; see
    /// docs/operations.md. These commands need no running server.
    #[command(subcommand)]
    Tree(tree::Verb),
    /// Print the keys for builders of images
    #[command(subcommand)]
    Keys(keys::Verb),
    /// Manage API clients
    #[command(subcommand)]
    Client(client::Verb),
    /// Manage roles: named sets of scopes
    #[command(subcommand)]
    Role(role::Verb),
    /// Show and expand scopes
    #[command(subcommand)]
    Scope(scope::Verb),
    /// Manage secrets: values that workers and people fetch by name
    #[command(subcommand)]
    Secret(secret::Verb),
    /// Show the audit log
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Show how the server differs from the files
    ///
    /// Each file holds any of the lists images, workerConfigurations, workerPools, roles, clients,
    /// overrides and budgets, or one item. The key owns holds patterns: items on the server that
    /// match a pattern and are in no file are removed. Other items are never changed. See
    /// docs/configuration-as-code.md.
    Plan(code::Planning),
    /// Apply the files to the server
    ///
    /// Shows the plan and asks for confirmation. Changes that others make in the meantime are not
    /// overwritten.
    Apply(code::Applying),
    /// Let an assistant read the fleet, over the Model Context Protocol
    ///
    /// Serves the protocol on standard input and output, with the credentials of all client
    /// commands. Its tools read and preview; none changes anything. See docs/mcp.md.
    Mcp(mcp::Arguments),
    /// Import from a Taskcluster deployment or a Nodepool
    #[cfg(feature = "import")]
    #[command(subcommand)]
    Import(crate::import::Verb),
    /// Import from a Taskcluster deployment or a Nodepool (left out of this build)
    #[cfg(not(feature = "import"))]
    #[command(disable_help_flag = true)]
    Import(left_out::Arguments),
    /// Simulate fleets, to compare strategies
    #[cfg(feature = "simulate")]
    #[command(subcommand)]
    Simulate(crate::commands::simulate::Verb),
    /// Simulate fleets, to compare strategies (left out of this build)
    #[cfg(not(feature = "simulate"))]
    #[command(disable_help_flag = true)]
    Simulate(left_out::Arguments),
    /// Print the version
    Version,
    /// Print shell completions, which also complete pools, tasks, images and other ids
    ///
    /// Ids are those of the server that commands find without flags. Write the output into the file
    /// where your shell looks for completions, and start a new shell.
    Completions {
        /// The shell
        #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"])
            .try_map(|name| name.parse::<Shell>()))]
        shell: Shell,
    },
    /// Write manual pages into a folder
    Man {
        /// Output folder; created if missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // The shell asks, and this ends the program.
    CompleteEnv::with_factory(|| with_ids(command()))
        .var(completions::VARIABLE)
        .complete();
    let parsed = command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return print_parse_error(error),
    };
    if watching::is_wanted(&matches) {
        return finish(watch(&matches));
    }
    finish(cli.run())
}

/// Runs the command of these arguments again and again.
fn watch(matches: &ArgMatches) -> Result<(), Failure> {
    let again = || match Cli::from_arg_matches(matches) {
        Ok(cli) => cli.run(),
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    let pause = || {
        asking(async {
            machine::pause(watching::INTERVAL).await;
            Ok(())
        })
    };
    watching::run(again, pause)
}

/// Prints a failure and returns its exit code. Output that could not be written is a failure.
fn finish(done: Result<(), Failure>) -> ExitCode {
    match done.and_then(|()| output::check_written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::failure(&failure);
            failure.exit.into()
        }
    }
}

/// The complete command line, with the texts of the API for commands that make one API call.
pub(crate) fn command() -> clap::Command {
    with_help(with_api_texts(Cli::command()).mut_subcommand("up", up::with_help))
        .after_help(format!("{SETTINGS}\n\n{EXIT_CODES}"))
}

/// Prints what the parser returned: help and versions are results, the rest are usage errors.
fn print_parse_error(mut error: clap::Error) -> ExitCode {
    let hint = hint_for_flag(&error);
    if hint.is_some() {
        // It would suggest to pass the flag as a value.
        error.remove(ContextKind::Suggested);
    }
    let written = error.print();
    if let Some(hint) = hint {
        output::note(&format!("  hint: {hint}"));
    }
    if error.use_stderr() {
        return Exit::Usage.into();
    }
    output::record_write(written);
    finish(Ok(()))
}

/// A hint for an unknown flag that is a key of a pool's config.
fn hint_for_flag(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = flag.strip_prefix("--")?;
    let is_same = |key: &&&str| key.to_ascii_lowercase() == name.replace('-', "").to_lowercase();
    let key = CONFIG_KEYS.iter().find(is_same)?;
    Some(format!(
        "{key} is a key of a pool's config: pass the complete config with --config or --file"
    ))
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        let common = self.common;
        output::set_wide(common.wide);
        match self.command {
            Command::Up(arguments) => serving(up::run(arguments, common.root_url)),
            Command::Down(arguments) => asking(down::run(arguments, common.json)),
            Command::Demo(arguments) => serving(demo::run(arguments)),
            Command::Serve(arguments) => serving(serve::command(arguments)),
            Command::Builder(arguments) => serving(builder::command(arguments)),
            Command::Migrate(arguments) => serving(migrate::run(arguments, common.json)),
            Command::Doctor(args) => serving(doctor::run(args, common.root_url, common.json)),
            Command::Config(verb) => {
                config::run(verb);
                Ok(())
            }
            Command::Version => {
                version::run(common.json);
                Ok(())
            }
            #[cfg(feature = "simulate")]
            Command::Simulate(verb) => match verb.run_local(common.json) {
                Ok(done) => done,
                Err(recorded) => common.ask(*recorded, crate::commands::simulate::run_remote),
            },
            #[cfg(not(feature = "simulate"))]
            Command::Simulate(_) => Err(left_out::failure("simulate")),
            Command::Completions { shell } => completions::print(shell),
            Command::Man { folder } => completions::write_pages(&folder, command()),
            Command::Pool(verb) => common.ask(verb, pool::run),
            Command::Rules(verb) => common.rules(verb),
            Command::Image(verb) => common.ask(verb, image::run),
            Command::LaunchConfig(verb) => common.ask(verb, launch_config::run),
            Command::Documentation(documentation::Verb::Check(arguments)) => {
                documentation::check(&arguments, common.json)
            }
            Command::Documentation(verb) => common.ask(verb, documentation::run),
            Command::Budget(verb) => common.ask(verb, budget::run),
            Command::Override(verb) => common.ask(verb, overrides::run),
            Command::Worker(noun) => match noun.into_command()? {
                WorkerCommand::Manage(verb) => common.ask(verb, worker::run),
                WorkerCommand::Run(worker) => asking(worker.run(common.root_url, common.json)),
            },
            Command::Relay(noun) => common.relay(noun.into_command()?),
            Command::Task(verb) => common.ask(verb, task::run),
            Command::Queue(verb) => common.ask(verb, queue::run),
            Command::Explain(verb) => common.ask(verb, explain::run),
            Command::Keys(verb) => keys::run(verb),
            Command::Tree(verb) => serving(tree::run(verb, common.json)),
            Command::Event(verb) => common.ask(verb, event::run),
            Command::Report(report) => report.run(common),
            Command::Error(verb) => common.ask(verb, error::run),
            Command::Process(verb) => common.ask(verb, process::run),
            Command::Provider(verb) => common.ask(verb, provider::run),
            Command::Client(verb) => common.ask(verb, client::run),
            Command::Role(verb) => common.ask(verb, role::run),
            Command::Scope(verb) => common.ask(verb, scope::run),
            Command::Secret(verb) => common.ask(verb, secret::run),
            Command::Audit(verb) => common.ask(verb, audit::run),
            Command::Plan(arguments) => common.ask(arguments, code::plan),
            Command::Mcp(arguments) => common.ask(arguments, mcp::run),
            Command::Apply(arguments) => common.ask(arguments, code::apply),
            #[cfg(feature = "import")]
            Command::Import(verb) => common.import(verb),
            #[cfg(not(feature = "import"))]
            Command::Import(_) => Err(left_out::failure("import")),
        }
    }
}

impl Report {
    fn run(self, common: Common) -> Result<(), Failure> {
        match self {
            Self::Wait(arguments) => common.ask(arguments, wait::run),
            Self::Health(arguments) => common.ask(arguments, health::run),
            Self::Startup(arguments) => common.ask(arguments, startup::run),
            Self::Status(arguments) => common.ask(arguments, status::run),
            Self::Top(arguments) => common.ask(arguments, status::top),
            Self::Series(arguments) => common.ask(arguments, series::run),
            Self::Cost(arguments) => common.ask(arguments, cost::run),
            Self::Logs(arguments) => common.ask(arguments, task::show_log),
            Self::Events(tail) => common.ask(event::Verb::Tail(tail), event::run),
            Self::Open(arguments) => common.ask(arguments, open::run),
        }
    }
}

impl Common {
    #[cfg(feature = "import")]
    fn import(self, verb: crate::import::Verb) -> Result<(), Failure> {
        use crate::import;

        let verbose = self.verbose;
        match verb {
            import::Verb::Taskcluster(arguments) => self
                .ask(arguments, async |arguments, session| {
                    import::taskcluster(&arguments, session, verbose).await
                }),
            import::Verb::Rules(arguments) => {
                asking(import::rules::run(&arguments, self.json, verbose))
            }
            import::Verb::Nodepool(arguments) => import::nodepool::run(&arguments, self.json),
        }
    }

    fn rules(self, verb: rules::Verb) -> Result<(), Failure> {
        match verb.run_local(self.json) {
            Some(done) => done,
            None => self.ask(verb, rules::run),
        }
    }

    fn relay(self, command: RelayCommand) -> Result<(), Failure> {
        match command {
            RelayCommand::Listed(verb) => self.ask(verb, relay::run),
            RelayCommand::Run(config) => serving(relay::serve(config, self.json)),
        }
    }

    /// Runs a client command.
    fn ask<V>(
        self,
        verb: V,
        command: impl AsyncFnOnce(V, &Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let flags = Flags {
            root_url: self.root_url,
            profile: self.profile,
        };
        let session = Session::open(&flags, self.json, self.verbose)?;
        asking(command(verb, &session))
    }
}

/// Runs on this thread, as clients do.
fn asking(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    block_on(Builder::new_current_thread(), Box::pin(work))
}

/// Runs on all cores, as servers do.
fn serving(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    // Before anything secret is read: tasks of `local` pools and builds of images may run as the
    // same user, and must not read the memory and the environment of this process.
    ::worker::keep_to_itself();
    block_on(Builder::new_multi_thread(), Box::pin(work))
}

/// Takes a boxed future, so that the runtime is compiled once and not for each command.
fn block_on(
    mut builder: Builder,
    work: Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>>,
) -> Result<(), Failure> {
    let runtime = builder.enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_are_hidden_aliases() {
        for (old, new) in [
            ("worker-pool list", "pool list"),
            ("configuration list", "rules list"),
            ("worker-configuration list", "rules list"),
            ("configuration rule show build r", "rules rule show build r"),
            ("audit show worker-pool a/b", "audit show pool a/b"),
            ("audit show worker-configuration w", "audit show rules w"),
            ("audit show configuration w", "audit show rules w"),
            (
                "documentation show --configuration w",
                "documentation show --rules w",
            ),
        ] {
            let parse = |line: &str| {
                let arguments = ["fleetwright"].into_iter().chain(line.split(' '));
                let matches = command().try_get_matches_from(arguments).unwrap();
                format!("{:?}", Cli::from_arg_matches(&matches).unwrap().command)
            };
            assert_eq!(parse(old), parse(new), "{old}");
        }
        let mut command = command();
        command.build();
        let mut shown = vec![command.render_long_help().to_string()];
        for group in ["audit", "documentation"] {
            let group = command.find_subcommand_mut(group).unwrap();
            let show = group.find_subcommand_mut("show").unwrap();
            shown.push(show.render_long_help().to_string());
        }
        let options = shown.iter().flat_map(|help| help.lines());
        for line in options.filter(|line| line.starts_with("  ")) {
            for old in ["worker-pool", "worker-configuration", "--configuration"] {
                assert!(!line.contains(old), "{line}");
            }
        }
    }

    #[test]
    fn a_key_of_a_pools_config_given_as_a_flag_has_a_hint() {
        let hint = |flag: &str| {
            let arguments = ["fleetwright", "pool", "create", "a/b", flag, "3"];
            hint_for_flag(&command().try_get_matches_from(arguments).unwrap_err())
        };
        let said = hint("--scaling-ratio").unwrap();
        assert!(said.starts_with("scalingRatio is a key"), "{said}");
        assert!(hint("--scalingRatio").is_some());
        assert_eq!(hint("--nonsense"), None);
    }
}
