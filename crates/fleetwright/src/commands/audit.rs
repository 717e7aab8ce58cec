//! The audit log.

use clap::{Args, Subcommand, ValueEnum};

use super::{Limit, Session};
use crate::client::{AUTH, Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List the changes of all items, newest first
    List(Entries),
    Show {
        /// Type of the item
        #[arg(value_name = "TYPE")]
        entity: Entity,
        /// Id of the item
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        limit: Limit,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Entries {
    /// Only changes of items of this type
    #[arg(long = "type", value_name = "TYPE")]
    entity: Option<Entity>,
    /// Only changes of this item
    #[arg(long, value_name = "ID", requires = "entity")]
    id: Option<String>,
    /// Only changes by this client
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Start: a duration before now such as 90m, or a time (default: 7d)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "7d",
        hide_default_value = true
    )]
    since: String,
    /// End: a duration before now, or a time (default: now)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

/// The types of items that have a history.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Entity {
    Client,
    Role,
    #[value(alias = "worker-pool")]
    Pool,
    /// Its id is POOL/GROUP/WORKER
    Worker,
    #[value(aliases = ["worker-configuration", "configuration"])]
    Rules,
    Override,
    Budget,
    Image,
    /// Its history are its tests
    Provider,
}

const KEY: &str = "auditHistory";
const ENTRIES: &str = "entries";

const LIST: &[Column] = &[
    Column::age("WHEN", "created"),
    Column::text("WHO", "clientId"),
    Column::text("WHAT", "actionType"),
    Column::text("ID", "entityId"),
    Column::prose("REASON", "detail/reason"),
];
const ALL: &[Column] = &[
    Column::age("WHEN", "created"),
    Column::text("WHO", "clientId"),
    Column::text("WHAT", "actionType"),
    Column::text("TYPE", "entityType"),
    Column::text("ID", "entityId"),
    Column::text("FROM", "sourceIp"),
    Column::prose("REASON", "detail/reason"),
];
const OF_IMAGE: &[Column] = &[
    Column::age("WHEN", "created"),
    Column::text("WHO", "clientId"),
    Column::text("WHAT", "actionType"),
    Column::number("BUILD", "detail/build"),
    Column::number("VERSION", "detail/version"),
    Column::prose("REASON", "detail/reason"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(entries) => list(entries, session).await,
        Verb::Show { entity, id, limit } => {
            let call = Call::get(AUTH, &["audit", entity.name(), &id])
                .to(format!("show the history of {} {id}", entity.name()));
            let columns = match entity {
                Entity::Image => OF_IMAGE,
                Entity::Client
                | Entity::Role
                | Entity::Pool
                | Entity::Worker
                | Entity::Rules
                | Entity::Override
                | Entity::Budget
                | Entity::Provider => LIST,
            };
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            if document[KEY].as_array().is_some_and(Vec::is_empty) {
                output::note(&format!(
                    "no entries: no {} has been named {id}, or its history has expired",
                    entity.noun()
                ));
                if !session.json {
                    return Ok(());
                }
            }
            session.rows(&document, KEY, columns);
            Ok(())
        }
    }
}

async fn list(entries: Entries, session: &Session) -> Result<(), Failure> {
    let moment = |flag: &str, text: &str| {
        let parsed = output::parse_past_moment(text, session.now);
        parsed.map_err(|error| Failure::usage(format!("{flag}: {error}")))
    };
    let since = moment("--since", &entries.since)?;
    let until = entries.until.as_deref();
    let until = until.map(|text| moment("--until", text)).transpose()?;
    let call = Call::get(FLEETWRIGHT, &["audit"])
        .query("entityType", entries.entity.map(Entity::name))
        .query("entityId", entries.id)
        .query("clientId", entries.client)
        .query("since", Some(since))
        .query("until", until)
        .to("list the audit log");
    let document = session
        .client
        .pages(&call, ENTRIES, entries.limit.limit)
        .await?;
    if document[ENTRIES].as_array().is_some_and(Vec::is_empty) && !session.json {
        output::note(&format!("no entries since {since}"));
        return Ok(());
    }
    session.rows(&document, ENTRIES, ALL);
    Ok(())
}

impl Entity {
    fn noun(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Role => "role",
            Self::Pool => "pool",
            Self::Worker => "worker",
            Self::Rules => "worker configuration",
            Self::Override => "override",
            Self::Budget => "budget",
            Self::Image => "image",
            Self::Provider => "provider",
        }
    }

    /// The name in the API.
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Role => "role",
            Self::Pool => "worker-pool",
            Self::Worker => "worker",
            Self::Rules => "worker-configuration",
            Self::Override => "override",
            Self::Budget => "budget",
            Self::Image => "image",
            Self::Provider => "provider",
        }
    }
}
