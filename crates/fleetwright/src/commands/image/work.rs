//! Requests about images and their builds, and the provenance of builds.

use clap::Args;
use serde_json::{Map, Value};

use super::{Name, log};
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::body::set;
use crate::commands::{Confirmed, Session};
use crate::failure::Failure;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Asked {
    #[command(flatten)]
    image: Name,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct BuildRequest {
    #[command(flatten)]
    asked: Asked,
    /// Wait for the build, print its log, and fail if it fails
    #[arg(long, short)]
    follow: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Build {
    #[command(flatten)]
    image: Name,
    /// Number of the build
    #[arg(value_name = "BUILD", value_parser = build_number)]
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
    #[arg(long, value_name = "BUILD", value_parser = build_number)]
    to: u64,
    /// Reason, for the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) fn build_number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "must be the number of a build, such as `3`".to_owned())
}

/// Requests a build. With `follow`, fails if the build fails.
pub(super) async fn build(request: &BuildRequest, session: &Session) -> Result<(), Failure> {
    let id = &request.asked.image.id;
    let reply = session.client.call(&call(&request.asked, "build")).await?;
    let running = reply["build"].as_u64();
    if request.follow {
        let after = reply["newerThan"].as_u64().unwrap_or_default();
        return log::follow(id, running, after, session).await;
    }
    let done = match running {
        Some(build) => {
            format!("build {build} of image {id} runs already: it is the first of this definition")
        }
        None => format!("requested a build of image {id}"),
    };
    session.done(&reply, &done);
    if let Some(why) = reply["waits"].as_str().filter(|_| !session.json) {
        output::note(&format!("no build yet: {}", output::printable(why)));
    }
    Ok(())
}

/// Sends a request about an image: `done` says what was asked for.
pub(super) async fn ask(
    asked: &Asked,
    what: &str,
    done: &str,
    session: &Session,
) -> Result<(), Failure> {
    let text = format!("{done} image {}", asked.image.id);
    session.order(&call(asked, what), &text).await
}

fn call(asked: &Asked, what: &str) -> Call {
    let id = &asked.image.id;
    let body = body(asked.reason.as_deref());
    Call::post(FLEETWRIGHT, &["image", id, what], body)
        .to(format!("{what} image {id}"))
        .list_command("fleetwright image list")
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
    let call = call_of_build(id, to, "promote", rollback.reason.as_deref())
        .to(format!("roll back to build {to} of image {id}"));
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
    .list_command(format!("fleetwright image show {id}"))
}

fn body(reason: Option<&str>) -> Value {
    let mut body = Map::new();
    set(&mut body, "reason", reason.map(str::to_owned));
    Value::Object(body)
}

pub(super) async fn provenance(build: &Build, session: &Session) -> Result<(), Failure> {
    let (id, number) = (&build.image.id, build.build.to_string());
    let call = Call::get(FLEETWRIGHT, &["image", id, "builds", &number, "provenance"])
        .to(format!(
            "show the provenance of build {number} of image {id}"
        ))
        .list_command(format!("fleetwright image show {id}"));
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
