//! Our API: live events, explanations, recorded history.

mod costs;
mod events;
mod explain;
mod explain_launch_config;
mod explain_shadow;
mod explain_task;
mod images;
mod lists;
mod recording;
mod series;
mod sign_in_links;
mod status;
mod waits;
mod what_if;
mod worker_log;

pub(super) use images::ENDPOINTS as IMAGES;
pub(super) use lists::ENDPOINTS as LISTS;

use contract::patterns::{DIGITS, GENERIC_ID, SLUGID, WORKER_POOL_ID};

use engine::artifacts::LOG_CONTENT_TYPE;

use super::endpoint::Verb::Get;
use super::endpoint::{
    Endpoint, LIMIT, NewEndpoint, Payload, Query, Service, TOKEN, Verb, YES_NO, query,
};

const EVENTS: &str = "Events";
const SIGN_IN: &str = "Sign-in";
const REASONS: &str = "Reasons";
const HISTORY: &str = "History";
const COSTS: &str = "Costs";
const STATUS: &str = "Status";
/// The number of a plan within its pool.
const PLAN_NUMBER: &str = "^[0-9]{1,18}$";

/// The grouping of a report about costs, its beginning, and its number of lines.
const COST_REPORT: &[Query] = &[
    query("by", "^(kind|pool|launch-config|provider|owner|day)$"),
    query("since", MOMENT),
    query("top", "^[0-9]{1,4}$"),
];

/// A date and time; the handler parses it.
const MOMENT: &str = "^[0-9TZ:.+-]{1,40}$";

const LISTENING: &[Query] = &[
    query("exchange", "^[a-z0-9/,-]{1,2000}$"),
    query("workerPoolId", WORKER_POOL_ID),
    query("workerGroup", GENERIC_ID),
    query("workerId", GENERIC_ID),
    query("taskId", SLUGID),
    query("taskGroupId", SLUGID),
    query("after", DIGITS),
    query("since", MOMENT),
    query("follow", YES_NO),
];

const SERIES: &[Query] = &[
    query("from", MOMENT),
    query("until", MOMENT),
    query("step", "^(minute|hour|day)$"),
];

/// Seconds, at most a minute.
const MAX_AGE: Query = query("maxAge", "^([1-5]?[0-9]|60)$");

const POOL_STATUS: &[Query] = &[
    MAX_AGE,
    query("search", "^.{1,100}$"),
    query("order", "^(trouble|waiting|name|cost)$"),
    TOKEN,
    LIMIT,
];

const WAITS: &[Query] = &[
    query("by", "^(pool|queue|owner|day|hour|cause)$"),
    query("since", MOMENT),
    query("until", MOMENT),
    query("workerPoolId", WORKER_POOL_ID),
    query("top", "^[0-9]{1,6}$"),
];

pub(super) const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::Fleetwright, name, method, route)
}

/// In the order of the published references.
pub const ENDPOINTS: &[Endpoint] = &[
    on("listenEvents", Get, "/events")
        .runs(|call| Box::pin(events::listen(call)))
        .query(LISTENING)
        .streams(events::CONTENT_TYPE)
        .scope("fleetwright:listen-events")
        .about(EVENTS, "Listen to events")
        .describe(
            "Streams events as server-sent events. The caller gets the events that it could read \
             anyway and that match the query. `exchange` is a list, separated by commas. A \
             listener resumes with `Last-Event-ID` or `after`, begins in the past with `since`, \
             and with `follow=false` ends after the last stored event.",
        ),
    on("createSignInLink", Verb::Post, "/sign-in-links")
        .runs(|call| Box::pin(sign_in_links::create(call)))
        .input("sign-in-link-request.json")
        .output("sign-in-link-response.json")
        .payload(Payload::Omitted)
        .about(SIGN_IN, "Make a sign-in link")
        .describe(
            "Makes a link that signs a browser in as the client of these credentials. It works \
             once, within ten minutes. The credentials are the proof, so the request needs no \
             signature.",
        ),
    on("explainPool", Get, "/explain/pool/<workerPoolId>")
        .runs(|call| Box::pin(explain::pool(call)))
        .wildcard("workerPoolId")
        .query(&[query("plan", PLAN_NUMBER), query("at", MOMENT)])
        .scope("fleetwright:explain:<workerPoolId>")
        .about(REASONS, "Explain a pool")
        .describe(
            "Shows the decision that would be made about the pool now, with its reasons, and \
             earlier decisions: the last plans and the results of their launches. `strategy` and \
             `shadow` say what chose the strategies of the pool. `now`, and one of the plans (`plan`, or the newest), have `offers`: what each launch config offered, \
             how many machines were taken, and why. `at` shows the plans and launches up to a \
             moment instead of the last ones. The request changes nothing.",
        ),
    on("explainShadow", Get, "/explain/shadow/<workerPoolId>")
        .runs(|call| Box::pin(explain_shadow::pool(call)))
        .wildcard("workerPoolId")
        .output("explain-shadow-response.json")
        .scope("fleetwright:explain:<workerPoolId>")
        .about(REASONS, "Compare a pool with its shadow")
        .describe(
            "Shows what the shadow strategy of the pool would have done beside what was done: now, \
             in the last decisions, and in sums over all decisions that are kept. The request \
             changes nothing.",
        ),
    on(
        "explainWorker",
        Get,
        "/explain/worker/<workerPoolId>/<workerGroup>/<workerId>",
    )
    .runs(|call| Box::pin(explain::worker(call)))
    .scope("fleetwright:explain:<workerPoolId>")
    .about(REASONS, "Explain a worker")
    .describe("Why the worker was launched, what happened to it, and why it was asked to stop."),
    on(
        "workerLog",
        Get,
        "/worker-log/<workerPoolId>/<workerGroup>/<workerId>",
    )
    .runs(|call| Box::pin(worker_log::read(call)))
    .streams(LOG_CONTENT_TYPE)
    .scope("fleetwright:read-worker-log:<workerPoolId>")
    .about(REASONS, "Read the log of a worker")
    .describe(
        "The output of the process of the worker (`local`) or the console of its machine (`aws`, \
         `google`), not the logs of its tasks: at most the last 256 KiB, after a line that says \
         so if the log is longer. Other providers keep no logs. Control characters stay as the \
         worker wrote them.",
    ),
    on("explainTask", Get, "/explain/task/<taskId>")
        .runs(|call| Box::pin(explain_task::task(call)))
        .output("explain-task-response.json")
        .scope("fleetwright:explain:<workerPoolId>")
        .about(REASONS, "Explain why a task waits")
        .describe(
            "The one cause for which the task waits now, what would change it, and by when at the \
             latest; and the waits of its runs by cause. The scope names the pool of the task. The \
             request changes nothing.",
        ),
    on("readWaits", Get, "/waits")
        .runs(|call| Box::pin(waits::read(call)))
        .query(WAITS)
        .output("waits.json")
        .scope("fleetwright:read-waits")
        .about(HISTORY, "Read the accounts of waiting time")
        .describe(
            "The time that tasks waited, by `by` (`pool`, `queue`, `owner`, `day`, `hour` or \
             `cause`) and by cause, in milliseconds; the parts sum to the whole. A run is charged \
             when its wait has ended, in the hours and days in which it waited. From `since` (by \
             default 30 days before `until`) up to `until` (by default now), in whole hours up to \
             3 days and else in whole days. Only pools that the caller may explain count.",
        ),
    on(
        "explainLaunchConfig",
        Get,
        "/explain/launch-config/<workerPoolId>/<launchConfigId>",
    )
    .runs(|call| Box::pin(explain_launch_config::show(call)))
    .output("explain-launch-config-response.json")
    .scope("fleetwright:explain:<workerPoolId>")
    .about(REASONS, "Explain a launch config")
    .describe(
        "Whether the launch config is used, why not, and how long its machines took to start in \
         the last day, by region: from the decision to the request, to the answer of the \
         provider, to the registration, and to the first request for work. At most 1000 machines \
         are measured, the newest.",
    ),
    on("cost", Get, "/cost")
        .runs(|call| Box::pin(costs::all(call)))
        .query(COST_REPORT)
        .output("cost-report.json")
        .scope("fleetwright:read-cost:all")
        .about(COSTS, "Show costs")
        .describe(
            "The cost of machines since `since` (by default a week ago) up to now, summed up by \
             `by` (by default `pool`), with the uses of the time: useful, booting, idle, failed, \
             leaving and lost. Money is in millionths of the currency, time in milliseconds; the \
             parts sum exactly. `top` limits the number of lines; `others` sums up the rest. \
             docs/costs.md has the rules.",
        ),
    on("costOfPool", Get, "/cost/pool/<workerPoolId>")
        .runs(|call| Box::pin(costs::of_pool(call)))
        .wildcard("workerPoolId")
        .query(COST_REPORT)
        .output("cost-report.json")
        .scope("fleetwright:read-cost:pool:<workerPoolId>")
        .about(COSTS, "Show costs of a pool")
        .describe("The same for the machines of one pool."),
    on("costOfProvider", Get, "/cost/provider/<providerId>")
        .runs(|call| Box::pin(costs::of_provider(call)))
        .query(COST_REPORT)
        .output("cost-report.json")
        .scope("fleetwright:read-cost:provider:<providerId>")
        .about(COSTS, "Show costs of a provider")
        .describe("The same for the machines of one provider."),
    on("costOfOwner", Get, "/cost/owner/<owner>")
        .runs(|call| Box::pin(costs::of_owner(call)))
        .query(COST_REPORT)
        .output("cost-report.json")
        .scope("fleetwright:read-cost:owner:<owner>")
        .about(COSTS, "Show costs of an owner")
        .describe(
            "The same for one owner: the machines of pools that had this owner when the machines \
             were launched.",
        ),
    on("series", Get, "/series")
        .runs(|call| Box::pin(series::all(call)))
        .query(SERIES)
        .output("series.json")
        .scope("fleetwright:read-series:all")
        .about(HISTORY, "Read series of all pools")
        .describe(
            "Levels and counts from `from` (by default a day before `until`) up to `until` (by \
             default now), in points of a `step` (by default the finest that covers this time \
             with 1500 points): waiting tasks, capacity by state, the maximum, and machines that \
             were made, refused or lost, cost and waiting time. docs/history.md has the meanings.",
        ),
    on("seriesOfPools", Get, "/series/pools")
        .runs(|call| Box::pin(series::of_pools(call)))
        .query(&[
            query("from", MOMENT),
            query("until", MOMENT),
            query("points", "^[0-9]{1,4}$"),
            query("pools", "^[a-zA-Z0-9_/,-]{3,8000}$"),
            TOKEN,
            LIMIT,
        ])
        .output("series-of-pools.json")
        .scope("fleetwright:read-series:all")
        .about(HISTORY, "Read short series of many pools")
        .describe(
            "For each pool, the most waiting tasks and the highest capacity in `points` parts (by \
             default 24, at most 200) of the time from `from` up to `until` (by default the last \
             day). At most 200 pools are in one reply, or those that `pools` names, separated by \
             commas: at most 100.",
        ),
    on("seriesOfPool", Get, "/series/pool/<workerPoolId>")
        .runs(|call| Box::pin(series::of_pool(call)))
        .wildcard("workerPoolId")
        .query(SERIES)
        .output("series.json")
        .scope("fleetwright:read-series:pool:<workerPoolId>")
        .about(HISTORY, "Read series of a pool")
        .describe("The same for one pool."),
    on(
        "seriesOfLaunchConfig",
        Get,
        "/series/launch-config/<workerPoolId>/<launchConfigId>",
    )
    .runs(|call| Box::pin(series::of_launch_config(call)))
    .query(SERIES)
    .output("series.json")
    .scope("fleetwright:read-series:pool:<workerPoolId>")
    .about(HISTORY, "Read series of a launch config")
    .describe(
        "The same for one launch config. Tasks wait for a pool, so its waiting tasks and waiting \
         time are zero, and it has no maximum.",
    ),
    on("status", Get, "/status")
        .runs(|call| Box::pin(status::read(call)))
        .query(&[MAX_AGE])
        .output("fleet-status.json")
        .scope("fleetwright:read-status")
        .about(STATUS, "Is all well?")
        .describe(
            "What is wrong now, the worst first, each with a reason, what the program does about \
             it and when, and what a person can do; then sums over all pools. Parts for which the \
             caller lacks a scope are left out, and `missingScopes` names these scopes. At most a \
             second old, or `maxAge` seconds.",
        ),
    on("statusOfPools", Get, "/status/pools")
        .runs(|call| Box::pin(status::pools(call)))
        .query(POOL_STATUS)
        .output("fleet-status-of-pools.json")
        .scope("fleetwright:read-status")
        .about(STATUS, "List the pools by trouble, waiting tasks, name or cost")
        .describe(
            "The state of each pool, ordered over all pools by `order` (by default `trouble`): \
             capacity by state, waiting tasks and their cause, errors of the last hour, the cost \
             of the day with the scopes for it, and what is wrong. `search` selects pools whose id \
             contains it. At most a second old, or `maxAge` seconds.",
        ),
    on("readRecording", Get, "/recording")
        .runs(|call| Box::pin(recording::read(call)))
        .query(&[query("since", MOMENT), query("until", MOMENT), TOKEN, LIMIT])
        .output("recording.json")
        .scope("fleetwright:read-recording")
        .about(HISTORY, "Read the recorded history")
        .describe(
            "The recorded history from `since` (by default a week before `until`) up to `until` \
             (by default now), as `fleetwright simulate recorded` replays it: the present pools \
             with what their providers offer, gaps in the recording, launches, workers, and runs \
             of tasks. Entries of one kind follow each other, runs come last.",
        ),
    on("whatIf", Verb::Post, "/what-if")
        .runs(|call| Box::pin(what_if::ask(call)))
        .input("what-if-request.json")
        .output("what-if-response.json")
        .scope("fleetwright:read-recording")
        .about(HISTORY, "Ask what a change would have made of the recorded load")
        .describe(
            "Simulates the load that was recorded from `since` (by default a day before `until`) \
             up to `until` (by default now) in this process: with the present configuration and \
             with the change, as `fleetwright simulate recorded` does. One question is answered \
             at a time. If the answer is not ready after `waitSeconds`, `state` is `running`, with \
             the number of simulations that are done, or `waiting` behind another question: send \
             the same request again, with `since` and `until` of the reply. A simulation that no \
             caller waits for is stopped. The request changes nothing.",
        ),
];
