//! Worker configurations: rule sets on a server, and in files.
//!
//! What works on a file (`eval`, `explain`, `fmt`, `lint`) needs no server; with `--server` the name is that of
//! a configuration which the server has.

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

const LIST_COMMAND: &str = "fleetwright configuration list";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Worker configurations by name, without their rules
    List(Limit),
    /// Worker types and rules of a configuration
    Show {
        /// The worker configuration
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Make a worker configuration, and the worker pools that follow from it
    ///
    /// All of it or nothing: what cannot be used is refused with the conditions, the path and the rules concerned.
    Create(stored::Definition),
    /// Give a worker configuration other worker types and rules
    ///
    /// A version in the file is the one that was read: nothing is changed if somebody changed the configuration since.
    Update(stored::Definition),
    /// Delete a worker configuration; its worker pools go when their last workers have
    Delete(stored::Deletion),
    /// Who changed a worker configuration, when and how; also one that has been deleted
    History {
        /// The worker configuration
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show what became of the last task runs of its worker types
    Runs {
        /// The worker configuration
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// What differs between two versions, in rules and in what follows from them
    Diff {
        /// The worker configuration
        #[arg(value_name = "ID")]
        id: String,
        /// The older version
        #[arg(value_name = "FROM")]
        from: u64,
        /// The newer version
        #[arg(value_name = "TO")]
        to: u64,
    },
    /// Make an old version the newest, also of a configuration that has been deleted
    Revert(stored::Reversion),
    /// What an update would do: to rules, worker pools, launch configs, running workers and their price
    Plan(stored::Draft),
    /// Single rules of a configuration on the server
    #[command(subcommand)]
    Rule(rule::Verb),
    /// What the rules give under conditions, and which rule each value comes from
    ///
    /// Prints the values as JSON.
    Eval(evaluate::Evaluation),
    /// How one value came to be what it is: who set it, overrode it, deleted it
    Explain(evaluate::Question),
    /// Write files in one form: keys in order, the same layout everywhere
    ///
    /// What the file says stays the same. Comments and aliases of YAML, and comments of TOML, would be
    /// lost: such files are left alone, unless --force says otherwise.
    Fmt(format::Arguments),
    /// Look for rules that do nothing, and for what could be said shorter
    ///
    /// Exits with 1 if something was found. Which rules apply depends on what providers present: --places says
    /// it, or the server does.
    Lint(lint::Arguments),
    /// The JSON Schema of worker configurations, for editors
    Schema,
    /// What the payload of a worker type's tasks must look like
    PayloadSchema {
        /// The worker type: build-opt, or a whole worker pool id
        #[arg(value_name = "WORKER_TYPE")]
        worker_type: String,
        /// As it is for workers of this launch config
        #[arg(long, value_name = "ID")]
        launch_config: Option<String>,
    },
}

/// What only a server can do.
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
    /// Does what can be done here; returns what is for the server.
    pub(crate) fn here(self, json: bool) -> Result<Option<Remote>, Failure> {
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
            Self::Eval(evaluation) => return evaluation.here(json).map(|()| None),
            Self::Explain(question) if question.is_remote() => Remote::Explain(question),
            Self::Explain(question) => return question.here(json).map(|()| None),
            Self::Fmt(arguments) => return format::run(&arguments).map(|()| None),
            Self::Lint(arguments) if arguments.is_remote() => Remote::Lint(arguments),
            Self::Lint(arguments) => return lint::here(&arguments, json).map(|()| None),
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
        Remote::Eval(evaluation) => evaluation.there(session).await,
        Remote::Explain(question) => question.there(session).await,
        Remote::Lint(arguments) => lint::there(&arguments, session).await,
        Remote::PayloadSchema(worker_type, launch_config) => {
            stored::payload_schema(&worker_type, launch_config.as_deref(), session).await
        }
    }
}
