//! Roles: named sets of scopes.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::body::{Shape, defaults, set, set_list};
use super::{Confirmed, Limit, Session, name, scope};
use crate::client::{AUTH, Call};
use crate::code::Kind;
use crate::failure::Failure;
use crate::output::Column;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
    Show(Name),
    Create(Definition),
    /// Change the description or the scopes of a role
    ///
    /// Fields that are neither in flags nor in the file keep their values.
    Update(Definition),
    Delete(Confirmed<Name>),
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Role id
    #[arg(value_name = "ROLE", value_parser = name::role)]
    role: String,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    name: Name,
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
    read_only: "kind roleId created lastModified expandedScopes",
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
        Verb::Show(Name { role }) => {
            let reply = session
                .client
                .call(&Kind::Role.read_call("show", &role))
                .await?;
            session.details(&reply, DETAILS);
            scope::show_expanded(&reply, session);
            Ok(())
        }
        Verb::Create(definition) => {
            let role = definition.name.role.clone();
            let mut fields = defaults(Kind::Role);
            definition.apply(&mut fields)?;
            let call = Kind::Role.create_call(&role, Value::Object(fields));
            session.order(&call, &format!("created role {role}")).await
        }
        Verb::Update(definition) => {
            let role = definition.name.role.clone();
            let existing = session
                .client
                .call(&Kind::Role.read_call("show", &role))
                .await?;
            let mut fields = SHAPE.of_existing(&existing);
            definition.apply(&mut fields)?;
            let call = Kind::Role.update_call(&role, Value::Object(fields));
            session.order(&call, &format!("updated role {role}")).await
        }
        Verb::Delete(Confirmed { name, consent }) => {
            let role = name.role;
            let call = Kind::Role.remove_call("delete", &role);
            consent.confirm(&call)?;
            let text = format!("deleted role {role}");
            session
                .delete(&call, json!({ "roleId": role }), &text)
                .await
        }
    }
}

pub(crate) fn list() -> Call {
    Call::get(AUTH, &["roles2", ""]).to("list roles")
}

impl Definition {
    fn apply(self, fields: &mut Map<String, Value>) -> Result<(), Failure> {
        fields.extend(SHAPE.read(self.file.as_deref())?);
        set(fields, "description", self.description);
        set_list(fields, "scopes", self.scopes);
        Ok(())
    }
}
