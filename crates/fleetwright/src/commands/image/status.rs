//! The status of images: lists, shows and explains them.

use serde_json::{Value, json};

use super::canary;
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::{Limit, Session};
use crate::failure::Failure;
use crate::output::{self, Column, printable};

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

const TARGETS: &[Column] = &[
    Column::text("TARGET", "target"),
    Column::number("IN USE", "inUse/build"),
    Column::age("SINCE", "inUse/since"),
    Column::text("IMAGE THERE", "inUse/externalId"),
    Column::number("CANARY", "canary/build"),
];

const BUILDS: &[Column] = &[
    Column::number("BUILD", "build"),
    Column::text("STATE", "state"),
    Column::age("SINCE", "since"),
    Column::text("MARKS", MARKS),
    Column::text("BUILDER", "builder"),
    Column::prose("REASON", "reason"),
    Column::prose("ERROR", "error"),
];
/// The field of a build with `in use`, `pinned`, `rolled back` and the like, which the API does not
/// have.
const MARKS: &str = "marks";

const UPLOADS: &[Column] = &[
    Column::number("BUILD", "build"),
    Column::text("TARGET", "target"),
    Column::text("STATE", "state"),
    Column::age("SINCE", "since"),
    Column::text("IMAGE THERE", "externalId"),
    Column::prose("ERROR", "error"),
];

/// The fields of a build with the decision about it, in words.
const DECISIONS: [(&str, &str); 3] = [
    ("promoted", "promoted"),
    ("rolledBack", "rolled back"),
    ("passedOver", "passed over"),
];

pub(super) async fn list(limit: &Limit, session: &Session) -> Result<(), Failure> {
    const KEY: &str = "images";
    let call = Call::get(FLEETWRIGHT, &["images", "status"]).to("list images");
    let mut document = session.client.pages(&call, KEY, limit.limit).await?;
    if !session.json {
        let line = items(&document, KEY).find_map(age_of_copy);
        if let Some(line) = line {
            output::note(&line);
        }
        for image in document[KEY].as_array_mut().into_iter().flatten() {
            image[IN_USE] = json!(in_use(image));
            image[NEWEST] = json!(newest(image));
            image[NEXT] = image["nextSteps"][0]["step"].clone();
        }
    }
    session.rows(&document, KEY, LIST);
    Ok(())
}

/// A note that the status is not the present one.
fn age_of_copy(status: &Value) -> Option<String> {
    let time = status.get("asOf")?.as_str()?;
    Some(format!(
        "as of {}: the server does not reach the tree of images, so this may have changed",
        printable(time)
    ))
}

/// `aws: 57, local: 58 (canary 59)`.
fn in_use(image: &Value) -> String {
    let texts = items(image, "targets").map(|target| {
        let name = text(target, "target");
        let build = |key: &str| target[key]["build"].as_u64();
        match (build("inUse"), build("canary")) {
            (None, None) => format!("{name}: -"),
            (None, Some(canary)) => format!("{name}: - (canary {canary})"),
            (Some(used), None) => format!("{name}: {used}"),
            (Some(used), Some(canary)) => format!("{name}: {used} (canary {canary})"),
        }
    });
    let texts = texts.collect::<Vec<_>>().join(", ");
    if texts.is_empty() { "-".into() } else { texts }
}

/// `58 failed`, `59 rolled back`.
fn newest(image: &Value) -> String {
    let build = &image["builds"][0];
    let Some(number) = build["build"].as_u64() else {
        return "-".to_owned();
    };
    let state = unused(image, number).or(build["state"].as_str());
    format!("{number} {}", state.unwrap_or_default())
}

/// The word for a build from which no machine starts by a decision.
fn unused(image: &Value, build: u64) -> Option<&'static str> {
    let is = |key: &str| items(&image["standing"], key).any(|it| it.as_u64() == Some(build));
    let mut decisions = DECISIONS.iter().skip(1);
    decisions.find(|(key, _)| is(key)).map(|(_, word)| *word)
}

/// The reply of `imageStatus`.
pub(super) async fn read(id: &str, session: &Session) -> Result<Value, Failure> {
    session.client.call(&call(id)).await
}

pub(super) fn call(id: &str) -> Call {
    Call::get(FLEETWRIGHT, &["image", id, "status"])
        .to(format!("show the status of image {id}"))
        .list_command("fleetwright image list")
}

pub(super) async fn show(id: &str, session: &Session) -> Result<(), Failure> {
    let mut status = read(id, session).await?;
    if session.json {
        output::json(&status);
        return Ok(());
    }
    print_state(id, &status);
    print_decisions(&status);
    canary::print(&status, session);
    let builds: Vec<Value> = items(&status, "builds")
        .map(|build| marked(build, &status))
        .collect();
    status["builds"] = json!(builds);
    let uploads = json!({"uploads": uploads(&status)});
    for (document, key, columns) in [
        (&status, "targets", TARGETS),
        (&status, "builds", BUILDS),
        (&uploads, "uploads", UPLOADS),
    ] {
        if items(document, key).next().is_some() {
            output::out("");
            session.rows(document, key, columns);
        }
    }
    output::out("");
    print_steps(&status, session);
    Ok(())
}

/// `image linux: build failed`, and who paused it or asked for a build.
fn print_state(id: &str, status: &Value) {
    if let Some(line) = age_of_copy(status) {
        output::note(&line);
    }
    output::out(&format!("image {id}: {}", text(status, "state")));
    for (key, what) in [("pause", "paused"), ("request", "build requested")] {
        let Some(note) = status.get(key) else {
            continue;
        };
        print_note(what, note);
    }
    if status.get("definitionError").is_some() {
        let problem = text(status, "definitionError");
        output::out(&format!("nothing is done with it: {problem}"));
    }
}

/// `paused by people/ops at 2026-11-26T06:40:00.000Z: moving racks`
fn print_note(what: &str, note: &Value) {
    let by = match text(note, "by") {
        by if by.is_empty() => by,
        by => format!(" by {by}"),
    };
    let reason = match text(note, "reason") {
        reason if reason.is_empty() => reason,
        reason => format!(": {reason}"),
    };
    output::out(&format!("{what}{by} at {}{reason}", text(note, "since")));
}

/// Why one build is used and others are not: `build 2 was rolled back by fleetwright at …`.
fn print_decisions(status: &Value) {
    for build in items(status, "builds") {
        for (key, what) in DECISIONS {
            if let Some(note) = build.get(key) {
                print_note(&format!("build {} was {what}", build["build"]), note);
            }
        }
    }
}

fn decisions(status: &Value) -> Vec<Value> {
    let builds = items(status, "builds");
    let decisions = builds.flat_map(|build| {
        DECISIONS.iter().filter_map(|(key, what)| {
            let mut decision = build.get(key)?.clone();
            decision["build"] = build["build"].clone();
            decision["decision"] = json!(what);
            Some(decision)
        })
    });
    decisions.collect()
}

fn marked(build: &Value, status: &Value) -> Value {
    let number = build["build"].as_u64();
    let is = |key: &str| items(status, "targets").any(|it| it[key]["build"].as_u64() == number);
    let mut marks = Vec::new();
    for (mark, has_it) in [
        ("in use", is("inUse")),
        ("canary", is("canary")),
        ("pinned", build.get("pin").is_some()),
    ] {
        if has_it {
            marks.push(mark);
        }
    }
    marks.extend(number.and_then(|number| unused(status, number)));
    let mut build = build.clone();
    if !marks.is_empty() {
        build[MARKS] = json!(marks.join(", "));
    }
    build
}

/// All uploads, with the numbers of their builds.
fn uploads(status: &Value) -> Vec<Value> {
    let builds = items(status, "builds");
    let uploads = builds.flat_map(|build| {
        items(build, "uploads").map(|upload| {
            let mut upload = upload.clone();
            upload["build"] = build["build"].clone();
            upload
        })
    });
    uploads.collect()
}

fn print_steps(status: &Value, session: &Session) {
    for (number, step) in items(status, "nextSteps").enumerate() {
        let word = if number == 0 { "next: " } else { "      " };
        let when = step["until"].as_str().and_then(|until| until.parse().ok());
        let when = match when {
            None => String::new(),
            Some(when) => format!(" ({})", output::age(when, session.now)),
        };
        output::out(&format!("{word}{}{when}", text(step, "step")));
    }
}

/// `explain image`: the decisions about builds, and the next steps, with their reasons.
pub(crate) async fn explain(id: &str, session: &Session) -> Result<(), Failure> {
    let status = read(id, session).await?;
    if session.json {
        let mut explanation = json!({"imageId": id, "decisions": decisions(&status)});
        for key in ["asOf", "state", "pause", "request", "canary", "nextSteps"] {
            if let Some(value) = status.get(key) {
                explanation[key] = value.clone();
            }
        }
        output::json(&explanation);
        return Ok(());
    }
    print_state(id, &status);
    print_decisions(&status);
    canary::print(&status, session);
    print_steps(&status, session);
    Ok(())
}

pub(super) fn items<'a>(document: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    document[key].as_array().into_iter().flatten()
}

pub(super) fn text(document: &Value, key: &str) -> String {
    printable(document[key].as_str().unwrap_or_default())
}
