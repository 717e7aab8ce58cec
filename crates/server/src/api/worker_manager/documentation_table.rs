//! The endpoints of documentation, in the order in which they are declared.

use access::scope::Template::{self, AnyOf, Scope};

use super::documentation::{self, PAGE, TARBALL};
use super::on;
use crate::api::endpoint::Verb::{Delete, Get, Put};
use crate::api::endpoint::{Endpoint, PAGING, Query, YES_NO, query};

const CATEGORY: &str = "Documentation";
const CONFIGURATION: &str = "/worker-configuration/<workerConfigurationId>/documentation";
const CONFIGURATION_PAGE: &str = "/worker-configuration/<workerConfigurationId>/documentation/page";
const WORKER_TYPE: &str = "/worker-type/<workerTypeId>/documentation";
const WORKER_TYPE_PAGE: &str = "/worker-type/<workerTypeId>/documentation/page";

const JOINED: &[Query] = &[query("joined", YES_NO)];

const WRITE_CONFIGURATION: &[Template] = &[
    Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>"),
    Scope("worker-manager:update-documentation:worker-configuration:<workerConfigurationId>"),
];
const READ_CONFIGURATION: Template =
    Scope("worker-manager:get-documentation:worker-configuration:<workerConfigurationId>");
/// Uses the short name if one exists, whichever name the URL has, as the endpoints of
/// configurations do.
const WRITE_WORKER_TYPE: &[Template] = &[
    Scope("worker-manager:manage-worker-type:<workerType>"),
    Scope("worker-manager:update-documentation:worker-type:<workerType>"),
];
const READ_WORKER_TYPE: Template =
    Scope("worker-manager:get-documentation:worker-type:<workerType>");

pub(in crate::api) const DOCUMENTATION: &[Endpoint] = &[
    on("documentationIndex", Get, "/documentation")
        .runs(|call| Box::pin(documentation::list(call)))
        .experimental()
        .query(PAGING)
        .output("documentation-list.json")
        .scope("worker-manager:list-documentation")
        .about(CATEGORY, "List documentation")
        .describe(
            "The worker configurations and worker types with documentation of their own: \
             configurations first, each kind ordered by id.",
        ),
    on("putWorkerConfigurationDocumentation", Put, CONFIGURATION)
        .runs(|call| Box::pin(documentation::put(call)))
        .experimental()
        .takes_raw_body()
        .output("documentation.json")
        .scopes(AnyOf(WRITE_CONFIGURATION))
        .about(
            CATEGORY,
            "Upload the documentation of a worker configuration",
        )
        .describe(
            "Takes a tarball in the layout of taskcluster-lib-docs, packed with gzip or not, and \
             replaces the previous one. If an entry is not a plain file or folder, the tarball is \
             refused, and the error names the entry.",
        ),
    on("workerConfigurationDocumentation", Get, CONFIGURATION)
        .runs(|call| Box::pin(documentation::get(call)))
        .experimental()
        .streams(TARBALL)
        .scopes(READ_CONFIGURATION)
        .about(
            CATEGORY,
            "Download the documentation of a worker configuration",
        )
        .describe("The tarball, packed again: the same files are the same bytes."),
    on(
        "deleteWorkerConfigurationDocumentation",
        Delete,
        CONFIGURATION,
    )
    .runs(|call| Box::pin(documentation::delete(call)))
    .experimental()
    .scopes(AnyOf(WRITE_CONFIGURATION))
    .about(
        CATEGORY,
        "Delete the documentation of a worker configuration",
    )
    .describe("Only the documentation. May be repeated."),
    on(
        "workerConfigurationDocumentationPage",
        Get,
        CONFIGURATION_PAGE,
    )
    .runs(|call| Box::pin(documentation::page(call)))
    .experimental()
    .streams(PAGE)
    .scopes(READ_CONFIGURATION)
    .about(CATEGORY, "Show the documentation of a worker configuration")
    .describe("All of its pages as one HTML page, without scripts."),
    on("putWorkerTypeDocumentation", Put, WORKER_TYPE)
        .runs(|call| Box::pin(documentation::put(call)))
        .experimental()
        .wildcard("workerTypeId")
        .takes_raw_body()
        .output("documentation.json")
        .scopes(AnyOf(WRITE_WORKER_TYPE))
        .about(CATEGORY, "Upload the documentation of a worker type")
        .describe(
            "As `putWorkerConfigurationDocumentation`, for one worker type: any worker pool. A \
             name without a slash is the pool `worker-manager/<name>`.",
        ),
    on("workerTypeDocumentation", Get, WORKER_TYPE)
        .runs(|call| Box::pin(documentation::get(call)))
        .experimental()
        .wildcard("workerTypeId")
        .query(JOINED)
        .streams(TARBALL)
        .scopes(READ_WORKER_TYPE)
        .about(CATEGORY, "Download the documentation of a worker type")
        .describe(
            "The worker type's files, with those of its configuration in `docs/general`. \
             `README.md` has both READMEs, with a header between them. With `joined=false`, only \
             the worker type's own files.",
        ),
    on("deleteWorkerTypeDocumentation", Delete, WORKER_TYPE)
        .runs(|call| Box::pin(documentation::delete(call)))
        .experimental()
        .wildcard("workerTypeId")
        .scopes(AnyOf(WRITE_WORKER_TYPE))
        .about(CATEGORY, "Delete the documentation of a worker type")
        .describe("The documentation of its configuration is kept. May be repeated."),
    on("workerTypeDocumentationPage", Get, WORKER_TYPE_PAGE)
        .runs(|call| Box::pin(documentation::page(call)))
        .experimental()
        .wildcard("workerTypeId")
        .query(JOINED)
        .streams(PAGE)
        .scopes(READ_WORKER_TYPE)
        .about(CATEGORY, "Show the documentation of a worker type")
        .describe(
            "The worker type's pages, followed by the header \"General Worker Configuration \
             Documentation\" and the pages of its configuration.",
        ),
];
