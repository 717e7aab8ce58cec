//! Secrets: values that workers and people fetch by name.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Confirmed, Limit, Session, name};
use crate::client::{Call, SECRETS};
use crate::failure::Failure;
use crate::input::{name_of, read_document};
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List the names of secrets
    List(Limit),
    /// Print the value of a secret, as JSON
    Show(Name),
    /// Write a secret; one with this name is replaced
    ///
    /// The value is a mapping: of YAML, JSON or TOML. It is never an argument of a command, where
    /// other users of the machine could see it.
    Set(Given),
    Delete(Confirmed<Name>),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Name of the secret, such as worker-pool:demo/linux
    #[arg(value_name = "SECRET", value_parser = name::secret)]
    secret: String,
}

#[derive(Args, Debug)]
pub(crate) struct Given {
    #[command(flatten)]
    name: Name,
    /// File with the value: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    file: String,
    /// Expiry: a time, or a duration from now such as 90d
    #[arg(long, value_name = "TIME", default_value = "365d")]
    expires: String,
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => {
            let call = Call::get(SECRETS, &["secrets"]).to("list secrets");
            let listed = session.client.pages(&call, "secrets", limit.limit).await?;
            if session.json {
                output::json(&listed);
                return Ok(());
            }
            for name in listed["secrets"].as_array().into_iter().flatten() {
                output::out(&output::printable(name.as_str().unwrap_or_default()));
            }
            Ok(())
        }
        Verb::Show(Name { secret }) => {
            let call = Call::get(SECRETS, &["secret", &secret]).to(format!("show secret {secret}"));
            let call = call.list_command("fleetwright secret list");
            let reply = session.client.call(&call).await?;
            let shown = if session.json {
                &reply
            } else {
                &reply["secret"]
            };
            output::json(shown);
            Ok(())
        }
        Verb::Set(given) => {
            let value = read_document(&given.file)?;
            if !value.is_object() {
                let file = name_of(&given.file);
                return Err(Failure::usage(format!(
                    "{file}: the value must be a mapping"
                )));
            }
            let expires = session.moment("--expires", &given.expires)?;
            let body = json!({"secret": value, "expires": expires.to_string()});
            let secret = given.name.secret;
            let call = Call::put(SECRETS, &["secret", &secret], body);
            let call = call.to(format!("set secret {secret}"));
            session.order(&call, &format!("set secret {secret}")).await
        }
        Verb::Delete(Confirmed { name, consent }) => {
            let secret = name.secret;
            let call = Call::delete(SECRETS, &["secret", &secret]);
            let call = call.to(format!("delete secret {secret}"));
            consent.confirm(&call)?;
            let text = format!("deleted secret {secret}");
            session
                .delete(&call, json!({ "name": secret }), &text)
                .await
        }
    }
}
