//! The endpoints of files and logs, which Taskcluster does not have.

use contract::patterns::DIGITS;
use engine::artifacts::LOG_CONTENT_TYPE;

use super::super::fleetwright::on;
use super::{files, log};
use crate::api::endpoint::Verb::{Get, Put};
use crate::api::endpoint::{Endpoint, Query, YES_NO, query};

const CATEGORY: &str = "Artifacts";
const LOG: &str = "/task/<taskId>/runs/<runId>/log";
const FILE: &str = "/task/<taskId>/runs/<runId>/file";
const BYTES: &str = "application/octet-stream";

const OFFSET: Query = query("offset", DIGITS);
const READING: &[Query] = &[OFFSET, query("follow", YES_NO)];
const SIGNED: &[Query] = &[
    query("name", "."),
    query("until", DIGITS),
    query("signature", "^[A-Za-z0-9._-]+$"),
];

pub(in crate::api) const FILES: &[Endpoint] = &[
    on("appendLog", Put, LOG)
        .runs(|call| Box::pin(log::append(call)))
        .takes_raw_body()
        .query(&[OFFSET, query("finished", YES_NO)])
        .scope("queue:create-artifact:<taskId>/<runId>")
        .about(CATEGORY, "Append to the log of a run")
        .describe(
            "For the worker of a run: appends the body at an offset and returns the length of the \
             log. A repeated request changes nothing. A log above its maximum length is cut, as \
             the reply says.",
        ),
    on("taskLog", Get, LOG)
        .runs(|call| Box::pin(log::read(call)))
        .streams(LOG_CONTENT_TYPE)
        .query(READING)
        .scope("queue:get-artifact:public/logs/live.log")
        .about(CATEGORY, "Read the log of a run")
        .describe(
            "The log from an offset on. With `follow` the stream continues as the log grows and \
             ends with the run. After a broken connection, resume with a new offset.",
        ),
    on("latestTaskLog", Get, "/task/<taskId>/log")
        .runs(|call| Box::pin(log::read_latest(call)))
        .streams(LOG_CONTENT_TYPE)
        .query(READING)
        .scope("queue:get-artifact:public/logs/live.log")
        .about(CATEGORY, "Read the log of the last run")
        .describe("As `taskLog`, of the task's last run."),
    on("uploadFile", Put, FILE)
        .runs(|call| Box::pin(files::upload(call)))
        .takes_raw_body()
        .query(SIGNED)
        .about(CATEGORY, "Upload the file of an artifact")
        .describe("The target of `createArtifact`. The signature in the URL replaces credentials."),
    on("downloadFile", Get, FILE)
        .runs(|call| Box::pin(files::download(call)))
        .streams(BYTES)
        .query(SIGNED)
        .about(CATEGORY, "Download the file of an artifact")
        .describe("The target of `getArtifact`. The signature in the URL replaces credentials."),
];
