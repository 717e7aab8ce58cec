//! Builds of images: their status and logs, and requests about them.

use clap::Args;
use serde_json::{Map, Value, json};

use super::Name;
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::body::set;
use crate::commands::{Confirmed, Limit, Session};
use crate::failure::Failure;
use crate::output::{self, Column};

/// Seconds that a reply about a growing log may wait.
const WAIT_SECONDS: u32 = 20;

#[derive(Args, Debug)]
pub(crate) struct Statuses {
    /// Image (default: all images)
    #[arg(value_name = "IMAGE", value_parser = crate::commands::name::image)]
    image: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args, Debug)]
pub(crate) struct Asked {
    #[command(flatten)]
    image: Name,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Build {
    #[command(flatten)]
    image: Name,
    /// Number of the build
    #[arg(value_name = "BUILD")]
    build: u64,
}

#[derive(Args, Debug)]
pub(crate) struct AskedBuild {
    #[command(flatten)]
    build: Build,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Rollback {
    #[command(flatten)]
    image: Name,
    /// Build from which machines start from now on
    #[arg(long, value_name = "BUILD")]
    to: u64,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Log {
    #[command(flatten)]
    image: Name,
    /// Number of the build (default: the newest)
    #[arg(value_name = "BUILD")]
    build: Option<u64>,
    /// Continue until the build has ended
    #[arg(long, short)]
    follow: bool,
}

const LIST: &[Column] = &[
    Column::text("IMAGE", "imageId"),
    Column::text("STATE", "state"),
    Column::text("IN USE", IN_USE),
    Column::text("NEWEST BUILD", NEWEST),
    Column::prose("NEXT", NEXT),
];
/// Fields of a row that the API does not have.
const IN_USE: &str = "inUse";
const NEWEST: &str = "newest";
const NEXT: &str = "next";

const BUILDS: &[Column] = &[
    Column::number("BUILD", "build"),
    Column::text("STATE", "state"),
    Column::age("SINCE", "since"),
    Column::text("BUILDER", "builder"),
    Column::text("REASON", "reason"),
    Column::prose("ERROR", "error"),
];

const UPLOADS: &[Column] = &[
    Column::number("BUILD", "build"),
    Column::text("TARGET", "target"),
    Column::text("STATE", "state"),
    Column::age("SINCE", "since"),
    Column::text("IMAGE THERE", "externalId"),
    Column::prose("ERROR", "error"),
];

pub(super) async fn status(statuses: &Statuses, session: &Session) -> Result<(), Failure> {
    match &statuses.image {
        Some(id) => show(id, session).await,
        None => list(&statuses.limit, session).await,
    }
}

async fn list(limit: &Limit, session: &Session) -> Result<(), Failure> {
    const KEY: &str = "images";
    let call = Call::get(FLEETWRIGHT, &["images", "status"]).to("list the status of images");
    let mut document = session.client.pages(&call, KEY, limit.limit).await?;
    if !session.json {
        for image in document[KEY].as_array_mut().into_iter().flatten() {
            image[IN_USE] = json!(in_use(image));
            image[NEWEST] = json!(newest(image));
            image[NEXT] = image["nextSteps"][0]["step"].clone();
        }
    }
    session.rows(&document, KEY, LIST);
    Ok(())
}

/// `aws: 57, local: 58 (canary 59)`.
fn in_use(image: &Value) -> String {
    let targets = image["targets"].as_array().into_iter().flatten();
    let texts = targets.map(|target| {
        let name = target["target"].as_str().unwrap_or_default();
        let build = |key: &str| target[key]["build"].as_u64();
        match (build("inUse"), build("canary")) {
            (None, _) => format!("{name}: -"),
            (Some(used), None) => format!("{name}: {used}"),
            (Some(used), Some(canary)) => format!("{name}: {used} (canary {canary})"),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn newest(image: &Value) -> String {
    let build = &image["builds"][0];
    let Some(number) = build["build"].as_u64() else {
        return "-".to_owned();
    };
    format!("{number} {}", build["state"].as_str().unwrap_or_default())
}

async fn read_status(id: &str, session: &Session) -> Result<Value, Failure> {
    let call = Call::get(FLEETWRIGHT, &["image", id, "status"])
        .to(format!("show the status of image {id}"))
        .list_command("fleetwright image list");
    session.client.call(&call).await
}

async fn show(id: &str, session: &Session) -> Result<(), Failure> {
    let status = read_status(id, session).await?;
    if session.json {
        output::json(&status);
        return Ok(());
    }
    let text = |key: &str| output::printable(status[key].as_str().unwrap_or_default());
    output::out(&format!("image {id} is {}", text("state")));
    for (key, what) in [("pause", "paused"), ("request", "build requested")] {
        if let Some(note) = status.get(key) {
            let text = |key: &str| output::printable(note[key].as_str().unwrap_or_default());
            let (by, since, reason) = (text("by"), text("since"), text("reason"));
            let reason = if reason.is_empty() {
                reason
            } else {
                format!(": {reason}")
            };
            output::out(&format!("{what} by {by} at {since}{reason}"));
        }
    }
    if let Some(problem) = status["definitionError"].as_str() {
        output::out(&format!(
            "builders cannot read it: {}",
            output::printable(problem)
        ));
    }
    output::out(&format!("machines start from: {}", in_use(&status)));
    output::out("");
    session.rows(&status, "builds", BUILDS);
    let uploads = json!({"uploads": uploads(&status)});
    if uploads["uploads"]
        .as_array()
        .is_some_and(|uploads| !uploads.is_empty())
    {
        output::out("");
        session.rows(&uploads, "uploads", UPLOADS);
    }
    output::out("");
    print_steps(&status);
    Ok(())
}

/// All uploads, with the numbers of their builds.
fn uploads(status: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for build in status["builds"].as_array().into_iter().flatten() {
        for upload in build["uploads"].as_array().into_iter().flatten() {
            let mut upload = upload.clone();
            upload["build"] = build["build"].clone();
            all.push(upload);
        }
    }
    all
}

fn print_steps(status: &Value) {
    let steps = status["nextSteps"].as_array().into_iter().flatten();
    let steps = steps.filter_map(|step| step["step"].as_str());
    for (number, step) in steps.enumerate() {
        let word = if number == 0 { "next: " } else { "      " };
        output::out(&format!("{word}{}", output::printable(step)));
    }
}

/// `explain image`: what is done next, and why other things wait.
pub(crate) async fn explain(id: &str, session: &Session) -> Result<(), Failure> {
    let status = read_status(id, session).await?;
    if session.json {
        output::json(&json!({"imageId": id, "nextSteps": status["nextSteps"]}));
        return Ok(());
    }
    let text = output::printable(status["state"].as_str().unwrap_or_default());
    output::out(&format!("image {id} is {text}"));
    print_steps(&status);
    Ok(())
}

/// Sends a request about an image: `done` says what was asked for.
pub(super) async fn ask(
    asked: &Asked,
    what: &str,
    done: &str,
    session: &Session,
) -> Result<(), Failure> {
    let id = &asked.image.id;
    let call = Call::post(
        FLEETWRIGHT,
        &["image", id, what],
        body(asked.reason.as_deref()),
    )
    .to(format!("{what} image {id}"))
    .list_command("fleetwright image list");
    session.order(&call, &format!("{done} image {id}")).await
}

pub(super) async fn ask_of_build(
    asked: &AskedBuild,
    what: &str,
    done: &str,
    session: &Session,
) -> Result<(), Failure> {
    let (id, build) = (&asked.build.image.id, asked.build.build);
    let call = call_of_build(id, build, what, asked.reason.as_deref());
    session
        .order(&call, &format!("{done} build {build} of image {id}"))
        .await
}

pub(super) async fn delete_build(
    deletion: &Confirmed<AskedBuild>,
    session: &Session,
) -> Result<(), Failure> {
    let asked = &deletion.name;
    let (id, build) = (&asked.build.image.id, asked.build.build);
    let call = call_of_build(id, build, "delete", asked.reason.as_deref());
    deletion.consent.confirm(&call)?;
    let text = format!("build {build} of image {id} is being deleted");
    session.order(&call, &text).await
}

pub(super) async fn roll_back(rollback: &Rollback, session: &Session) -> Result<(), Failure> {
    let (id, to) = (&rollback.image.id, rollback.to);
    let call = call_of_build(id, to, "promote", rollback.reason.as_deref());
    let text = format!("new machines start from build {to} of image {id}");
    session.order(&call, &text).await
}

fn call_of_build(id: &str, build: u64, what: &str, reason: Option<&str>) -> Call {
    let number = build.to_string();
    Call::post(
        FLEETWRIGHT,
        &["image", id, "builds", &number, what],
        body(reason),
    )
    .to(format!("{what} build {build} of image {id}"))
    .list_command("fleetwright image status")
}

fn body(reason: Option<&str>) -> Value {
    let mut body = Map::new();
    set(&mut body, "reason", reason.map(str::to_owned));
    Value::Object(body)
}

/// Prints the log of a build. With `follow`, until the build has ended.
pub(super) async fn log(log: &Log, session: &Session) -> Result<(), Failure> {
    let id = &log.image.id;
    let build = match log.build {
        Some(build) => build,
        None => newest_build(id, session).await?,
    };
    let number = build.to_string();
    let mut from = 0;
    loop {
        let call = Call::get(FLEETWRIGHT, &["image", id, "builds", &number, "log"])
            .query("from", Some(from))
            .query("wait", log.follow.then_some(WAIT_SECONDS))
            .to(format!("read the log of build {build} of image {id}"));
        let piece = session.client.call(&call).await?;
        if let Some(left_out) = piece["leftOut"].as_u64().filter(|bytes| *bytes > 0) {
            output::note(&format!(
                "{left_out} bytes are left out here: the log is too long"
            ));
        }
        let text = piece["text"].as_str().unwrap_or_default();
        output::out_raw(text.as_bytes());
        let next = piece["next"].as_u64().unwrap_or(from);
        let is_over = piece["isLast"] == true || (!log.follow && next == from);
        if is_over {
            return output::check_written();
        }
        from = next;
    }
}

async fn newest_build(id: &str, session: &Session) -> Result<u64, Failure> {
    let status = read_status(id, session).await?;
    let newest = status["builds"][0]["build"].as_u64();
    newest.ok_or_else(|| Failure::failed(format!("image {id} has not been built yet")))
}

pub(super) async fn provenance(build: &Build, session: &Session) -> Result<(), Failure> {
    let (id, number) = (&build.image.id, build.build.to_string());
    let call = Call::get(FLEETWRIGHT, &["image", id, "builds", &number, "provenance"]).to(format!(
        "show the provenance of build {number} of image {id}"
    ));
    let reply = session.client.call(&call).await?;
    if reply["isTrusted"] == true || session.json {
        output::json(if session.json {
            &reply
        } else {
            &reply["statement"]
        });
        return Ok(());
    }
    let problem = output::printable(reply["problem"].as_str().unwrap_or_default());
    Err(Failure::failed(format!(
        "the record is not to be trusted: {problem}"
    )))
}
