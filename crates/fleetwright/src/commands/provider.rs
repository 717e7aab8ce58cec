//! Providers and their places.

use clap::Subcommand;
use serde_json::{Map, Value};

use super::{Limit, Session, provider_test};
use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    /// List the places where each provider can launch workers
    ///
    /// The output is a file for `fleetwright rules lint --places`: a list of places for each
    /// provider, or null if it launches no workers.
    Places,
    /// Ask a provider what every provider must answer well
    ///
    /// Asks about its set-up, places, lists and images, and about launch configs with their bids.
    /// With --launch, one machine is made, which costs money: it is ordered twice by one token,
    /// looked at, listed and ended. It is no worker, and is ended whatever the answers are.
    Test(provider_test::Arguments),
}

const PROVIDERS: &str = "providers";
/// Fields of a row that the API does not have.
const FAILED: &str = "failedBecause";
const THROTTLED: &str = "throttled";
const HOURLY: &str = "hourly";

const LIST: &[Column] = &[
    Column::text("PROVIDER", "providerId"),
    Column::text("KIND", "providerType"),
    Column::text("STATE", "state"),
    Column::number("REQUESTED", "workers/requested"),
    Column::number("RUNNING", "workers/running"),
    Column::number("STOPPING", "workers/stopping"),
    Column::number("MAXIMUM", "maxMachines"),
    Column::text("$ PER H", HOURLY),
    Column::text("FAILED IN 1 H", FAILED),
    Column::text("THROTTLED", THROTTLED),
    Column::age("NEXT TRY", "nextTry"),
    Column::prose("ERROR", "problem"),
];

/// For callers that may only know which providers there are.
const NAMES: &[Column] = &[
    Column::text("PROVIDER", "providerId"),
    Column::text("KIND", "providerType"),
    Column::prose("ERROR", "problem"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => list_states(&limit, session).await,
        Verb::Test(arguments) => provider_test::run(arguments, session).await,
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

async fn list_states(limit: &Limit, session: &Session) -> Result<(), Failure> {
    let call = Call::get(FLEETWRIGHT, &["providers"]).to("list providers");
    let mut document = match session.client.call(&call).await {
        Err(failure) if matches!(failure.exit, Exit::NotFound | Exit::NotAllowed) => {
            return session.list(&list(), PROVIDERS, NAMES, limit).await;
        }
        read => read?,
    };
    if let (Some(limit), Some(rows)) = (limit.limit, document[PROVIDERS].as_array_mut()) {
        rows.truncate(limit);
    }
    session.described_rows(document, PROVIDERS, LIST, describe);
    Ok(())
}

/// Adds the causes of failures, the calls that are paused, and the cost of all places.
fn describe(provider: &mut Value) {
    let failures = provider["failures"].as_array().into_iter().flatten();
    let failures = failures.map(|it| {
        let cause = it["cause"].as_str().unwrap_or_default();
        Value::from(format!("{} {cause}", it["machines"]))
    });
    let failures: Value = failures.collect();
    let budgets = provider["callBudgets"].as_array().into_iter().flatten();
    let paused = budgets.filter(|it| it["throttledUntil"].is_string());
    let paused = paused.map(|it| {
        let (region, call) = (it["region"].as_str(), it["call"].as_str());
        Value::from(format!(
            "{} in {}",
            call.unwrap_or("-"),
            region.unwrap_or("-")
        ))
    });
    let paused: Value = paused.collect();
    let places = provider["places"].as_array().into_iter().flatten();
    let prices: Vec<f64> = places.filter_map(|it| it[HOURLY].as_f64()).collect();
    let hourly = (!prices.is_empty()).then(|| format!("{:.2}", prices.iter().sum::<f64>()));
    for (field, value) in [(FAILED, failures), (THROTTLED, paused)] {
        let is_empty = value.as_array().is_none_or(Vec::is_empty);
        provider[field] = if is_empty { Value::Null } else { value };
    }
    provider[HOURLY] = hourly.into();
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_pauses_and_costs_of_a_provider_are_summed_up() {
        let mut provider = json!({
            "failures": [{"cause": "quota", "machines": 3}],
            "callBudgets": [
                {"region": "us-east-1", "call": "launch", "throttledUntil": "2026-09-21T14:13:20Z"},
                {"region": "us-east-1", "call": "read"},
            ],
            "places": [{"hourly": 1.25}, {"hourly": 0.5}, {}],
        });
        describe(&mut provider);
        assert_eq!(provider[FAILED], json!(["3 quota"]));
        assert_eq!(provider[THROTTLED], json!(["launch in us-east-1"]));
        assert_eq!(provider[HOURLY], "1.75");
        let mut quiet = json!({"failures": [], "callBudgets": [], "places": []});
        describe(&mut quiet);
        for field in [FAILED, THROTTLED, HOURLY] {
            assert_eq!(quiet[field], Value::Null);
        }
    }
}
