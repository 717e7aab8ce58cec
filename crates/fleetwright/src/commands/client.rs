//! API clients.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::{Shape, defaults, require, set, set_list};
use super::{Confirmed, Limit, Session, name, scope};
use crate::client::{AUTH, Call};
use crate::code::Kind;
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// Only clients whose ids start with this text
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    Show(Name),
    /// Create a client and print its access token
    Create(Definition),
    /// Change some fields of a client
    ///
    /// Fields that are neither in flags nor in the file keep their values.
    Update(Definition),
    Enable(Name),
    Disable(Confirmed<Name>),
    /// Replace a client's access token and print the new one
    Reset(Confirmed<Name>),
    Delete(Confirmed<Name>),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Client id
    #[arg(value_name = "CLIENT", value_parser = name::client)]
    client: String,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    name: Name,
    /// Expiry: a time, or a duration from now such as 90d (default of create: 365d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    expires: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Scope to grant; repeatable; replaces all scopes
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Whether to delete the client after it expires
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    delete_on_expiration: Option<bool>,
    /// File with the API's fields: YAML, JSON or TOML (`-`: standard input); flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

const SHAPE: Shape = Shape {
    writable: &["expires", "description", "scopes", "deleteOnExpiration"],
    read_only: "kind clientId created lastModified lastDateUsed lastRotated expandedScopes \
        disabled accessToken",
};

const LIST: &[Column] = &[
    Column::text("CLIENT", "clientId"),
    Column::text("DISABLED", "disabled"),
    Column::age("USED", "lastDateUsed"),
    Column::age("EXPIRES", "expires"),
    Column::prose("DESCRIPTION", "description"),
];

const DETAILS: &[Column] = &[
    Column::text("Client", "clientId"),
    Column::text("Description", "description"),
    Column::text("Disabled", "disabled"),
    Column::age("Created", "created"),
    Column::age("Changed", "lastModified"),
    Column::age("Used", "lastDateUsed"),
    Column::age("Token changed", "lastRotated"),
    Column::age("Expires", "expires"),
    Column::text("Then deleted", "deleteOnExpiration"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List { prefix, limit } => {
            let call = Call::get(AUTH, &["clients", ""])
                .query("prefix", prefix)
                .to("list clients");
            session.list(&call, "clients", LIST, &limit).await
        }
        Verb::Show(Name { client }) => {
            let call = Kind::Client.read_call("show", &client);
            let reply = session.client.call(&call).await?;
            session.details(&reply, DETAILS);
            scope::show_expanded(&reply, session);
            Ok(())
        }
        Verb::Create(definition) => create(definition, session).await,
        Verb::Update(definition) => update(definition, session).await,
        Verb::Enable(Name { client }) => {
            let text = format!("enabled client {client}");
            session.order(&order("enable", &client), &text).await
        }
        Verb::Disable(Confirmed { name, consent }) => {
            let client = name.client;
            let call = order("disable", &client);
            consent.confirm(&call)?;
            session
                .order(&call, &format!("disabled client {client}"))
                .await
        }
        Verb::Reset(Confirmed { name, consent }) => {
            let client = name.client;
            let call =
                order("reset", &client).to(format!("replace the access token of client {client}"));
            consent.confirm(&call)?;
            let reply = session.client.call(&call).await?;
            session.done(&reply, &format!("replaced the access token of {client}"));
            print_token(&reply, session);
            Ok(())
        }
        Verb::Delete(Confirmed { name, consent }) => {
            let client = name.client;
            let call = Kind::Client.remove_call("delete", &client);
            consent.confirm(&call)?;
            let text = format!("deleted client {client}");
            session
                .delete(&call, json!({ "clientId": client }), &text)
                .await
        }
    }
}

fn order(verb: &str, client: &str) -> Call {
    Call::order(AUTH, &["clients", client, verb])
        .to(format!("{verb} client {client}"))
        .list_command("fleetwright client list")
}

async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let client = definition.name.client.clone();
    let in_a_year = session.now.plus_seconds(365 * 24 * 60 * 60);
    let mut fields = defaults(Kind::Client);
    set(&mut fields, "expires", Some(in_a_year.to_string()));
    definition.apply(&mut fields, session)?;
    let call = Kind::Client.create_call(&client, Value::Object(fields));
    let reply = session.client.call(&call).await?;
    session.done(&reply, &format!("created client {client}"));
    print_token(&reply, session);
    Ok(())
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let client = definition.name.client.clone();
    let call = Kind::Client.read_call("show", &client);
    let mut fields = SHAPE.of_existing(&session.client.call(&call).await?);
    definition.apply(&mut fields, session)?;
    require(&fields, "expires", "--expires")?;
    let call = Kind::Client.update_call(&client, Value::Object(fields));
    session
        .order(&call, &format!("updated client {client}"))
        .await
}

/// Prints a new token, which is not shown again; with `--json` it is in the reply.
fn print_token(reply: &Value, session: &Session) {
    if let (false, Some(token)) = (session.json, reply["accessToken"].as_str()) {
        output::out(&format!("access token (not shown again): {token}"));
    }
}

impl Definition {
    fn apply(self, fields: &mut Map<String, Value>, session: &Session) -> Result<(), Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        if let Some(text) = &self.expires {
            let expires = session.moment("--expires", text)?;
            set(fields, "expires", Some(expires.to_string()));
        }
        set(fields, "description", self.description);
        set_list(fields, "scopes", self.scopes);
        set(fields, "deleteOnExpiration", self.delete_on_expiration);
        Ok(())
    }
}
