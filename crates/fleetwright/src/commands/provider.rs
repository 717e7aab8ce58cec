//! Providers: those that can make workers.

use clap::Subcommand;

use super::{Limit, Session};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::Column;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
}

const LIST: &[Column] = &[
    Column::text("PROVIDER", "providerId"),
    Column::text("KIND", "providerType"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => session.list(&list(), "providers", LIST, &limit).await,
    }
}

/// The call that lists them.
pub(crate) fn list() -> Call {
    Call::get(WORKER_MANAGER, &["providers"]).to("list providers")
}
