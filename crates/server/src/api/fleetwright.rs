//! What is ours alone: live events, the logs of tasks, and why things are as they are.

mod events;
mod explain;

use access::scope::Template::Scope;
use contract::patterns::{DIGITS, GENERIC_ID, SLUGID, WORKER_POOL_ID};

use super::endpoint::Verb::Get;
use super::endpoint::{Endpoint, Handler, Query, Service, Verb};

const EVENTS: &str = "Events";
const REASONS: &str = "Reasons";

const LISTENING: &[Query] = &[
    query("exchange", "^[a-z0-9/,-]{1,2000}$"),
    query("workerPoolId", WORKER_POOL_ID),
    query("workerGroup", GENERIC_ID),
    query("workerId", GENERIC_ID),
    query("taskId", SLUGID),
    query("taskGroupId", SLUGID),
    query("after", DIGITS),
    query("since", "^[0-9TZ:.+-]{1,40}$"),
    query("follow", "^(true|false)$"),
];

/// In the order in which they are published.
pub const ENDPOINTS: &[Endpoint] = &[on("listenEvents", Get, "/events", |call| {
    Box::pin(events::listen(call))
})
.query(LISTENING)
.streams(events::CONTENT_TYPE)
.scopes(Scope("fleetwright:listen-events"))
.about(
    EVENTS,
    "Listen to events",
    "Streams what happens, as server-sent events: what the caller could read anyway, of that what \
     the query asks for. `exchange` is a list with commas between. A listener resumes with \
     `Last-Event-ID` or `after`, begins in the past with `since`, and with `follow=false` ends with \
     the last event there is.",
),
on("explainPool", Get, "/explain/pool/<workerPoolId>", |call| {
    Box::pin(explain::pool(call))
})
.wildcard("workerPoolId")
.scopes(Scope("fleetwright:explain:<workerPoolId>"))
.about(
    REASONS,
    "Explain a pool",
    "What would be decided about the pool now, with the reasons, and what was decided before: the last plans and \
     what became of their launches. Nothing is changed by asking.",
),
on(
    "explainWorker",
    Get,
    "/explain/worker/<workerPoolId>/<workerGroup>/<workerId>",
    |call| Box::pin(explain::worker(call)),
)
.scopes(Scope("fleetwright:explain:<workerPoolId>"))
.about(
    REASONS,
    "Explain a worker",
    "Why the worker was launched, what happened to it, and why it was told to go.",
),
];

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::Fleetwright, name, method, route, handler)
}

const fn query(name: &'static str, pattern: &'static str) -> Query {
    Query { name, pattern }
}
