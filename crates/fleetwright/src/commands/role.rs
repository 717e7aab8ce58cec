//! Roles: named sets of scopes.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::{Shape, set};
use super::{Consent, Limit, Session, name};
use crate::client::{AUTH, Call};
use crate::failure::Failure;
use crate::output::{self, Column};

const LIST_COMMAND: &str = "fleetwright role list";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    Show {
        /// Role id
        #[arg(value_name = "ROLE", value_parser = name::role)]
        role: String,
    },
    Create(Definition),
    /// Change the description or the scopes of a role
    ///
    /// Fields that are neither in flags nor in the file keep their values.
    Update(Definition),
    Delete {
        /// Role id
        #[arg(value_name = "ROLE", value_parser = name::role)]
        role: String,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    /// Role id
    #[arg(value_name = "ROLE", value_parser = name::role)]
    role: String,
    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Scope to grant; repeatable; replaces all scopes
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// File with the API's fields: YAML, JSON or TOML (`-`: standard input); flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

const SHAPE: Shape = Shape {
    writable: &["description", "scopes"],
    read_only: &[
        "kind",
        "roleId",
        "created",
        "lastModified",
        "expandedScopes",
    ],
};

const LIST: &[Column] = &[
    Column::text("ROLE", "roleId"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("DESCRIPTION", "description"),
    Column::prose("SCOPES", "scopes"),
];

const DETAILS: &[Column] = &[
    Column::text("Role", "roleId"),
    Column::text("Description", "description"),
    Column::age("Created", "created"),
    Column::age("Changed", "lastModified"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(limit) => session.list(&list(), "roles", LIST, &limit).await,
        Verb::Show { role } => {
            let reply = session.client.call(&read(&role)).await?;
            session.details(&reply, DETAILS);
            super::scope::show_expanded(&reply, session);
            Ok(())
        }
        Verb::Create(definition) => {
            let role = definition.role.clone();
            let mut fields = Map::from_iter([
                ("description".to_owned(), json!("")),
                ("scopes".to_owned(), json!([])),
            ]);
            definition.apply(&mut fields)?;
            let call = Call::put(AUTH, &["roles", &role], Value::Object(fields))
                .to(format!("create role {role}"));
            let reply = session.client.call(&call).await?;
            session.done(&reply, &format!("created role {role}"));
            Ok(())
        }
        Verb::Update(definition) => {
            let role = definition.role.clone();
            let existing = session.client.call(&read(&role)).await?;
            let mut fields = SHAPE.of_existing(&existing);
            definition.apply(&mut fields)?;
            let call = Call::post(AUTH, &["roles", &role], Value::Object(fields))
                .to(format!("update role {role}"))
                .list_command(LIST_COMMAND);
            let reply = session.client.call(&call).await?;
            session.done(&reply, &format!("updated role {role}"));
            Ok(())
        }
        Verb::Delete { role, consent } => {
            let purpose = format!("delete role {role}");
            output::confirm(&purpose, consent.yes)?;
            let call = Call::delete(AUTH, &["roles", &role]);
            let reply = session.client.call(&call.to(purpose)).await?;
            let name = json!({ "roleId": role });
            session.deleted(&reply, &name, &format!("deleted role {role}"));
            Ok(())
        }
    }
}

/// The call that lists roles.
pub(crate) fn list() -> Call {
    Call::get(AUTH, &["roles2", ""]).to("list roles")
}

fn read(role: &str) -> Call {
    Call::get(AUTH, &["roles", role])
        .to(format!("show role {role}"))
        .list_command(LIST_COMMAND)
}

impl Definition {
    fn apply(self, fields: &mut Map<String, Value>) -> Result<(), Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        set(fields, "description", self.description);
        set(
            fields,
            "scopes",
            (!self.scopes.is_empty()).then_some(self.scopes),
        );
        Ok(())
    }
}
