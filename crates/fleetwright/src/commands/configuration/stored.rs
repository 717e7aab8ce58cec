//! Worker configurations of a server: listed, shown, made, changed, compared.

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::{Consent, Limit, Session};
use super::{LOOK, source};
use crate::client::{Call, WORKER_MANAGER};
use crate::code::{KEYS_FIRST, Paint, semantic};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Args, Debug)]
pub(crate) struct Draft {
    /// The worker configuration
    #[arg(value_name = "ID")]
    id: String,
    /// A file with its description, worker types and rules: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    file: String,
    /// Take over worker pools of these names that were made by hand
    #[arg(long)]
    adopt_pools: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    draft: Draft,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Deletion {
    /// The worker configuration
    #[arg(value_name = "ID")]
    id: String,
    /// Only if this is still its version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Args, Debug)]
pub(crate) struct Reversion {
    /// The worker configuration
    #[arg(value_name = "ID")]
    id: String,
    /// The version that shall be there again
    #[arg(long, value_name = "N")]
    to: u64,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

const FIELDS: [&str; 6] = [
    "workerConfigurationId",
    "description",
    "workerTypes",
    "rules",
    "launchConfigIds",
    "version",
];
/// What replies say beside that.
const READ_ONLY: [&str; 2] = ["created", "lastModified"];
/// What replies say beside the document.
pub(super) const IN_REPLIES: [&str; 3] = ["version", "created", "lastModified"];

const LIST: &[Column] = &[
    Column::text("CONFIGURATION", "workerConfigurationId"),
    Column::number("VERSION", "version"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("WORKER TYPES", "workerTypes"),
    Column::prose("DESCRIPTION", "description"),
];

const HISTORY: &[Column] = &[
    Column::number("VERSION", "version"),
    Column::text("ACTION", "action"),
    Column::text("CLIENT", "clientId"),
    Column::age("WHEN", "created"),
    Column::prose("REASON", "reason"),
];

impl Draft {
    /// What is sent: the file's content, with the flags on top.
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let source = source::about(&self.file, &self.id)?;
        let name = &source.name;
        if let Some(other) = source.id().filter(|id| *id != self.id) {
            return Err(Failure::usage(format!(
                "{name} describes the worker configuration {other}, not {}",
                self.id
            )));
        }
        let Value::Object(mut fields) = source.document else {
            return Err(Failure::usage(format!(
                "{name} is a list of rules, and a worker configuration has worker types too"
            )));
        };
        fields.retain(|key, _| !READ_ONLY.contains(&key.as_str()));
        if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return Err(Failure::usage(format!(
                "{name}: unknown field {unknown:?}; known are {}",
                FIELDS.join(", ")
            )));
        }
        if self.adopt_pools {
            fields.insert("adoptPools".to_owned(), json!(true));
        }
        Ok(fields)
    }
}

impl Definition {
    fn body(&self) -> Result<Value, Failure> {
        let mut fields = self.draft.body()?;
        if let Some(reason) = &self.reason {
            fields.insert("reason".to_owned(), json!(reason));
        }
        Ok(Value::Object(fields))
    }
}

pub(super) async fn list(limit: &Limit, session: &Session) -> Result<(), Failure> {
    let call =
        Call::get(WORKER_MANAGER, &["worker-configurations"]).to("list worker configurations");
    session
        .list(&call, "workerConfigurations", LIST, limit)
        .await
}

pub(super) async fn read(id: &str, session: &Session) -> Result<Value, Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-configuration", id])
        .to(format!("show worker configuration {id}"))
        .look_with(LOOK);
    session.client.call(&call).await
}

/// As a file, which can be edited and sent back.
pub(super) async fn show(id: &str, session: &Session) -> Result<(), Failure> {
    let reply = read(id, session).await?;
    match session.json {
        true => output::json(&reply),
        false => output::out(&files::to_yaml(&reply, &KEYS_FIRST)),
    }
    Ok(())
}

pub(super) async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let id = &definition.draft.id;
    let mut body = definition.body()?;
    // A version that was read belongs to something that is there.
    if let Some(fields) = body.as_object_mut() {
        fields.remove("version");
    }
    let call = Call::put(WORKER_MANAGER, &["worker-configuration", id], body)
        .to(format!("create worker configuration {id}"));
    let reply = session.client.call(&call).await?;
    session.done(
        &reply,
        &format!("created worker configuration {id}{}", version(&reply)),
    );
    Ok(())
}

pub(super) async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let id = &definition.draft.id;
    let call = Call::post(
        WORKER_MANAGER,
        &["worker-configuration", id],
        definition.body()?,
    )
    .to(format!("update worker configuration {id}"))
    .look_with(LOOK);
    let reply = session.client.call(&call).await?;
    session.done(
        &reply,
        &format!("updated worker configuration {id}{}", version(&reply)),
    );
    Ok(())
}

pub(super) async fn delete(deletion: &Deletion, session: &Session) -> Result<(), Failure> {
    let id = &deletion.id;
    let purpose = format!("delete worker configuration {id}");
    output::confirm(
        &format!("{purpose} and its worker pools"),
        deletion.consent.yes,
    )?;
    let call = Call::delete(WORKER_MANAGER, &["worker-configuration", id])
        .query("version", deletion.version);
    let reply = session
        .client
        .call(&call.to(purpose).look_with(LOOK))
        .await?;
    let text = format!(
        "deleted worker configuration {id}: its worker pools go away once their workers are gone"
    );
    session.done(&reply, &text);
    Ok(())
}

pub(super) async fn history(id: &str, limit: &Limit, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-configuration", id, "versions"])
        .to(format!("show the history of worker configuration {id}"))
        .look_with(LOOK);
    session.list(&call, "versions", HISTORY, limit).await
}

pub(super) async fn diff(id: &str, from: u64, to: u64, session: &Session) -> Result<(), Failure> {
    let (older, newer) = (from.to_string(), to.to_string());
    let segments = ["worker-configuration", id, "difference", &older, &newer];
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!(
            "compare versions {from} and {to} of worker configuration {id}"
        ))
        .look_with("fleetwright configuration history");
    show_plan(&session.client.call(&call).await?, session);
    Ok(())
}

pub(super) async fn revert(reversion: &Reversion, session: &Session) -> Result<(), Failure> {
    let (id, to) = (&reversion.id, reversion.to);
    let purpose = format!("revert worker configuration {id} to version {to}");
    output::confirm(&purpose, reversion.consent.yes)?;
    let mut body = json!({ "to": to });
    if let Some(reason) = &reversion.reason {
        body["reason"] = json!(reason);
    }
    let call = Call::post(
        WORKER_MANAGER,
        &["worker-configuration", id, "revert"],
        body,
    )
    .to(purpose)
    .look_with("fleetwright configuration history");
    let reply = session.client.call(&call).await?;
    let text = format!(
        "worker configuration {id} is as it was in version {to}{}",
        version(&reply)
    );
    session.done(&reply, &text);
    Ok(())
}

pub(super) async fn plan(draft: &Draft, session: &Session) -> Result<(), Failure> {
    let id = &draft.id;
    let mut body = draft.body()?;
    body.remove("version");
    let call = Call::post(
        WORKER_MANAGER,
        &["worker-configuration", id, "plan"],
        Value::Object(body),
    )
    .to(format!("plan worker configuration {id}"));
    show_plan(&session.client.call(&call).await?, session);
    Ok(())
}

fn show_plan(plan: &Value, session: &Session) {
    if session.json {
        return output::json(plan);
    }
    let paint = Paint {
        in_colour: output::in_colour(),
        in_full: true,
    };
    let mut lines = semantic::lines(plan, paint);
    let gist = semantic::gist(plan);
    lines.push(match (lines.is_empty(), gist.as_str()) {
        (true, _) => "nothing differs".to_owned(),
        (false, "") => "no worker pool differs".to_owned(),
        (false, gist) => gist.to_owned(),
    });
    output::out(&lines.join("\n"));
}

pub(super) async fn payload_schema(
    worker_type: &str,
    launch_config: Option<&str>,
    session: &Session,
) -> Result<(), Failure> {
    let segments = match launch_config {
        None => vec!["worker-type", worker_type, "payload-schema"],
        Some(id) => vec![
            "worker-type",
            worker_type,
            "launch-config",
            id,
            "payload-schema",
        ],
    };
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!(
            "show the payload schema of worker type {worker_type}"
        ))
        .look_with(LOOK);
    let reply = session.client.call(&call).await?;
    match session.json {
        true => output::json(&reply),
        false => output::json(&reply["payloadSchema"]),
    }
    Ok(())
}

fn version(reply: &Value) -> String {
    let version = reply["version"].as_u64();
    version
        .map(|version| format!(", now at version {version}"))
        .unwrap_or_default()
}
