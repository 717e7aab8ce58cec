//! Commands on the worker configurations of a server.

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::{Consent, Limit, Session};
use super::{LIST_COMMAND, source};
use crate::client::{Call, WORKER_MANAGER};
use crate::code::{KEYS_FIRST, Kind, Style, effects, semantic};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Args, Debug)]
pub(crate) struct Draft {
    /// Worker configuration id
    #[arg(value_name = "ID")]
    id: String,
    /// File with its description, worker types and rules: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    file: String,
    /// Let the worker configuration take over pools that were created by hand
    #[arg(long)]
    adopt_pools: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    draft: Draft,
    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// How much of the effects to show.
#[derive(Args, Debug)]
pub(crate) struct Detail {
    /// Show all values, and each launch config
    #[arg(long)]
    full: bool,
    /// Show only the effects on this pool; repeatable
    #[arg(long, value_name = "POOL")]
    pool: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Preview {
    #[command(flatten)]
    draft: Draft,
    #[command(flatten)]
    detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Comparison {
    /// Worker configuration id
    #[arg(value_name = "ID")]
    id: String,
    /// Older version
    #[arg(value_name = "FROM")]
    from: u64,
    /// Newer version
    #[arg(value_name = "TO")]
    to: u64,
    #[command(flatten)]
    detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Deletion {
    /// Worker configuration id
    #[arg(value_name = "ID")]
    id: String,
    /// Refuse unless this is the current version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Args, Debug)]
pub(crate) struct Reversion {
    /// Worker configuration id
    #[arg(value_name = "ID")]
    id: String,
    /// Version to restore
    #[arg(long, value_name = "N")]
    to: u64,
    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

const FIELDS: [&str; 7] = [
    "workerConfigurationId",
    "description",
    "workerTypes",
    "sets",
    "rules",
    "launchConfigIds",
    "version",
];
const READ_ONLY: [&str; 2] = ["created", "lastModified"];

const LIST: &[Column] = &[
    Column::text("CONFIGURATION", "workerConfigurationId"),
    Column::number("VERSION", "version"),
    Column::age("CHANGED", "lastModified"),
    Column::prose("WORKER TYPES", WORKER_TYPES),
    Column::prose("DESCRIPTION", "description"),
];
/// A field of a row that the API does not have.
const WORKER_TYPES: &str = "someWorkerTypes";
/// Maximum number of worker types to name for a worker configuration in a list.
const MAX_NAMED: usize = 3;

const HISTORY: &[Column] = &[
    Column::number("VERSION", "version"),
    Column::text("ACTION", "action"),
    Column::text("CLIENT", "clientId"),
    Column::age("WHEN", "created"),
    Column::prose("REASON", "reason"),
];

impl Draft {
    /// The request body: the file's content, with the flags.
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let source = source::about(&self.file, &self.id)?;
        let name = &source.name;
        if let Some(other) = source.id().filter(|id| *id != self.id) {
            return Err(Failure::usage(format!(
                "{name} defines worker configuration {other}, not {}",
                self.id
            )));
        }
        let Value::Object(mut fields) = source.document else {
            return Err(Failure::usage(format!(
                "{name} is a list of rules without worker types: it must be a document with `rules` and `workerTypes`"
            )));
        };
        fields.retain(|key, _| !READ_ONLY.contains(&key.as_str()));
        if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return Err(Failure::usage(format!(
                "{name}: unknown field {unknown:?}; the fields are {}",
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
    const KEY: &str = "workerConfigurations";
    let call =
        Call::get(WORKER_MANAGER, &["worker-configurations"]).to("list worker configurations");
    let document = session.client.pages(&call, KEY, limit.limit).await?;
    session.described_rows(document, KEY, LIST, |row| {
        row[WORKER_TYPES] = json!(some_of(&row["workerTypes"]));
    });
    Ok(())
}

/// The number of worker types, and the first of them.
fn some_of(worker_types: &Value) -> String {
    let listed = worker_types.as_array().map_or(&[][..], Vec::as_slice);
    let named = listed.iter().take(MAX_NAMED).filter_map(Value::as_str);
    let named = named.collect::<Vec<_>>().join(", ");
    match listed.len() {
        0 => "none".to_owned(),
        few if few <= MAX_NAMED => named,
        many => format!("{many}: {named}, …"),
    }
}

pub(super) async fn read(id: &str, session: &Session) -> Result<Value, Failure> {
    let call = Kind::WorkerConfiguration.read_call("show", id);
    session.client.call(&call).await
}

/// Prints it as a file that can be edited and sent back.
pub(super) async fn show(id: &str, session: &Session) -> Result<(), Failure> {
    let reply = read(id, session).await?;
    if session.json {
        output::json(&reply)
    } else {
        output::out(&files::to_yaml(&reply, &KEYS_FIRST))
    }
    Ok(())
}

pub(super) async fn create(definition: Definition, session: &Session) -> Result<(), Failure> {
    let id = &definition.draft.id;
    let mut body = definition.body()?;
    // The version of a file belongs to an existing worker configuration.
    if let Some(fields) = body.as_object_mut() {
        fields.remove("version");
    }
    let call = Kind::WorkerConfiguration.create_call(id, body);
    finish(
        &call,
        &format!("created worker configuration {id}"),
        session,
    )
    .await
}

pub(super) async fn update(definition: Definition, session: &Session) -> Result<(), Failure> {
    let id = &definition.draft.id;
    let call = Kind::WorkerConfiguration.update_call(id, definition.body()?);
    finish(
        &call,
        &format!("updated worker configuration {id}"),
        session,
    )
    .await
}

/// Sends the call, and reports the new version.
async fn finish(call: &Call, done: &str, session: &Session) -> Result<(), Failure> {
    let reply = session.client.call(call).await?;
    let version = reply["version"].as_u64();
    let version = version.map(|version| format!(", now at version {version}"));
    session.done(&reply, &format!("{done}{}", version.unwrap_or_default()));
    Ok(())
}

pub(super) async fn delete(deletion: &Deletion, session: &Session) -> Result<(), Failure> {
    let id = &deletion.id;
    let call = Kind::WorkerConfiguration
        .remove_call("delete", id)
        .query("version", deletion.version);
    output::confirm(
        &format!("{} and its pools", call.purpose),
        deletion.consent.yes,
    )?;
    let text = format!(
        "deleted worker configuration {id}: its pools are deleted after their last workers stop"
    );
    session.order(&call, &text).await
}

pub(super) async fn history(id: &str, limit: &Limit, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-configuration", id, "versions"])
        .to(format!("show the history of worker configuration {id}"))
        .list_command(LIST_COMMAND);
    session.list(&call, "versions", HISTORY, limit).await
}

pub(super) async fn diff(comparison: &Comparison, session: &Session) -> Result<(), Failure> {
    let Comparison {
        id,
        from,
        to,
        detail,
    } = comparison;
    let (older, newer) = (from.to_string(), to.to_string());
    let segments = ["worker-configuration", id, "difference", &older, &newer];
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!(
            "compare versions {from} and {to} of worker configuration {id}"
        ))
        .list_command("fleetwright rules history");
    show_plan(&session.client.call(&call).await?, detail, session);
    Ok(())
}

pub(super) async fn revert(reversion: &Reversion, session: &Session) -> Result<(), Failure> {
    let (id, to) = (&reversion.id, reversion.to);
    let mut body = json!({ "to": to });
    if let Some(reason) = &reversion.reason {
        body["reason"] = json!(reason);
    }
    let segments = ["worker-configuration", id, "revert"];
    let call = Call::post(WORKER_MANAGER, &segments, body)
        .to(format!("revert worker configuration {id} to version {to}"))
        .list_command("fleetwright rules history");
    reversion.consent.confirm(&call)?;
    let text = format!("restored version {to} of worker configuration {id}");
    finish(&call, &text, session).await
}

pub(super) async fn plan(preview: &Preview, session: &Session) -> Result<(), Failure> {
    let draft = &preview.draft;
    let id = &draft.id;
    let mut body = draft.body()?;
    body.remove("version");
    let segments = ["worker-configuration", id, "plan"];
    let call = Call::post(WORKER_MANAGER, &segments, Value::Object(body))
        .to(format!("plan worker configuration {id}"));
    show_plan(&session.client.call(&call).await?, &preview.detail, session);
    Ok(())
}

fn show_plan(plan: &Value, detail: &Detail, session: &Session) {
    if session.json {
        return output::json(plan);
    }
    let part = if detail.pool.is_empty() {
        None
    } else {
        let part = effects::of_pools(plan, &detail.pool);
        if part.is_none() {
            return output::out(&format!("no effect on {}", detail.pool.join(", ")));
        }
        part
    };
    let style = Style {
        in_colour: output::in_colour(),
        in_full: detail.full || part.is_some(),
    };
    let mut lines = effects::lines(part.as_ref().unwrap_or(plan), style);
    let gist = semantic::gist(plan);
    lines.push(match (lines.is_empty(), gist.as_str()) {
        (true, _) => "no differences".to_owned(),
        (false, "") => "no pool differs".to_owned(),
        (false, gist) => gist.to_owned(),
    });
    output::out(&lines.join("\n"));
}

pub(super) async fn payload_schema(
    worker_type: &str,
    launch_config: Option<&str>,
    session: &Session,
) -> Result<(), Failure> {
    let mut segments = vec!["worker-type", worker_type];
    segments.extend(
        launch_config
            .into_iter()
            .flat_map(|id| ["launch-config", id]),
    );
    segments.push("payload-schema");
    let call = Call::get(WORKER_MANAGER, &segments)
        .to(format!(
            "show the payload schema of worker type {worker_type}"
        ))
        .list_command(LIST_COMMAND);
    let reply = session.client.call(&call).await?;
    output::json(if session.json {
        &reply
    } else {
        &reply["payloadSchema"]
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn many_worker_types_are_counted() {
        for count in sizes_around("fleetwright::commands::rules::stored::MAX_NAMED", MAX_NAMED) {
            let types: Vec<String> = (0..count).map(|number| format!("t/{number}")).collect();
            let text = some_of(&json!(types));
            assert_eq!(text.matches("t/").count(), count.min(MAX_NAMED));
            assert_eq!(text.ends_with('…'), count > MAX_NAMED);
        }
    }
}
