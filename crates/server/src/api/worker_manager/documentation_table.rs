//! The endpoints of documentation, in the order in which they are declared.

use access::scope::Template::{AnyOf, Scope};

use super::super::endpoint::Verb::{Delete, Get, Put};
use super::super::endpoint::{Endpoint, Handler, Query, Service, Verb};
use super::documentation::{self, PAGE, TARBALL};
use super::table::{LIMIT, TOKEN};

const CATEGORY: &str = "Documentation";
const CONFIGURATION: &str = "/worker-configuration/<workerConfigurationId>/documentation";
const CONFIGURATION_PAGE: &str = "/worker-configuration/<workerConfigurationId>/documentation/page";
const WORKER_TYPE: &str = "/worker-type/<workerTypeId>/documentation";
const WORKER_TYPE_PAGE: &str = "/worker-type/<workerTypeId>/documentation/page";

const JOINED: &[Query] = &[Query {
    name: "joined",
    pattern: "^(true|false)$",
}];

const WRITE_CONFIGURATION: &[access::scope::Template] = &[
    Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>"),
    Scope("worker-manager:update-documentation:worker-configuration:<workerConfigurationId>"),
];
const READ_CONFIGURATION: access::scope::Template =
    Scope("worker-manager:get-documentation:worker-configuration:<workerConfigurationId>");
/// Uses the short name if one exists, whichever name the URL has, as the endpoints of
/// configurations do.
const WRITE_WORKER_TYPE: &[access::scope::Template] = &[
    Scope("worker-manager:manage-worker-type:<workerType>"),
    Scope("worker-manager:update-documentation:worker-type:<workerType>"),
];
const READ_WORKER_TYPE: access::scope::Template =
    Scope("worker-manager:get-documentation:worker-type:<workerType>");

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::WorkerManager, name, method, route, handler).experimental()
}

pub const DOCUMENTATION: &[Endpoint] = &[
    on("documentationIndex", Get, "/documentation", |call| {
        Box::pin(documentation::list(call))
    })
    .query(&[TOKEN, LIMIT])
    .output("documentation-list.json")
    .scopes(Scope("worker-manager:list-documentation"))
    .about(
        CATEGORY,
        "List documentation",
        "The worker configurations and worker types with documentation of their own: \
             configurations first, each kind ordered by id.",
    ),
    on(
        "putWorkerConfigurationDocumentation",
        Put,
        CONFIGURATION,
        |call| Box::pin(documentation::put(call)),
    )
    .takes_raw_body()
    .output("documentation.json")
    .scopes(AnyOf(WRITE_CONFIGURATION))
    .about(
        CATEGORY,
        "Upload the documentation of a worker configuration",
        "Takes a tarball in the layout of taskcluster-lib-docs, packed with gzip or not, and \
         replaces the previous one. If an entry is not a plain file or folder, the tarball is \
         refused, and the error names the entry.",
    ),
    on(
        "workerConfigurationDocumentation",
        Get,
        CONFIGURATION,
        |call| Box::pin(documentation::get(call)),
    )
    .streams(TARBALL)
    .scopes(READ_CONFIGURATION)
    .about(
        CATEGORY,
        "Download the documentation of a worker configuration",
        "The tarball, packed again: the same files are the same bytes.",
    ),
    on(
        "deleteWorkerConfigurationDocumentation",
        Delete,
        CONFIGURATION,
        |call| Box::pin(documentation::delete(call)),
    )
    .scopes(AnyOf(WRITE_CONFIGURATION))
    .about(
        CATEGORY,
        "Delete the documentation of a worker configuration",
        "Only the documentation. May be repeated.",
    ),
    on(
        "workerConfigurationDocumentationPage",
        Get,
        CONFIGURATION_PAGE,
        |call| Box::pin(documentation::page(call)),
    )
    .streams(PAGE)
    .scopes(READ_CONFIGURATION)
    .about(
        CATEGORY,
        "Show the documentation of a worker configuration",
        "All of its pages as one HTML page, without scripts.",
    ),
    on("putWorkerTypeDocumentation", Put, WORKER_TYPE, |call| {
        Box::pin(documentation::put(call))
    })
    .wildcard("workerTypeId")
    .takes_raw_body()
    .output("documentation.json")
    .scopes(AnyOf(WRITE_WORKER_TYPE))
    .about(
        CATEGORY,
        "Upload the documentation of a worker type",
        "As `putWorkerConfigurationDocumentation`, for one worker type: any worker pool. A \
             name without a slash is the pool `worker-manager/<name>`.",
    ),
    on("workerTypeDocumentation", Get, WORKER_TYPE, |call| {
        Box::pin(documentation::get(call))
    })
    .wildcard("workerTypeId")
    .query(JOINED)
    .streams(TARBALL)
    .scopes(READ_WORKER_TYPE)
    .about(
        CATEGORY,
        "Download the documentation of a worker type",
        "The worker type's files, with those of its configuration in `docs/general`. \
             `README.md` has both READMEs, with a header between them. With `joined=false`, only \
             the worker type's own files.",
    ),
    on(
        "deleteWorkerTypeDocumentation",
        Delete,
        WORKER_TYPE,
        |call| Box::pin(documentation::delete(call)),
    )
    .wildcard("workerTypeId")
    .scopes(AnyOf(WRITE_WORKER_TYPE))
    .about(
        CATEGORY,
        "Delete the documentation of a worker type",
        "The documentation of its configuration is kept. May be repeated.",
    ),
    on(
        "workerTypeDocumentationPage",
        Get,
        WORKER_TYPE_PAGE,
        |call| Box::pin(documentation::page(call)),
    )
    .wildcard("workerTypeId")
    .query(JOINED)
    .streams(PAGE)
    .scopes(READ_WORKER_TYPE)
    .about(
        CATEGORY,
        "Show the documentation of a worker type",
        "The worker type's pages, followed by the header \"General Worker Configuration \
         Documentation\" and the pages of its configuration.",
    ),
];
