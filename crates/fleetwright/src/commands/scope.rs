//! Scopes.

use clap::Subcommand;
use serde_json::{Value, json};

use super::Session;
use crate::client::{AUTH, Call};
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    Current,
    Expand {
        /// Scopes, such as assume:anonymous
        #[arg(value_name = "SCOPE", required = true)]
        scopes: Vec<String>,
    },
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let call = match verb {
        Verb::Current => Call::get(AUTH, &["scopes", "current"]).to("show your scopes"),
        Verb::Expand { scopes } => {
            Call::post(AUTH, &["scopes", "expand"], json!({ "scopes": scopes })).to("expand scopes")
        }
    };
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply)
    } else {
        output::out(&lines(&reply["scopes"]))
    }
    Ok(())
}

/// Prints the scopes of a client or a role, below its details.
pub(super) fn show_expanded(item: &Value, session: &Session) {
    if session.json {
        return;
    }
    let (given, expanded) = (&item["scopes"], &item["expandedScopes"]);
    let mut text = format!("Scopes\n{}", indented(given));
    if expanded != given && !expanded.is_null() {
        text.push_str(&format!("Expanded scopes\n{}", indented(expanded)));
    }
    output::out(&text);
}

fn lines(scopes: &Value) -> String {
    let scopes = scopes.as_array().into_iter().flatten();
    scopes
        .filter_map(Value::as_str)
        .map(|scope| format!("{scope}\n"))
        .collect()
}

fn indented(scopes: &Value) -> String {
    lines(scopes)
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect()
}
