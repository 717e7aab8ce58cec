//! API clients.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::{Shape, require, set};
use super::{Consent, Limit, Session, name};
use crate::client::{AUTH, Call};
use crate::failure::Failure;
use crate::output::{self, Column};

const LIST_COMMAND: &str = "fleetwright client list";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List {
        /// Only clients whose ids start with this text
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    Show {
        /// Client id
        #[arg(value_name = "CLIENT", value_parser = name::client)]
        client: String,
    },
    /// Create a client and print its access token
    Create(Definition),
    /// Change some fields of a client
    ///
    /// Fields that are neither in flags nor in the file keep their values.
    Update(Definition),
    Enable {
        /// Client id
        #[arg(value_name = "CLIENT", value_parser = name::client)]
        client: String,
    },
    Disable {
        /// Client id
        #[arg(value_name = "CLIENT", value_parser = name::client)]
        client: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Replace a client's access token and print the new one
    Reset {
        /// Client id
        #[arg(value_name = "CLIENT", value_parser = name::client)]
        client: String,
        #[command(flatten)]
        consent: Consent,
    },
    Delete {
        /// Client id
        #[arg(value_name = "CLIENT", value_parser = name::client)]
        client: String,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    /// Client id
    #[arg(value_name = "CLIENT", value_parser = name::client)]
    client: String,
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
    read_only: &[
        "kind",
        "clientId",
        "created",
        "lastModified",
        "lastDateUsed",
        "lastRotated",
        "expandedScopes",
        "disabled",
        "accessToken",
    ],
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
        Verb::Show { client } => {
            let reply = session.client.call(&read(&client)).await?;
            session.details(&reply, DETAILS);
            super::scope::show_expanded(&reply, session);
            Ok(())
        }
        Verb::Create(definition) => create(definition, session).await,
        Verb::Update(definition) => update(definition, session).await,
        Verb::Enable { client } => order(&client, "enable", "enabled", session).await,
        Verb::Disable { client, consent } => {
            output::confirm(&format!("disable client {client}"), consent.yes)?;
            order(&client, "disable", "disabled", session).await
        }
        Verb::Reset { client, consent } => {
            let purpose = format!("replace the access token of client {client}");
            output::confirm(&purpose, consent.yes)?;
            let call = Call::order(AUTH, &["clients", &client, "reset"]);
            let reply = session
                .client
                .call(&call.to(purpose).list_command(LIST_COMMAND))
                .await?;
            session.done(&reply, &format!("replaced the access token of {client}"));
            print_token(&reply, session);
            Ok(())
        }
        Verb::Delete { client, consent } => {
            let purpose = format!("delete client {client}");
            output::confirm(&purpose, consent.yes)?;
            let call = Call::delete(AUTH, &["clients", &client]);
            let reply = session.client.call(&call.to(purpose)).await?;
            let name = json!({ "clientId": client });
            session.deleted(&reply, &name, &format!("deleted client {client}"));
            Ok(())
        }
    }
}

fn read(client: &str) -> Call {
    Call::get(AUTH, &["clients", client])
        .to(format!("show client {client}"))
        .list_command(LIST_COMMAND)
}

async fn order(client: &str, verb: &str, done: &str, session: &Session) -> Result<(), Failure> {
    let call = Call::order(AUTH, &["clients", client, verb])
        .to(format!("{verb} client {client}"))
        .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    session.done(&reply, &format!("{done} client {client}"));
    Ok(())
}

async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let client = definition.client.clone();
    let in_a_year = session.now.plus_seconds(365 * 24 * 60 * 60);
    let mut fields = Map::from_iter([
        ("expires".to_owned(), json!(in_a_year.to_string())),
        ("description".to_owned(), json!("")),
        ("scopes".to_owned(), json!([])),
    ]);
    definition.apply(&mut fields, session)?;
    let call = Call::put(AUTH, &["clients", &client], Value::Object(fields))
        .to(format!("create client {client}"));
    let reply = session.client.call(&call).await?;
    session.done(&reply, &format!("created client {client}"));
    print_token(&reply, session);
    Ok(())
}

async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let client = definition.client.clone();
    let existing = session.client.call(&read(&client)).await?;
    let mut fields = SHAPE.of_existing(&existing);
    definition.apply(&mut fields, session)?;
    require(&fields, "expires", "--expires")?;
    let call = Call::post(AUTH, &["clients", &client], Value::Object(fields))
        .to(format!("update client {client}"))
        .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    session.done(&reply, &format!("updated client {client}"));
    Ok(())
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
        let expires = self
            .expires
            .map(|text| output::parse_moment(&text, session.now))
            .transpose()
            .map_err(|error| Failure::usage(format!("--expires: {error}")))?;
        set(fields, "expires", expires.map(|moment| moment.to_string()));
        set(fields, "description", self.description);
        set(
            fields,
            "scopes",
            (!self.scopes.is_empty()).then_some(self.scopes),
        );
        set(fields, "deleteOnExpiration", self.delete_on_expiration);
        Ok(())
    }
}
