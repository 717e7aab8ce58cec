//! Images: their definitions and builds on a server.

mod canary;
mod log;
mod status;
mod work;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

pub(crate) use self::status::explain;
use super::body::set;
use super::{Confirmed, Consent, Limit, Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::code::{KEYS_FIRST, Kind, Style, values};
use crate::failure::Failure;
use crate::input::{name_of, read_document};
use crate::output::{self, Column};

const HISTORY_COMMAND: &str = "fleetwright image history";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// List images: their state, the builds in use, the newest build, and the next step
    List(Listing),
    /// Show builds and uploads of an image, the builds in use, and the next steps
    Show(Name),
    /// Show the definition of an image
    ///
    /// The output can be edited and sent back with `fleetwright image update`.
    Definition(Name),
    /// Create an image
    Create(Definition),
    /// Replace the definition of an image
    ///
    /// If the file has a version and the server has another one, nothing is changed.
    Update(Definition),
    /// Delete an image
    ///
    /// Its history is kept, and any version can be restored.
    Delete(Confirmed<Deletion>),
    /// Show what an update would change, and whether it needs builds or uploads
    Plan(Draft),
    /// List the versions of an image
    ///
    /// Also works for deleted images.
    History {
        #[command(flatten)]
        image: Name,
        #[command(flatten)]
        limit: Limit,
    },
    /// Compare two versions of an image
    Diff {
        #[command(flatten)]
        image: Name,
        /// Older version
        #[arg(value_name = "FROM")]
        from: u64,
        /// Newer version
        #[arg(value_name = "TO")]
        to: u64,
    },
    /// Restore an old version
    ///
    /// Also works for deleted images.
    Revert(Reversion),
    /// Build an image now
    Build(work::BuildRequest),
    /// Build and upload nothing until the image is resumed
    Pause(work::Asked),
    /// End a pause
    Resume(work::Asked),
    /// Show the log of a build
    Log(log::Log),
    /// End a running build
    Cancel(work::AskedBuild),
    /// Delete a build with its uploads
    DeleteBuild(Confirmed<work::AskedBuild>),
    /// Keep a build until it is unpinned
    Pin(work::AskedBuild),
    /// Let a build be deleted as others are
    Unpin(work::AskedBuild),
    /// Start new machines from a build from now on
    Promote(work::AskedBuild),
    /// Start new machines from an older build again
    Rollback(work::Rollback),
    /// Start a share of the new machines from a build, and test it
    Canary(canary::Canary),
    /// Show the signed record of how a build was made
    Provenance(work::Build),
}

#[derive(Args, Debug)]
pub(crate) struct Listing {
    /// List definitions: versions, targets and owners
    #[arg(long)]
    definitions: bool,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Image
    #[arg(value_name = "IMAGE", value_parser = name::image)]
    id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Draft {
    #[command(flatten)]
    image: Name,
    /// File with the definition: YAML, JSON or TOML (`-`: standard input)
    #[arg(long, value_name = "FILE")]
    file: String,
}

#[derive(Args, Debug)]
pub(crate) struct Definition {
    #[command(flatten)]
    draft: Draft,
    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Deletion {
    #[command(flatten)]
    image: Name,
    /// Refuse unless this is the current version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Reversion {
    #[command(flatten)]
    image: Name,
    /// Version to restore
    #[arg(long, value_name = "N")]
    to: u64,
    /// Reason for the change, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

const DEFINITIONS: &[Column] = &[
    Column::text("IMAGE", "imageId"),
    Column::number("VERSION", "version"),
    Column::age("CHANGED", "lastModified"),
    Column::text("UPLOADED TO", TARGETS),
    Column::text("OWNER", "owner"),
    Column::prose("DESCRIPTION", "description"),
];

/// The field of a row with its upload targets, which the API does not have.
const TARGETS: &str = "targets";

const HISTORY: &[Column] = &[
    Column::number("VERSION", "version"),
    Column::text("ACTION", "action"),
    Column::text("CLIENT", "clientId"),
    Column::age("WHEN", "created"),
    Column::prose("REASON", "reason"),
];

impl Draft {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let (document, file) = (read_document(&self.file)?, name_of(&self.file));
        if let Some(other) = document["imageId"]
            .as_str()
            .filter(|id| *id != self.image.id)
        {
            return Err(Failure::usage(format!(
                "{file} defines image {other}, not {}",
                self.image.id
            )));
        }
        // The server names all errors of a definition at once.
        let Value::Object(mut fields) = document else {
            let text = format!("{file}: a definition is a mapping, with `build` and other keys");
            return Err(Failure::usage(text));
        };
        fields.remove("imageId");
        Ok(fields)
    }
}

impl Definition {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut fields = self.draft.body()?;
        set(&mut fields, "reason", self.reason.clone());
        Ok(fields)
    }
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(Listing {
            definitions: true,
            limit,
        }) => list_definitions(&limit, session).await,
        Verb::List(Listing { limit, .. }) => status::list(&limit, session).await,
        Verb::Show(Name { id }) => status::show(&id, session).await,
        Verb::Definition(Name { id }) => show_definition(&id, session).await,
        Verb::Create(definition) => create(&definition, session).await,
        Verb::Update(definition) => update(&definition, session).await,
        Verb::Delete(deletion) => {
            let Deletion { image, version } = &deletion.name;
            let call = Kind::Image
                .remove_call("delete", &image.id)
                .query("version", *version);
            deletion.consent.confirm(&call)?;
            session
                .order(&call, &format!("deleted image {}", image.id))
                .await
        }
        Verb::Plan(draft) => plan(&draft, session).await,
        Verb::History { image, limit } => {
            let call = about(&image.id, &["versions"], "show the history of");
            session.list(&call, "versions", HISTORY, &limit).await
        }
        Verb::Diff { image, from, to } => {
            let (older, newer) = (from.to_string(), to.to_string());
            let what = format!("compare versions {from} and {to} of");
            let call = about(&image.id, &["difference", &older, &newer], &what);
            show_changes(&session.client.call(&call).await?, session);
            Ok(())
        }
        Verb::Revert(reversion) => revert(&reversion, session).await,
        Verb::Build(request) => work::build(&request, session).await,
        Verb::Pause(asked) => work::ask(&asked, "pause", "paused", session).await,
        Verb::Resume(asked) => work::ask(&asked, "resume", "resumed", session).await,
        Verb::Log(log) => log::print(&log, session).await,
        Verb::Cancel(asked) => {
            work::ask_of_build(&asked, "cancel", "requested the end of", session).await
        }
        Verb::DeleteBuild(deletion) => work::delete_build(&deletion, session).await,
        Verb::Pin(asked) => work::ask_of_build(&asked, "pin", "pinned", session).await,
        Verb::Unpin(asked) => work::ask_of_build(&asked, "unpin", "unpinned", session).await,
        Verb::Promote(asked) => {
            work::ask_of_build(&asked, "promote", "new machines start from", session).await
        }
        Verb::Rollback(rollback) => work::roll_back(&rollback, session).await,
        Verb::Canary(canary) => canary::start(&canary, session).await,
        Verb::Provenance(build) => work::provenance(&build, session).await,
    }
}

fn about(id: &str, rest: &[&str], what: &str) -> Call {
    let segments = [&["image", id], rest].concat();
    Call::get(FLEETWRIGHT, &segments)
        .to(format!("{what} image {id}"))
        .list_command("fleetwright image list")
}

async fn list_definitions(limit: &Limit, session: &Session) -> Result<(), Failure> {
    const KEY: &str = "images";
    let call = Call::get(FLEETWRIGHT, &["images"]).to("list definitions of images");
    let mut document = session.client.pages(&call, KEY, limit.limit).await?;
    if !session.json {
        let items = document[KEY].as_array_mut();
        items.into_iter().flatten().for_each(|image| {
            let uploads = image["uploads"].as_array().into_iter().flatten();
            let targets = uploads.map(target).collect::<Vec<_>>().join(", ");
            image[TARGETS] = json!(targets);
        });
    }
    session.rows(&document, KEY, DEFINITIONS);
    Ok(())
}

/// `aws:eu-west-1`.
fn target(upload: &Value) -> String {
    let text = |key: &str| upload[key].as_str().unwrap_or_default();
    match upload.get("region") {
        Some(_) => format!("{}:{}", text("providerId"), text("region")),
        None => text("providerId").to_owned(),
    }
}

/// Prints it as a file that can be edited and sent back.
async fn show_definition(id: &str, session: &Session) -> Result<(), Failure> {
    let call = Kind::Image.read_call("show the definition of", id);
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else {
        output::out(&files::to_yaml(&reply, &KEYS_FIRST));
    }
    Ok(())
}

async fn create(definition: &Definition, session: &Session) -> Result<(), Failure> {
    let mut body = definition.body()?;
    // The version of a file belongs to an existing image.
    body.remove("version");
    let id = &definition.draft.image.id;
    let before = version(id, session).await;
    let call = Kind::Image.create_call(id, Value::Object(body));
    let done = Done {
        changed: format!("created image {id}"),
        unchanged: format!("image {id} exists already, with this definition"),
    };
    finish(&call, before, &done, session).await
}

async fn update(definition: &Definition, session: &Session) -> Result<(), Failure> {
    let body = Value::Object(definition.body()?);
    let id = &definition.draft.image.id;
    let before = version(id, session).await;
    let call = Kind::Image.update_call(id, body);
    let done = Done {
        changed: format!("updated image {id}"),
        unchanged: format!("image {id} has this definition already"),
    };
    finish(&call, before, &done, session).await
}

/// The reports of a command, after a change and if nothing had to be changed.
struct Done {
    changed: String,
    unchanged: String,
}

/// The version that a server has; `None`: it has none, or does not show it to this client.
async fn version(id: &str, session: &Session) -> Option<u64> {
    let call = Kind::Image.read_call("show the definition of", id);
    session.client.call(&call).await.ok()?["version"].as_u64()
}

/// Sends the call, and reports the version that follows.
async fn finish(
    call: &Call,
    before: Option<u64>,
    done: &Done,
    session: &Session,
) -> Result<(), Failure> {
    let reply = session.client.call(call).await?;
    let version = &reply["version"];
    let text = match before.is_some() && before == version.as_u64() {
        true => format!("{}, at version {version}", done.unchanged),
        false => format!("{}, now at version {version}", done.changed),
    };
    session.done(&reply, &text);
    Ok(())
}

async fn plan(draft: &Draft, session: &Session) -> Result<(), Failure> {
    let mut body = draft.body()?;
    body.remove("version");
    let id = &draft.image.id;
    let call = Call::post(FLEETWRIGHT, &["image", id, "plan"], Value::Object(body))
        .to(format!("plan image {id}"));
    let reply = session.client.call(&call).await?;
    if !session.json && reply["exists"] == false {
        output::out(&format!(
            "image {id} does not exist: it would be created and built"
        ));
        return Ok(());
    }
    show_changes(&reply, session);
    Ok(())
}

fn show_changes(reply: &Value, session: &Session) {
    if session.json {
        return output::json(reply);
    }
    let changes = reply["changes"].as_array().map_or(&[][..], Vec::as_slice);
    if changes.is_empty() {
        return output::out("no differences");
    }
    let style = Style {
        in_colour: output::in_colour(),
        in_full: true,
    };
    for change in changes {
        let parsed = values::parse(&json!([change]));
        let effect = change["effect"].as_str().unwrap_or_default();
        let mut lines = values::lines(&parsed, style);
        lines.push(format!("    {}", output::printable(effect)));
        output::out(&lines.join("\n"));
    }
}

async fn revert(reversion: &Reversion, session: &Session) -> Result<(), Failure> {
    let (id, to) = (&reversion.image.id, reversion.to);
    let mut body = Map::from_iter([("to".to_owned(), json!(to))]);
    set(&mut body, "reason", reversion.reason.clone());
    let call = Call::post(FLEETWRIGHT, &["image", id, "revert"], Value::Object(body))
        .to(format!("revert image {id} to version {to}"))
        .list_command(HISTORY_COMMAND);
    reversion.consent.confirm(&call)?;
    let before = version(id, session).await;
    let done = Done {
        changed: format!("restored version {to} of image {id}"),
        unchanged: format!("image {id} has the definition of version {to} already"),
    };
    finish(&call, before, &done, session).await
}
