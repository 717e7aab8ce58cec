//! Worker configurations on a server and in files.
//!
//! Commands on files (`eval`, `explain`, `fmt`, `lint`) need no server; with `--server` they read
//! the worker configuration of that id from the server.

mod comments;
mod evaluate;
mod format;
mod lint;
mod rule;
mod source;
mod stored;

use clap::Subcommand;

use super::{Limit, Session, runs};
use crate::failure::Failure;

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
    Diff {
        /// Worker configuration id
        #[arg(value_name = "ID")]
        id: String,
        /// Older version
        #[arg(value_name = "FROM")]
        from: u64,
        /// Newer version
        #[arg(value_name = "TO")]
        to: u64,
    },
    /// Restore an old version
    ///
    /// Also works for deleted worker configurations.
    Revert(stored::Reversion),
    /// Show the effects of an update on pools, launch configs, workers and costs
    Plan(stored::Draft),
    /// Manage single rules of a worker configuration
    #[command(subcommand)]
    Rule(rule::Verb),
    /// Evaluate rules under conditions
    ///
    /// Prints the values as JSON.
    Eval(evaluate::Evaluation),
    /// Explain which rules set, override or delete a value
    Explain(evaluate::Question),
    /// Format files: order of keys and layout
    ///
    /// The content does not change. Formatting deletes comments in YAML and TOML, and aliases in
    /// YAML: files with them are skipped unless --force is set.
    Fmt(format::Arguments),
    /// Find rules without effect and redundant values
    ///
    /// Exits with 1 if there are findings. Which rules apply depends on the places of providers:
    /// from --places, or from the server.
    Lint(lint::Arguments),
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

/// Commands that need a server.
pub(crate) enum Remote {
    List(Limit),
    Show(String),
    Create(stored::Definition),
    Update(stored::Definition),
    Delete(stored::Deletion),
    History(String, Limit),
    Runs(String, Limit),
    Diff(String, u64, u64),
    Revert(stored::Reversion),
    Plan(stored::Draft),
    Rule(rule::Verb),
    Eval(evaluate::Evaluation),
    Explain(evaluate::Question),
    Lint(lint::Arguments),
    PayloadSchema(String, Option<String>),
}

impl Verb {
    /// Runs a command on files, or returns the command for the server.
    pub(crate) fn run_local(self, json: bool) -> Result<Option<Remote>, Failure> {
        let remote = match self {
            Self::List(limit) => Remote::List(limit),
            Self::Show { id } => Remote::Show(id),
            Self::Create(definition) => Remote::Create(definition),
            Self::Update(definition) => Remote::Update(definition),
            Self::Delete(deletion) => Remote::Delete(deletion),
            Self::History { id, limit } => Remote::History(id, limit),
            Self::Runs { id, limit } => Remote::Runs(id, limit),
            Self::Diff { id, from, to } => Remote::Diff(id, from, to),
            Self::Revert(reversion) => Remote::Revert(reversion),
            Self::Plan(draft) => Remote::Plan(draft),
            Self::Rule(verb) => Remote::Rule(verb),
            Self::Eval(evaluation) if evaluation.is_remote() => Remote::Eval(evaluation),
            Self::Eval(evaluation) => return evaluation.run_local(json).map(|()| None),
            Self::Explain(question) if question.is_remote() => Remote::Explain(question),
            Self::Explain(question) => return question.run_local(json).map(|()| None),
            Self::Fmt(arguments) => return format::run(&arguments).map(|()| None),
            Self::Lint(arguments) if arguments.is_remote() => Remote::Lint(arguments),
            Self::Lint(arguments) => return lint::run_local(&arguments, json).map(|()| None),
            Self::Schema => {
                lint::print_schema();
                return Ok(None);
            }
            Self::PayloadSchema {
                worker_type,
                launch_config,
            } => Remote::PayloadSchema(worker_type, launch_config),
        };
        Ok(Some(remote))
    }
}

pub(crate) async fn run(remote: Remote, session: &Session) -> Result<(), Failure> {
    match remote {
        Remote::List(limit) => stored::list(&limit, session).await,
        Remote::Show(id) => stored::show(&id, session).await,
        Remote::Create(definition) => stored::create(definition, session).await,
        Remote::Update(definition) => stored::update(definition, session).await,
        Remote::Delete(deletion) => stored::delete(&deletion, session).await,
        Remote::History(id, limit) => stored::history(&id, &limit, session).await,
        Remote::Runs(id, limit) => runs::of_configuration(&id, &limit, session).await,
        Remote::Diff(id, from, to) => stored::diff(&id, from, to, session).await,
        Remote::Revert(reversion) => stored::revert(&reversion, session).await,
        Remote::Plan(draft) => stored::plan(&draft, session).await,
        Remote::Rule(verb) => rule::run(verb, session).await,
        Remote::Eval(evaluation) => evaluation.run_remote(session).await,
        Remote::Explain(question) => question.run_remote(session).await,
        Remote::Lint(arguments) => lint::run_remote(&arguments, session).await,
        Remote::PayloadSchema(worker_type, launch_config) => {
            stored::payload_schema(&worker_type, launch_config.as_deref(), session).await
        }
    }
}
