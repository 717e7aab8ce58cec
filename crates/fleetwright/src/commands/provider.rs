//! Providers: those that can make workers, and what they present to rules.

use clap::Subcommand;
use serde_json::{Map, Value};

use super::{Limit, Session};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    /// What each provider presents to rules: the places where it can launch workers
    ///
    /// As a file for `fleetwright configuration lint --places`: a list of places for each provider, or null
    /// if its workers are declared by people.
    Places,
}

const LIST: &[Column] = &[
    Column::text("PROVIDER", "providerId"),
    Column::text("KIND", "providerType"),
    Column::prose("OUT OF SERVICE", "problem"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => session.list(&list(), "providers", LIST, &limit).await,
        Verb::Places => {
            let places = Value::Object(places(session).await?);
            match session.json {
                true => output::json(&places),
                false => output::out(&files::to_yaml(&places, &[])),
            }
            Ok(())
        }
    }
}

/// The call that lists them.
pub(crate) fn list() -> Call {
    Call::get(WORKER_MANAGER, &["providers"]).to("list providers")
}

/// What the server's providers present, in the form in which people write it.
pub(crate) async fn places(session: &Session) -> Result<Map<String, Value>, Failure> {
    let call = Call::get(WORKER_MANAGER, &["provider-places"]).to("list the places of providers");
    let mut reply = session.client.call(&call).await?;
    let mut listed = Map::new();
    for provider in reply["providers"].as_array_mut().into_iter().flatten() {
        let id = provider["providerId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if let Some(problem) = provider["problem"].as_str() {
            output::note(&format!("{id} cannot say now what it presents: {problem}"));
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
