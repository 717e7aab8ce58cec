//! Providers and their places.

use clap::Subcommand;
use serde_json::{Map, Value};

use super::{Limit, Session};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    /// List the places where each provider can launch workers
    ///
    /// The output is a file for `fleetwright rules lint --places`: a list of places for each
    /// provider, or null if it launches no workers.
    Places,
}

const LIST: &[Column] = &[
    Column::text("PROVIDER", "providerId"),
    Column::text("KIND", "providerType"),
    Column::prose("ERROR", "problem"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => session.list(&list(), "providers", LIST, &limit).await,
        Verb::Places => {
            let places = Value::Object(places(session).await?);
            if session.json {
                output::json(&places)
            } else {
                output::out(&files::to_yaml(&places, &[]))
            }
            Ok(())
        }
    }
}

pub(crate) fn list() -> Call {
    Call::get(WORKER_MANAGER, &["providers"]).to("list providers")
}

/// The places of the server's providers, in the format of `--places`.
pub(crate) async fn places(session: &Session) -> Result<Map<String, Value>, Failure> {
    let call = Call::get(WORKER_MANAGER, &["provider-places"]).to("list the places of providers");
    let mut reply = session.client.call(&call).await?;
    let mut listed = Map::new();
    for provider in reply["providers"].as_array_mut().into_iter().flatten() {
        let id = provider["providerId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if let Some(error) = provider["problem"].as_str() {
            output::note(&format!("cannot list the places of {id}: {error}"));
            continue;
        }
        let places = match provider["takes"].as_str() {
            Some("launches") => provider["places"].take(),
            Some(_) | None => Value::Null,
        };
        listed.insert(id, places);
    }
    Ok(listed)
}
