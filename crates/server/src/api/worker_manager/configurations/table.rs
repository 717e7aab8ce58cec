//! The endpoints of worker configurations, in the order in which they are published.

use access::scope::Template::{AllOf, AnyOf, For, Scope};
use contract::patterns::DIGITS;

use super::super::super::endpoint::Verb::{Delete, Get, Post, Put};
use super::super::super::endpoint::{Endpoint, Handler, Query, Service, Verb};
use super::super::table::PAGING;
use super::{evaluate, history, market, plan, rules, worker_types};

const CONFIGURATIONS: &str = "Worker Configurations";
const RULES: &str = "Rules";
const WORKER_TYPES: &str = "Worker Types";

const ONE: &str = "/worker-configuration/<workerConfigurationId>";
const RULE: &str = "/worker-configuration/<workerConfigurationId>/rule/<ruleId>";

const SEEN: &[Query] = &[Query {
    name: "version",
    pattern: DIGITS,
}];

const MANAGE: access::scope::Template =
    Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>");
const EACH_WORKER_TYPE: access::scope::Template = For {
    variable: "workerType",
    list: "workerTypes",
    each: "worker-manager:manage-worker-type:<workerType>",
};
const EACH_PROVIDER: access::scope::Template = For {
    variable: "providerId",
    list: "providers",
    each: "worker-manager:provider:<providerId>",
};
const WHOLE: &[access::scope::Template] = &[
    MANAGE,
    EACH_WORKER_TYPE,
    EACH_PROVIDER,
    For {
        variable: "workerPoolId",
        list: "adoptedPools",
        each: "worker-manager:manage-worker-pool:<workerPoolId>",
    },
];
const GONE: &[access::scope::Template] = &[MANAGE, EACH_WORKER_TYPE];
const ONE_RULE: &[access::scope::Template] = &[
    AnyOf(&[
        AllOf(&[MANAGE, EACH_WORKER_TYPE, EACH_PROVIDER]),
        Scope("worker-manager:edit-rule:<workerConfigurationId>/<ruleId>"),
    ]),
    For {
        variable: "providerId",
        list: "ruleProviders",
        each: "worker-manager:provider:<providerId>",
    },
];
const READ: access::scope::Template =
    Scope("worker-manager:get-worker-configuration:<workerConfigurationId>");
/// A plan shows what pools to adopt have now.
const PLAN: &[access::scope::Template] = &[
    READ,
    For {
        variable: "workerPoolId",
        list: "adoptedPools",
        each: "worker-manager:get-worker-pool:<workerPoolId>",
    },
];

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::WorkerManager, name, method, route, handler)
}

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("createWorkerConfiguration", Put, ONE, |call| Box::pin(super::create(call)))
        .input("worker-configuration-request.json")
        .output("worker-configuration.json")
        .scopes(AllOf(WHOLE))
        .about(
            CONFIGURATIONS,
            "Create a worker configuration",
            "Makes a configuration: a list of worker types and a list of rules. It is compiled to a worker pool for each \
             worker type, all in one step with the configuration itself; what cannot be used is refused whole, with the \
             conditions, the path and the rules concerned. The caller needs the scopes of all worker types and of all \
             providers that are named. The same request again is answered as the first was.",
        ),
    on("updateWorkerConfiguration", Post, ONE, |call| Box::pin(super::update(call)))
        .input("worker-configuration-request.json")
        .output("worker-configuration.json")
        .scopes(AllOf(WHOLE))
        .about(
            CONFIGURATIONS,
            "Update a worker configuration",
            "Replaces worker types and rules. The caller needs the scopes of the worker types that are listed no longer, too. \
             With `version`, nothing is changed unless that is still the present one. Launch \
             configs whose content does not change keep their ids; pools of worker types that are listed no longer lose \
             their providers, and go when their last workers have.",
        ),
    on("deleteWorkerConfiguration", Delete, ONE, |call| Box::pin(super::delete(call)))
        .query(SEEN)
        .scopes(AllOf(GONE))
        .about(
            CONFIGURATIONS,
            "Delete a worker configuration",
            "Frees its worker types, for each of which the caller needs the scope; their pools lose their providers, and go when their last workers have. Its versions \
             stay, so that it can be made again by reverting.",
        ),
    on("workerConfiguration", Get, ONE, |call| Box::pin(super::show(call)))
        .output("worker-configuration.json")
        .scopes(READ)
        .about(
            CONFIGURATIONS,
            "Get a worker configuration",
            "Worker types and rules as they are now, and the number of this version.",
        ),
    on("listWorkerConfigurations", Get, "/worker-configurations", |call| {
        Box::pin(super::list(call))
    })
    .query(PAGING)
    .output("worker-configuration-list.json")
    .scopes(Scope("worker-manager:list-worker-configurations"))
    .about(
        CONFIGURATIONS,
        "List worker configurations",
        "All of them, without their rules.",
    ),
    on(
        "planWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/plan",
        |call| Box::pin(plan::plan(call)),
    )
    .input("worker-configuration-request.json")
    .output("worker-configuration-plan.json")
    .scopes(AllOf(PLAN))
    .about(
        CONFIGURATIONS,
        "Plan a worker configuration",
        "What an update to these worker types and rules would do, and does not do: rules, pools, launch configs for every \
         combination of conditions, running workers that would be outdated, and what those would cost more, where prices \
         are known. With `adoptPools`, pools made by hand are compared as they are stored, which takes the scopes to read \
         them.",
    ),
    on(
        "listWorkerConfigurationVersions",
        Get,
        "/worker-configuration/<workerConfigurationId>/versions",
        |call| Box::pin(history::list(call)),
    )
    .query(PAGING)
    .output("worker-configuration-versions.json")
    .scopes(READ)
    .about(
        CONFIGURATIONS,
        "List the versions of a worker configuration",
        "Who changed it, when and how, newest first; also of one that has been deleted.",
    ),
    on(
        "workerConfigurationVersion",
        Get,
        "/worker-configuration/<workerConfigurationId>/version/<version>",
        |call| Box::pin(history::show(call)),
    )
    .output("worker-configuration-version.json")
    .scopes(READ)
    .about(CONFIGURATIONS, "Get a version of a worker configuration", "Worker types and rules as they were."),
    on(
        "compareWorkerConfigurationVersions",
        Get,
        "/worker-configuration/<workerConfigurationId>/difference/<from>/<to>",
        |call| Box::pin(history::difference(call)),
    )
    .output("worker-configuration-plan.json")
    .scopes(READ)
    .about(
        CONFIGURATIONS,
        "Compare two versions of a worker configuration",
        "What differs from one to the other, in rules and in what follows from them.",
    ),
    on(
        "revertWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/revert",
        |call| Box::pin(history::revert(call)),
    )
    .input("revert-worker-configuration-request.json")
    .output("worker-configuration.json")
    .scopes(AllOf(WHOLE))
    .about(
        CONFIGURATIONS,
        "Revert a worker configuration",
        "Makes an old version the newest, also of a configuration that has been deleted. What has no longer a place \
         among the providers of today is refused as any other edit.",
    ),
    on("workerConfigurationRule", Get, RULE, |call| Box::pin(rules::show(call)))
        .output("worker-configuration-rule.json")
        .scopes(READ)
        .about(RULES, "Get a rule", "One rule of a worker configuration, and the version that it was read from."),
    on("addWorkerConfigurationRule", Put, RULE, |call| Box::pin(rules::add(call)))
        .input("rule-request.json")
        .output("worker-configuration-rule.json")
        .scopes(AllOf(ONE_RULE))
        .about(
            RULES,
            "Add a rule",
            "Adds a rule, last or at the given position. Without `version`, the edit is made on whatever the others are by \
             then; edits of different rules at the same time all land. Besides the scopes of an update, or that of the rule, \
             the caller needs those of all providers that the rule opts in to or out of.",
        ),
    on("replaceWorkerConfigurationRule", Post, RULE, |call| Box::pin(rules::replace(call)))
        .input("rule-request.json")
        .output("worker-configuration-rule.json")
        .scopes(AllOf(ONE_RULE))
        .about(
            RULES,
            "Replace a rule",
            "Gives a rule other conditions and values, where it is. This is how an image pipeline changes the rule that \
             names its image, with no scope for anything else.",
        ),
    on("removeWorkerConfigurationRule", Delete, RULE, |call| Box::pin(rules::remove(call)))
        .query(SEEN)
        .output("worker-configuration-rule-removed.json")
        .scopes(AllOf(ONE_RULE))
        .about(RULES, "Remove a rule", "Takes a rule away; the others stay as they are."),
    on(
        "moveWorkerConfigurationRule",
        Post,
        "/worker-configuration/<workerConfigurationId>/rule/<ruleId>/move",
        |call| Box::pin(rules::shift(call)),
    )
    .input("move-rule-request.json")
    .output("worker-configuration-rule.json")
    .scopes(AllOf(ONE_RULE))
    .about(RULES, "Move a rule", "Puts a rule elsewhere among the others: later rules win."),
    on(
        "evaluateWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/evaluate",
        |call| Box::pin(evaluate::stored(call)),
    )
    .input("evaluate-request.json")
    .output("evaluate-response.json")
    .scopes(READ)
    .about(
        RULES,
        "Evaluate a worker configuration",
        "What its rules give under the given conditions, and which rule each value comes from; with `pointer`, all that \
         happened to one value.",
    ),
    on("evaluateRules", Post, "/evaluate-rules", |call| Box::pin(evaluate::given(call)))
        .input("evaluate-request.json")
        .output("evaluate-response.json")
        .scopes(Scope("worker-manager:evaluate-rules"))
        .about(
            RULES,
            "Evaluate rules",
            "The same for the rules of the request, which are not stored.",
        ),
    on("listPlaces", Get, "/provider-places", |call| Box::pin(market::list(call)))
        .output("place-list.json")
        .scopes(Scope("worker-manager:list-providers"))
        .about(
            RULES,
            "List places",
            "What each provider presents to rules: the places where it can launch workers, by the conditions that tell them \
             apart. A provider that cannot say it now says why.",
        ),
    on(
        "launchConfigPayloadSchema",
        Get,
        "/worker-type/<workerTypeId>/launch-config/<launchConfigId>/payload-schema",
        |call| Box::pin(worker_types::launch_config_schema(call)),
    )
    .wildcard("workerTypeId")
    .output("payload-schema-response.json")
    .scopes(Scope("worker-manager:get-payload-schema:<workerType>"))
    .about(
        WORKER_TYPES,
        "Get the payload schema of a launch config",
        "The same, as the rules say for the place of one launch config.",
    ),
    on("workerTypePayloadSchema", Get, "/worker-type/<workerTypeId>/payload-schema", |call| {
        Box::pin(worker_types::payload_schema(call))
    })
    .wildcard("workerTypeId")
    .output("payload-schema-response.json")
    .scopes(Scope("worker-manager:get-payload-schema:<workerType>"))
    .about(
        WORKER_TYPES,
        "Get the payload schema of a worker type",
        "What the payload of its tasks must look like, as its rules say. A worker type is a whole worker pool id, or a name \
         within `worker-manager`.",
    ),
];
