//! Requests about images and their builds, and the provenance of builds.

use clap::Args;
use serde_json::{Map, Value};

use super::{Name, log, status};
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

/// Requests a build. With `follow`, fails if the build fails.
pub(super) async fn build(request: &BuildRequest, session: &Session) -> Result<(), Failure> {
    let id = &request.asked.image.id;
    if !request.follow {
        return ask(&request.asked, "build", "requested a build of", session).await;
    }
    let before = log::newest(&status::read(id, session).await?).unwrap_or(0);
    session.client.call(&call(&request.asked, "build")).await?;
    log::follow(id, before, session).await
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
    .list_command("fleetwright image show IMAGE")
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
        .list_command("fleetwright image show IMAGE");
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
