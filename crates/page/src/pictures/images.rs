//! Images: their builds by target, canaries, and what people do about them.

use api_client::{Call, FLEETWRIGHT};
use futures_util::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use super::canary::Canary;
use crate::json::Json as _;
use crate::links;
use crate::parts::{Action, empty, facts, field, heads, mark, more, table};
use crate::view::{Part, Problem, Shown, View, Visit};
use crate::words::{ago, count, counted, duration, percent};

const PAGE: u32 = 100;
/// Bytes of the end of a build's log that the page shows.
const LOG_BYTES: usize = 32 * 1024;

pub(super) async fn list(visit: &Visit<'_>) -> Shown {
    let after = visit.query("after");
    let call = Call::get(FLEETWRIGHT, &["images", "status"])
        .query("limit", Some(PAGE))
        .query("continuationToken", (!after.is_empty()).then_some(after));
    let reply = visit.api.call(call).await?;
    let images = reply.list("images");
    let mut targets: Vec<&str> = images
        .iter()
        .flat_map(|image| image.list("targets"))
        .map(|target| target.text("target"))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    let rows = html! {
        @for image in images {
            tr {
                th scope="row" {
                    a href=(links::image(image.text("imageId"))) {
                        @if is_ill(image) { (mark(true)) }
                        (image.text("imageId"))
                    }
                }
                td { (image.text("state")) }
                @for name in &targets {
                    td { (in_use(image, name, visit)) }
                }
                td .n { (count(image.count("pools"))) }
                td .wrap.cz { (image.text("nextBuild.reason")) }
            }
        }
    };
    let mut names = vec!["Image", "State"];
    names.extend(&targets);
    names.extend(["#Pools", "Next"]);
    let content = html! {
        h1 { "Images" }
        @if images.is_empty() {
            (empty("No image exists yet. `fleetwright image create` makes one; docs/images.md shows how."))
        } @else {
            (table("Images and the builds in use, by target", &heads(&names), &rows))
        }
        (more(visit, reply.text("continuationToken")))
    };
    let view = View::new(Part::Images, "Images").section("images", content);
    Ok(view.command("fleetwright image list"))
}

/// Its newest build failed, or was rolled back.
fn is_ill(image: &Value) -> bool {
    let newest = image
        .list("builds")
        .iter()
        .max_by_key(|build| build.count("build"));
    let failed = newest
        .is_some_and(|build| build.text("state") == "failed" || build.at("rolledBack").is_object());
    failed || !image.text("definitionError").is_empty()
}

fn in_use(image: &Value, target: &str, visit: &Visit<'_>) -> Markup {
    let found = image
        .list("targets")
        .iter()
        .find(|it| it.text("target") == target);
    html! {
        @if let Some(found) = found {
            @if found.at("inUse").is_object() {
                "build " b { (found.count("inUse.build")) } " " (ago(found.moment("inUse.since"), visit.now))
            } @else { "none yet" }
            @if found.at("canary").is_object() { ", canary of " (found.count("canary.build")) }
        } @else { span .z { "–" } }
    }
}

pub(super) async fn show(visit: &Visit<'_>, id: &str) -> Shown {
    let calls = [
        Call::get(FLEETWRIGHT, &["image", id, "status"]),
        Call::get(FLEETWRIGHT, &["image", id]),
        Call::get(FLEETWRIGHT, &["image", id, "versions"]),
    ];
    let replies = join_all(calls.map(|call| visit.api.call(call))).await;
    let Ok([status, definition, versions]) = <[_; 3]>::try_from(replies) else {
        return Err(Problem::NotFound);
    };
    let (status, definition) = (status?, definition?);
    let head = html! {
        p .crumb { a href="/images" { "Images" } }
        div .hd {
            h1 { "Image " (id) }
            div .r { (image_actions(visit, id, &status)) }
        }
        p .lede { (sentence(&status)) }
        p .note { (definition.text("description")) }
        (facts(&[
            ("Owner", html! { (definition.text("owner")) }),
            ("Version", html! { (status.count("version")) }),
            ("Pools", html! { (count(status.count("pools"))) }),
            ("Next", html! { (status.text("nextBuild.reason"))
                @if let Some(until) = status.moment("nextBuild.until") { " " (ago(Some(until), visit.now)) } }),
        ]))
    };
    let canary = Canary::find(visit, id, &status).await;
    let log = visit.query("log");
    let log = match log.parse::<u64>() {
        Ok(_) => {
            let call = Call::get(FLEETWRIGHT, &["image", id, "builds", log, "log"]);
            visit.api.call(call).await.ok()
        }
        Err(_) => None,
    };
    let view = View::new(Part::Images, format!("Image {id}"))
        .section("head", head)
        .section(
            "canary",
            canary_section(visit, id, &status, canary.as_ref()),
        )
        .section("builds", builds(visit, id, &status))
        .section(
            "log",
            build_log(visit.query("log"), log.as_ref().and_then(Value::as_str)),
        )
        .section("history", history(visit, versions.as_ref().ok()));
    Ok(view.command(format!("fleetwright image show {id}")))
}

/// Is the newest build safe?
fn sentence(status: &Value) -> String {
    let standing = status.at("standing");
    let canary = status.at("canary");
    if canary.is_object() {
        return format!(
            "Build {} is in a canary with {} of new machines: {}",
            canary.count("build"),
            percent(canary.number("share").unwrap_or_default(), 1.0),
            canary.text("verdict")
        );
    }
    let rolled_back = standing
        .list("rolledBack")
        .iter()
        .filter_map(Value::as_u64)
        .max();
    let promoted = standing.at("promoted").as_u64();
    match (promoted, rolled_back) {
        (Some(promoted), Some(bad)) if bad > promoted => {
            format!("Build {bad} was rolled back. New machines start from build {promoted}.")
        }
        (Some(promoted), _) => format!("New machines start from build {promoted}."),
        (None, _) => "No build is promoted yet.".to_owned(),
    }
}

/// The canary with the actions on its build.
fn canary_section(visit: &Visit<'_>, id: &str, status: &Value, canary: Option<&Canary>) -> Markup {
    let Some(canary) = canary else {
        return html! {};
    };
    let builds = status.list("builds");
    let build = builds
        .iter()
        .find(|build| build.count("build") == canary.build());
    let promoted = status.at("standing.promoted").as_u64();
    let actions = html! {
        @if let Some(build) = build.filter(|_| !canary.is_over()) {
            (build_actions(visit, id, build, false, "canary"))
            @if let Some(promoted) = promoted { (roll_back(visit, id, canary.build(), promoted)) }
        }
    };
    canary.show(visit, &actions)
}

/// The build in use is chosen again, so the new one is not used any more.
fn roll_back(visit: &Visit<'_>, id: &str, build: u64, to: u64) -> Markup {
    let to = to.to_string();
    let path = ["image", id, "builds", &to, "promote"];
    Action {
        needs: Call::post(FLEETWRIGHT, &path, &Value::Null),
        id: "roll-back",
        name: "Roll back",
        says: &format!("New machines start from build {to} only. Build {build} is not used."),
        path: "image/promote",
        hidden: &[("image", id), ("build", &to)],
        fields: html! { (field("Reason", "reason", "", false)) },
        command: &format!("fleetwright image rollback {id} --to {to} --reason {{reason}}"),
    }
    .show(visit)
}

fn builds(visit: &Visit<'_>, id: &str, status: &Value) -> Markup {
    let builds = status.list("builds");
    let promoted = status.at("standing.promoted").as_u64();
    let rows = html! {
        @for build in builds.iter().rev() {
            @let number = build.count("build");
            tr {
                th scope="row" { "Build " (number) }
                td { (standing(build, promoted == Some(number))) }
                td { (ago(build.moment("started"), visit.now)) }
                td .n { (took(build)) }
                td .cz { (build.text("builder")) }
                td .wrap {
                    @for upload in build.list("uploads") {
                        (upload.text("target")) " " (upload.text("state")) " "
                        @if !upload.text("error").is_empty() { span .bad { (upload.text("error")) } " " }
                    }
                }
                td .wrap.cz { (build.text("error")) (reasons(build)) }
                td { a href=(visit.with("log", &number.to_string())) { "log" } }
                td { (build_actions(visit, id, build, promoted == Some(number), "build")) }
            }
        }
    };
    let head = heads(&[
        "Build", "State", "Began", "#Took", "Builder", "Uploads", "Why", "Log", "Action",
    ]);
    html! {
        h2 { "Builds" }
        @if builds.is_empty() {
            (empty("It has not been built yet. A builder builds it as soon as it sees the definition."))
        } @else {
            (table("Builds", &head, &rows))
        }
    }
}

fn standing(build: &Value, is_promoted: bool) -> Markup {
    html! {
        @if is_promoted { span .good { "promoted" } }
        @else if build.at("rolledBack").is_object() { span .bad { "rolled back" } }
        @else if build.text("state") == "failed" { span .bad { "failed" } }
        @else { (build.text("state")) }
        @if build.at("pin").is_object() { ", pinned" }
    }
}

/// The people who changed the standing of the build, with their reasons.
fn reasons(build: &Value) -> Markup {
    html! {
        @for (name, word) in [("promoted", "Promoted"), ("rolledBack", "Rolled back"),
            ("passedOver", "Passed over"), ("pin", "Pinned")] {
            @let note = build.at(name);
            @if note.is_object() {
                (word) " by " (note.text("by")) ": " (note.text("reason")) " "
            }
        }
    }
}

fn took(build: &Value) -> String {
    match (build.moment("started"), build.moment("finished")) {
        (Some(started), Some(finished)) => duration(finished.millis_since(started)),
        _ => "–".to_owned(),
    }
}

fn build_log(number: &str, log: Option<&str>) -> Markup {
    let log = log.unwrap_or_default();
    let start = log.len().saturating_sub(LOG_BYTES);
    let start = (start..=log.len())
        .find(|at| log.is_char_boundary(*at))
        .unwrap_or(0);
    html! {
        @if !number.is_empty() {
            h2 { "Log of build " (number) }
            pre .log tabindex="0" aria-label="Log" { (log.get(start..).unwrap_or_default()) }
        }
    }
}

fn history(visit: &Visit<'_>, versions: Option<&Value>) -> Markup {
    let versions = versions.map_or(&[][..], |versions| versions.list("versions"));
    let rows = html! {
        @for version in versions {
            tr {
                th scope="row" { "Version " (version.count("version")) }
                td { (version.text("action")) }
                td { (version.text("clientId")) }
                td { (ago(version.moment("created"), visit.now)) }
                td .wrap { (version.text("reason")) }
            }
        }
    };
    html! {
        h2 #who { "Versions of the definition" }
        p .note { (counted(versions.len() as u64, "version")) }
        (table("Versions", &heads(&["Version", "Did", "Who", "When", "Reason"]), &rows))
    }
}

fn image_actions(visit: &Visit<'_>, id: &str, status: &Value) -> Markup {
    let call = |action: &str| Call::post(FLEETWRIGHT, &["image", id, action], &Value::Null);
    let hidden = [("image", id)];
    let is_paused = status.at("pause").is_object();
    let (action, name, says) = match is_paused {
        true => ("resume", "Resume", "It is built and uploaded again."),
        false => (
            "pause",
            "Pause",
            "Nothing of it is built or uploaded until it is resumed.",
        ),
    };
    html! {
        (Action {
            needs: call("build"),
            id: "build",
            name: "Build",
            says: "A builder builds it now.",
            path: "image/build",
            hidden: &hidden,
            fields: html! { (field("Reason", "reason", "", false)) },
            command: &format!("fleetwright image build {id}"),
        }.show(visit))
        (Action {
            needs: call(action),
            id: "pause",
            name,
            says,
            path: &format!("image/{action}"),
            hidden: &hidden,
            fields: html! { (field("Reason", "reason", "", false)) },
            command: &format!("fleetwright image {action} {id} --reason {{reason}}"),
        }.show(visit))
    }
}

/// `at` names the part of the page, whose forms have ids of their own.
fn build_actions(
    visit: &Visit<'_>,
    id: &str,
    build: &Value,
    is_promoted: bool,
    at: &str,
) -> Markup {
    let number = build.count("build").to_string();
    let hidden = [("image", id), ("build", number.as_str())];
    let call = |action: &str| {
        Call::post(
            FLEETWRIGHT,
            &["image", id, "builds", &number, action],
            &Value::Null,
        )
    };
    let is_pinned = build.at("pin").is_object();
    let (pin, pin_name, pin_says) = match is_pinned {
        true => ("unpin", "Unpin", "It may be deleted as other builds are."),
        false => ("pin", "Pin", "It is kept until it is unpinned."),
    };
    html! {
        @if !is_promoted && build.text("state") == "ready" {
            (Action {
                needs: call("promote"),
                id: &format!("{at}-promote-{number}"),
                name: "Promote",
                says: "New machines start from this build from now on; those that run stay.",
                path: "image/promote",
                hidden: &hidden,
                fields: html! { (field("Reason", "reason", "", false)) },
                command: &format!("fleetwright image promote {id} {number} --reason {{reason}}"),
            }.show(visit))
        }
        (Action {
            needs: call(pin),
            id: &format!("{at}-pin-{number}"),
            name: pin_name,
            says: pin_says,
            path: &format!("image/{pin}"),
            hidden: &hidden,
            fields: html! { (field("Reason", "reason", "", false)) },
            command: &format!("fleetwright image {pin} {id} {number}"),
        }.show(visit))
    }
}
