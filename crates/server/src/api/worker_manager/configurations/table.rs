//! The endpoints of worker configurations, in the order in which they are published.

use access::scope::Template::{self, AllOf, AnyOf, Scope};
use contract::patterns::DIGITS;

use super::super::on;
use super::{evaluate, history, plan, provider_catalog, rules, worker_types};
use crate::api::endpoint::Verb::{Delete, Get, Post, Put};
use crate::api::endpoint::{Endpoint, PAGING, Query, each, query};

const CONFIGURATIONS: &str = "Worker Configurations";
const RULES: &str = "Rules";
const WORKER_TYPES: &str = "Worker Types";

const ONE: &str = "/worker-configuration/<workerConfigurationId>";
const RULE: &str = "/worker-configuration/<workerConfigurationId>/rule/<ruleId>";

const SEEN: &[Query] = &[query("version", DIGITS)];

const MANAGE: Template =
    Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>");
const EACH_WORKER_TYPE: Template = each(
    "workerType",
    "workerTypes",
    "worker-manager:manage-worker-type:<workerType>",
);
const EACH_PROVIDER: Template = each(
    "providerId",
    "providers",
    "worker-manager:provider:<providerId>",
);
const WHOLE: &[Template] = &[
    MANAGE,
    EACH_WORKER_TYPE,
    EACH_PROVIDER,
    each(
        "workerPoolId",
        "adoptedPools",
        "worker-manager:manage-worker-pool:<workerPoolId>",
    ),
];
const GONE: &[Template] = &[MANAGE, EACH_WORKER_TYPE];
const ONE_RULE: &[Template] = &[
    AnyOf(&[
        AllOf(&[MANAGE, EACH_WORKER_TYPE, EACH_PROVIDER]),
        Scope("worker-manager:edit-rule:<workerConfigurationId>/<ruleId>"),
    ]),
    each(
        "providerId",
        "ruleProviders",
        "worker-manager:provider:<providerId>",
    ),
];
const READ: Template = Scope("worker-manager:get-worker-configuration:<workerConfigurationId>");
/// A plan lets the providers check pools, and shows the present definitions of the pools to adopt.
const PLAN: &[Template] = &[
    READ,
    EACH_PROVIDER,
    each(
        "workerPoolId",
        "adoptedPools",
        "worker-manager:get-worker-pool:<workerPoolId>",
    ),
];

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("createWorkerConfiguration", Put, ONE)
        .runs(|call| Box::pin(super::create(call)))
        .input("worker-configuration-request.json")
        .output("worker-configuration.json")
        .scopes(AllOf(WHOLE))
        .about(CONFIGURATIONS, "Create a worker configuration")
        .describe(
            "Creates a configuration: a list of worker types and a list of rules. It is compiled \
             to one worker pool for each worker type, in the same transaction. If a part is \
             invalid, nothing is stored, and the error names the conditions, the path and the \
             rules concerned. The caller needs the scopes of all worker types and of all named \
             providers. The same request again gets the same answer.",
        ),
    on("updateWorkerConfiguration", Post, ONE)
        .runs(|call| Box::pin(super::update(call)))
        .input("worker-configuration-request.json")
        .output("worker-configuration.json")
        .scopes(AllOf(WHOLE))
        .about(CONFIGURATIONS, "Update a worker configuration")
        .describe(
            "Replaces worker types and rules. The caller also needs the scopes of removed worker \
             types. With `version`, the update is refused unless this is the current version. \
             Launch configs whose content does not change keep their ids. Pools of removed worker \
             types lose their providers and are deleted after their last workers.",
        ),
    on("deleteWorkerConfiguration", Delete, ONE)
        .runs(|call| Box::pin(super::delete(call)))
        .query(SEEN)
        .scopes(AllOf(GONE))
        .about(CONFIGURATIONS, "Delete a worker configuration")
        .describe(
            "Frees its worker types; the caller needs the scope of each. Their pools lose their \
             providers and are deleted after their last workers. The versions are kept, so that a \
             revert can restore the configuration.",
        ),
    on("workerConfiguration", Get, ONE)
        .runs(|call| Box::pin(super::show(call)))
        .output("worker-configuration.json")
        .scopes(READ)
        .about(CONFIGURATIONS, "Get a worker configuration")
        .describe("The current worker types and rules, and the number of this version."),
    on("listWorkerConfigurations", Get, "/worker-configurations")
        .runs(|call| Box::pin(super::list(call)))
        .query(PAGING)
        .output("worker-configuration-list.json")
        .scope("worker-manager:list-worker-configurations")
        .about(CONFIGURATIONS, "List worker configurations")
        .describe("All worker configurations, without their rules."),
    on(
        "planWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/plan",
    )
    .runs(|call| Box::pin(plan::plan(call)))
    .input("worker-configuration-request.json")
    .output("worker-configuration-plan.json")
    .scopes(AllOf(PLAN))
    .about(CONFIGURATIONS, "Plan a worker configuration")
    .describe(
        "Shows the result of an update to these worker types and rules, without applying it: \
             rules, pools, launch configs for every combination of conditions, running workers \
             that would be outdated, and their additional cost where prices are known. The \
             providers check the pools, so the caller needs the scopes of all named providers. \
             With `adoptPools`, pools made by hand are compared as stored, which needs the scopes \
             to read them.",
    ),
    on(
        "listWorkerConfigurationVersions",
        Get,
        "/worker-configuration/<workerConfigurationId>/versions",
    )
    .runs(|call| Box::pin(history::list(call)))
    .query(PAGING)
    .output("worker-configuration-versions.json")
    .scopes(READ)
    .about(
        CONFIGURATIONS,
        "List the versions of a worker configuration",
    )
    .describe(
        "The author, time and kind of each change, newest first; also of a deleted \
             configuration.",
    ),
    on(
        "workerConfigurationVersion",
        Get,
        "/worker-configuration/<workerConfigurationId>/version/<version>",
    )
    .runs(|call| Box::pin(history::show(call)))
    .output("worker-configuration-version.json")
    .scopes(READ)
    .about(CONFIGURATIONS, "Get a version of a worker configuration")
    .describe("Worker types and rules of this version."),
    on(
        "compareWorkerConfigurationVersions",
        Get,
        "/worker-configuration/<workerConfigurationId>/difference/<from>/<to>",
    )
    .runs(|call| Box::pin(history::difference(call)))
    .output("worker-configuration-plan.json")
    .scopes(READ)
    .about(
        CONFIGURATIONS,
        "Compare two versions of a worker configuration",
    )
    .describe("The differences from one version to the other, in rules and in their results."),
    on(
        "revertWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/revert",
    )
    .runs(|call| Box::pin(history::revert(call)))
    .input("revert-worker-configuration-request.json")
    .output("worker-configuration.json")
    .scopes(AllOf(WHOLE))
    .about(CONFIGURATIONS, "Revert a worker configuration")
    .describe(
        "Makes an old version the newest, also of a deleted configuration. A version that does \
             not fit the current providers is refused like any other edit.",
    ),
    on("workerConfigurationRule", Get, RULE)
        .runs(|call| Box::pin(rules::show(call)))
        .output("worker-configuration-rule.json")
        .scopes(READ)
        .about(RULES, "Get a rule")
        .describe("One rule of a worker configuration, and the version of the configuration."),
    on("addWorkerConfigurationRule", Put, RULE)
        .runs(|call| Box::pin(rules::add(call)))
        .input("rule-request.json")
        .output("worker-configuration-rule.json")
        .scopes(AllOf(ONE_RULE))
        .about(RULES, "Add a rule")
        .describe(
            "Adds a rule, last or at the given position. Without `version`, the edit applies to \
             the current rules, so concurrent edits of different rules all succeed. Besides the \
             scopes of an update, or of the rule, the caller needs the scopes of all providers \
             that the rule opts in to or out of.",
        ),
    on("replaceWorkerConfigurationRule", Post, RULE)
        .runs(|call| Box::pin(rules::replace(call)))
        .input("rule-request.json")
        .output("worker-configuration-rule.json")
        .scopes(AllOf(ONE_RULE))
        .about(RULES, "Replace a rule")
        .describe(
            "Gives a rule new conditions and values and keeps its position. An image pipeline can \
             change the rule that names its image this way, without scopes for other rules.",
        ),
    on("removeWorkerConfigurationRule", Delete, RULE)
        .runs(|call| Box::pin(rules::remove(call)))
        .query(SEEN)
        .output("worker-configuration-rule-removed.json")
        .scopes(AllOf(ONE_RULE))
        .about(RULES, "Remove a rule")
        .describe("Removes a rule; the others do not change."),
    on(
        "moveWorkerConfigurationRule",
        Post,
        "/worker-configuration/<workerConfigurationId>/rule/<ruleId>/move",
    )
    .runs(|call| Box::pin(rules::shift(call)))
    .input("move-rule-request.json")
    .output("worker-configuration-rule.json")
    .scopes(AllOf(ONE_RULE))
    .about(RULES, "Move a rule")
    .describe("Moves a rule to another position: later rules win."),
    on(
        "evaluateWorkerConfiguration",
        Post,
        "/worker-configuration/<workerConfigurationId>/evaluate",
    )
    .runs(|call| Box::pin(evaluate::stored(call)))
    .input("evaluate-request.json")
    .output("evaluate-response.json")
    .scopes(READ)
    .about(RULES, "Evaluate a worker configuration")
    .describe(
        "Evaluates its rules under the given conditions, and names the rule that each value \
             comes from. With `pointer`, shows every change of one value.",
    ),
    on("evaluateRules", Post, "/evaluate-rules")
        .runs(|call| Box::pin(evaluate::given(call)))
        .input("evaluate-request.json")
        .output("evaluate-response.json")
        .scope("worker-manager:evaluate-rules")
        .about(RULES, "Evaluate rules")
        .describe("Evaluates the rules of the request, which are not stored."),
    on("listPlaces", Get, "/provider-places")
        .runs(|call| Box::pin(provider_catalog::list(call)))
        .output("place-list.json")
        .scope("worker-manager:list-providers")
        .about(RULES, "List places")
        .describe(
            "The places where each provider can launch workers, with the conditions that \
             distinguish them. A provider that cannot report them returns the reason.",
        ),
    on(
        "launchConfigPayloadSchema",
        Get,
        "/worker-type/<workerTypeId>/launch-config/<launchConfigId>/payload-schema",
    )
    .runs(|call| Box::pin(worker_types::launch_config_schema(call)))
    .wildcard("workerTypeId")
    .output("payload-schema-response.json")
    .scope("worker-manager:get-payload-schema:<workerType>")
    .about(WORKER_TYPES, "Get the payload schema of a launch config")
    .describe("The payload schema by the rules for the place of one launch config."),
    on(
        "workerTypePayloadSchema",
        Get,
        "/worker-type/<workerTypeId>/payload-schema",
    )
    .runs(|call| Box::pin(worker_types::payload_schema(call)))
    .wildcard("workerTypeId")
    .output("payload-schema-response.json")
    .scope("worker-manager:get-payload-schema:<workerType>")
    .about(WORKER_TYPES, "Get the payload schema of a worker type")
    .describe(
        "The JSON schema of the payload of its tasks, by its rules. A worker type is a full \
             worker pool id, or a name within `worker-manager`.",
    ),
];
