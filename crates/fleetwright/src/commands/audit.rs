//! The audit log.

use clap::{Subcommand, ValueEnum};

use super::{Limit, Session};
use crate::client::{AUTH, Call};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
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
}

const KEY: &str = "auditHistory";

const LIST: &[Column] = &[
    Column::age("WHEN", "created"),
    Column::text("WHO", "clientId"),
    Column::text("WHAT", "actionType"),
    Column::text("ID", "entityId"),
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
                | Entity::Budget => LIST,
            };
            let document = session.client.pages(&call, KEY, limit.limit).await?;
            if document[KEY].as_array().is_some_and(Vec::is_empty) {
                output::note(&format!(
                    "no entries: no {} has been named {id}, or its history has expired",
                    entity.noun()
                ));
            }
            session.rows(&document, KEY, columns);
            Ok(())
        }
    }
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
        }
    }
}
