//! The endpoints of files and logs, which are ours alone.

use access::scope::Template::Scope;
use contract::patterns::DIGITS;
use engine::artifacts::LOG_CONTENT_TYPE;

use super::super::endpoint::Verb::{Get, Put};
use super::super::endpoint::{Endpoint, Handler, Query, Service, Verb};
use super::{files, log};

const CATEGORY: &str = "Artifacts";
const LOG: &str = "/task/<taskId>/runs/<runId>/log";
const FILE: &str = "/task/<taskId>/runs/<runId>/file";
const BYTES: &str = "application/octet-stream";
const YES_NO: &str = "^(true|false)$";

const OFFSET: Query = Query {
    name: "offset",
    pattern: DIGITS,
};
const READING: &[Query] = &[
    OFFSET,
    Query {
        name: "follow",
        pattern: YES_NO,
    },
];
const SIGNED: &[Query] = &[
    Query {
        name: "name",
        pattern: ".",
    },
    Query {
        name: "until",
        pattern: DIGITS,
    },
    Query {
        name: "signature",
        pattern: "^[A-Za-z0-9._-]+$",
    },
];

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::Fleetwright, name, method, route, handler)
}

pub const FILES: &[Endpoint] = &[
    on("appendLog", Put, LOG, |call| Box::pin(log::append(call)))
        .takes_raw_body()
        .query(&[
            OFFSET,
            Query {
                name: "finished",
                pattern: YES_NO,
            },
        ])
        .scopes(Scope("queue:create-artifact:<taskId>/<runId>"))
        .about(
            CATEGORY,
            "Append to the log of a run",
            "For the worker of a run: appends the body at an offset, and answers how long the log is \
             then. Repeating is harmless. A log that grows too long is cut, which the answer tells.",
        ),
    on("taskLog", Get, LOG, |call| Box::pin(log::read(call)))
        .streams(LOG_CONTENT_TYPE)
        .query(READING)
        .scopes(Scope("queue:get-artifact:public/logs/live.log"))
        .about(
            CATEGORY,
            "Read the log of a run",
            "The log from an offset on. With `follow` it goes on as the log grows, and ends with the \
             run; a connection that breaks off before is resumed with a new offset.",
        ),
    on("latestTaskLog", Get, "/task/<taskId>/log", |call| Box::pin(log::read_latest(call)))
        .streams(LOG_CONTENT_TYPE)
        .query(READING)
        .scopes(Scope("queue:get-artifact:public/logs/live.log"))
        .about(CATEGORY, "Read the log of the last run", "As `taskLog`, of the task's last run."),
    on("uploadFile", Put, FILE, |call| Box::pin(files::upload(call)))
        .takes_raw_body()
        .query(SIGNED)
        .about(
            CATEGORY,
            "Upload the file of an artifact",
            "Where `createArtifact` leads. The signature in the URL is what counts.",
        ),
    on("downloadFile", Get, FILE, |call| Box::pin(files::download(call)))
        .streams(BYTES)
        .query(SIGNED)
        .about(
            CATEGORY,
            "Download the file of an artifact",
            "Where `getArtifact` leads. The signature in the URL is what counts.",
        ),
];
