//! Worker configurations on a server and in files.
//!
//! Commands on files (`eval`, `explain`, `fmt`, `lint`) need no server; with `--server` they read
//! the worker configuration of that id from the server. `evaluate` never needs one.

mod carry;
mod comments;
mod evaluate;
mod format;
mod lint;
mod rule;
mod source;
mod stored;
mod stream;
mod tidy;

use clap::Subcommand;

use super::{Limit, Session, runs};
use crate::failure::Failure;
use crate::output;

const LIST_COMMAND: &str = "fleetwright rules list";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List worker configurations, without their rules
    List(Limit),
    /// Show a worker configuration with its worker types and rules
    Show {
        /// Worker configuration id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Create a worker configuration and its pools
    ///
    /// Creates everything or nothing. Errors name the conditions, the path and the rules.
    Create(stored::Definition),
    /// Replace the worker types and rules of a worker configuration
    ///
    /// If the file has a version and the server has another one, nothing is changed.
    Update(stored::Definition),
    /// Delete a worker configuration and its pools
    ///
    /// Its pools are deleted after their last workers stop.
    Delete(stored::Deletion),
    /// List the versions of a worker configuration
    ///
    /// Also works for deleted worker configurations.
    History {
        /// Worker configuration id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// List the last task runs of its worker types
    Runs {
        /// Worker configuration id
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Compare two versions: rules and their effects
    Diff(stored::Comparison),
    /// Restore an old version
    ///
    /// Also works for deleted worker configurations.
    Revert(stored::Reversion),
    /// Show the effects of an update on pools, launch configs, workers and costs
    Plan(stored::Preview),
    /// Manage single rules of a worker configuration
    #[command(subcommand)]
    Rule(rule::Verb),
    /// Evaluate rules under conditions
    ///
    /// Prints the values as JSON.
    Eval(evaluate::Evaluation),
    /// Answer requests of other programs to evaluate rules
    ///
    /// Reads requests from standard input, a JSON object in each line, and writes a line with the
    /// answer for each. docs/rules.md has the format. Exits with 1 if a request had errors.
    Evaluate,
    /// Explain which rules set, override or delete a value
    Explain(evaluate::Question),
    /// Format files: order of keys and layout
    ///
    /// The content does not change, and comments stay at their keys. Formatting deletes aliases in
    /// YAML: files with them are skipped unless --force is set.
    Fmt(format::Arguments),
    /// Find rules without effect and redundant values
    ///
    /// Exits with 1 if there are findings. Some depend on the places of providers: from --places,
    /// or from the server. Keys that a cloud does not know are warnings.
    Lint(lint::Arguments),
    /// Remove ids of launch configs that no longer exist
    ///
    /// An edit of a launch config leaves the entry of its old content in launchConfigIds. Comments
    /// stay. Nothing is removed unless the places of all providers are known.
    Tidy(tidy::Arguments),
    /// Print the JSON Schema of worker configurations
    Schema,
    /// Print the JSON Schema of the payload of a worker type's tasks
    PayloadSchema {
        /// Worker type, such as build-opt, or its pool id
        #[arg(value_name = "WORKER_TYPE")]
        worker_type: String,
        /// Only for workers of this launch config
        #[arg(long, value_name = "ID")]
        launch_config: Option<String>,
    },
}

impl Verb {
    /// Runs a command that needs only files; `None` for those that need a server.
    pub(crate) fn run_local(&self, json: bool) -> Option<Result<(), Failure>> {
        match self {
            Self::Eval(evaluation) => (!evaluation.is_remote()).then(|| evaluation.run_local(json)),
            Self::Evaluate => Some(stream::run()),
            Self::Explain(question) => (!question.is_remote()).then(|| question.run_local(json)),
            Self::Fmt(arguments) => Some(format::run(arguments)),
            Self::Lint(arguments) => {
                (!arguments.is_remote()).then(|| lint::run_local(arguments, json))
            }
            Self::Tidy(arguments) => Some(run_tidy(arguments)),
            Self::Schema => Some(print_schema()),
            Self::List(_)
            | Self::Show { .. }
            | Self::Create(_)
            | Self::Update(_)
            | Self::Delete(_)
            | Self::History { .. }
            | Self::Runs { .. }
            | Self::Diff(_)
            | Self::Revert(_)
            | Self::Plan(_)
            | Self::Rule(_)
            | Self::PayloadSchema { .. } => None,
        }
    }
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => stored::list(&limit, session).await,
        Verb::Show { id } => stored::show(&id, session).await,
        Verb::Create(definition) => stored::create(definition, session).await,
        Verb::Update(definition) => stored::update(definition, session).await,
        Verb::Delete(deletion) => stored::delete(&deletion, session).await,
        Verb::History { id, limit } => stored::history(&id, &limit, session).await,
        Verb::Runs { id, limit } => runs::of_configuration(&id, &limit, session).await,
        Verb::Diff(comparison) => stored::diff(&comparison, session).await,
        Verb::Revert(reversion) => stored::revert(&reversion, session).await,
        Verb::Plan(preview) => stored::plan(&preview, session).await,
        Verb::Rule(verb) => rule::run(verb, session).await,
        Verb::Eval(evaluation) => evaluation.run_remote(session).await,
        Verb::Evaluate => stream::run(),
        Verb::Explain(question) => question.run_remote(session).await,
        Verb::Fmt(arguments) => format::run(&arguments),
        Verb::Lint(arguments) => lint::run_remote(&arguments, session).await,
        Verb::Tidy(arguments) => run_tidy(&arguments),
        Verb::Schema => print_schema(),
        Verb::PayloadSchema {
            worker_type,
            launch_config,
        } => stored::payload_schema(&worker_type, launch_config.as_deref(), session).await,
    }
}

fn run_tidy(arguments: &tidy::Arguments) -> Result<(), Failure> {
    tidy::run(arguments, lint::market_of(arguments.places())?)
}

fn print_schema() -> Result<(), Failure> {
    output::out(::rules::SCHEMA);
    Ok(())
}
