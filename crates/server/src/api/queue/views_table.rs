//! The endpoints of artifacts, task queues and the queue's workers, in the order of declaration.

use access::scope::Template::{self, AllOf, Scope};

use super::{artifact_content, artifacts, on, provisioners, quarantine, task_queues, worker_views};
use crate::api::endpoint::Verb::{Get, Post, Put};
use crate::api::endpoint::{Endpoint, LIMIT, PAGING, TOKEN, YES_NO, each, query};

const FILES: &str = "Artifacts";
const METADATA: &str = "Worker Metadata";
/// The scopes of an artifact, and of each artifact that a link leads to.
const EACH_NAME: Template = AllOf(&[each("name", "names", "queue:get-artifact:<name>")]);

const ARTIFACT: &str = "/task/<taskId>/runs/<runId>/artifacts/<name>";
const LATEST_ARTIFACT: &str = "/task/<taskId>/artifacts/<name>";
const WORKER_TYPES: &str = "/provisioners/<provisionerId>/worker-types";
const WORKER_TYPE: &str = "/provisioners/<provisionerId>/worker-types/<workerType>";
const WORKERS: &str = "/provisioners/<provisionerId>/worker-types/<workerType>/workers";
const WORKER: &str =
    "/provisioners/<provisionerId>/worker-types/<workerType>/workers/<workerGroup>/<workerId>";
const DECLARED_WORKER: &str =
    "/provisioners/<provisionerId>/worker-types/<workerType>/<workerGroup>/<workerId>";

/// `createArtifact` to `latestArtifact`.
pub(in crate::api) const ARTIFACTS: &[Endpoint] = &[
    on("createArtifact", Post, ARTIFACT)
        .runs(|call| Box::pin(artifacts::create(call)))
        .wildcard("name")
        .input("post-artifact-request.json")
        .output("post-artifact-response.json")
        .scope("queue:create-artifact:<taskId>/<runId>")
        .about(FILES, "Create an artifact")
        .describe(
            "For the worker of a run: creates an artifact. For `s3` the reply has a `putUrl`, to \
             which the worker puts the complete file, without credentials; other artifacts are \
             complete at once. The same request again returns a new URL. `expires` may be moved to \
             a later time, and a reference may be changed or replaced by a link. This server has \
             no object service.",
        ),
    on("finishArtifact", Put, ARTIFACT)
        .runs(|call| Box::pin(artifacts::finish(call)))
        .wildcard("name")
        .input("finish-artifact-request.json")
        .scope("queue:create-artifact:<taskId>/<runId>")
        .about(FILES, "Finish an artifact")
        .describe("Only artifacts in an object service are finished, and this server has none."),
    on("getArtifact", Get, ARTIFACT)
        .runs(|call| Box::pin(artifact_content::get(call)))
        .wildcard("name")
        .output("get-artifact-response.json")
        .scopes(EACH_NAME)
        .about(FILES, "Get an artifact of a run")
        .describe(
            "Redirects (303) to the content, following links. An artifact that could not be made \
             is answered 424, with the reason. The caller needs the scope of the name, and of each \
             name that a link leads to. To publish public artifacts, grant \
             `queue:get-artifact:public/*` to the role `anonymous`.",
        ),
    on("getLatestArtifact", Get, LATEST_ARTIFACT)
        .runs(|call| Box::pin(artifact_content::get_latest(call)))
        .wildcard("name")
        .output("get-artifact-response.json")
        .scopes(EACH_NAME)
        .about(FILES, "Get an artifact of the last run")
        .describe("As `getArtifact`, of the task's last run."),
    on(
        "listArtifacts",
        Get,
        "/task/<taskId>/runs/<runId>/artifacts",
    )
    .runs(|call| Box::pin(artifacts::list(call)))
    .query(PAGING)
    .output("list-artifacts-response.json")
    .scope("queue:list-artifacts:<taskId>:<runId>")
    .about(FILES, "List the artifacts of a run")
    .describe("The artifacts of a run, by name."),
    on("listLatestArtifacts", Get, "/task/<taskId>/artifacts")
        .runs(|call| Box::pin(artifacts::list_latest(call)))
        .query(PAGING)
        .output("list-artifacts-response.json")
        .scope("queue:list-artifacts:<taskId>")
        .about(FILES, "List the artifacts of the last run")
        .describe("The artifacts of a task's last run, by name."),
    on(
        "artifactInfo",
        Get,
        "/task/<taskId>/runs/<runId>/artifact-info/<name>",
    )
    .runs(|call| Box::pin(artifacts::show(call)))
    .wildcard("name")
    .output("artifact-response.json")
    .scope("queue:list-artifacts:<taskId>:<runId>")
    .about(FILES, "Show an artifact of a run")
    .describe("The artifact as lists show it. Links are not followed."),
    on(
        "latestArtifactInfo",
        Get,
        "/task/<taskId>/artifact-info/<name>",
    )
    .runs(|call| Box::pin(artifacts::show_latest(call)))
    .wildcard("name")
    .output("artifact-response.json")
    .scope("queue:list-artifacts:<taskId>")
    .about(FILES, "Show an artifact of the last run")
    .describe("As `artifactInfo`, of the task's last run."),
    on(
        "artifact",
        Get,
        "/task/<taskId>/runs/<runId>/artifact-content/<name>",
    )
    .runs(|call| Box::pin(artifact_content::describe(call)))
    .wildcard("name")
    .output("artifact-content-response.json")
    .scopes(EACH_NAME)
    .about(FILES, "Find the content of an artifact")
    .describe("As `getArtifact`, but as JSON instead of a redirect, also for error artifacts."),
    on(
        "latestArtifact",
        Get,
        "/task/<taskId>/artifact-content/<name>",
    )
    .runs(|call| Box::pin(artifact_content::describe_latest(call)))
    .wildcard("name")
    .output("artifact-content-response.json")
    .scopes(EACH_NAME)
    .about(FILES, "Find the content of an artifact of the last run")
    .describe("As `artifact`, of the task's last run."),
];

/// `listProvisioners` and `getProvisioner`.
pub(in crate::api) const PROVISIONERS: &[Endpoint] = &[
    on("listProvisioners", Get, "/provisioners")
        .runs(|call| Box::pin(provisioners::list(call)))
        .query(PAGING)
        .output("list-provisioners-response.json")
        .scope("queue:list-provisioners")
        .deprecated()
        .about(METADATA, "List provisioners")
        .describe(
            "The first parts of the names of recently used task queues. Prefer the endpoints of \
             task queues.",
        ),
    on("getProvisioner", Get, "/provisioners/<provisionerId>")
        .runs(|call| Box::pin(provisioners::show(call)))
        .output("provisioner-response.json")
        .scope("queue:get-provisioner:<provisionerId>")
        .deprecated()
        .about(METADATA, "Show a provisioner")
        .describe(
            "When a task queue of this provisioner was last used. Prefer the endpoints of task \
             queues.",
        ),
];

/// `listWorkerTypes` to `declareWorker`.
pub(in crate::api) const VIEWS: &[Endpoint] = &[
    on("listWorkerTypes", Get, WORKER_TYPES)
        .runs(|call| Box::pin(task_queues::list_worker_types(call)))
        .query(PAGING)
        .output("list-workertypes-response.json")
        .scope("queue:list-worker-types:<provisionerId>")
        .deprecated()
        .about(METADATA, "List worker types")
        .describe(
            "The recently used task queues of this provisioner. Prefer the endpoints of task \
             queues.",
        ),
    on("getWorkerType", Get, WORKER_TYPE)
        .runs(|call| Box::pin(task_queues::show_worker_type(call)))
        .output("workertype-response.json")
        .scope("queue:get-worker-type:<provisionerId>/<workerType>")
        .deprecated()
        .about(METADATA, "Show a worker type")
        .describe(
            "A task queue by the two parts of its name. Prefer the endpoints of task queues.",
        ),
    on("listTaskQueues", Get, "/task-queues")
        .runs(|call| Box::pin(task_queues::list(call)))
        .query(PAGING)
        .output("list-taskqueues-response.json")
        .scope("queue:list-task-queues")
        .about(METADATA, "List task queues")
        .describe("Task queues that got a task or a claim within the last days, by name."),
    on("getTaskQueue", Get, "/task-queues/<taskQueueId>")
        .runs(|call| Box::pin(task_queues::show(call)))
        .output("taskqueue-response.json")
        .scope("queue:get-task-queue:<taskQueueId>")
        .about(METADATA, "Show a task queue")
        .describe("When a task queue was last used."),
    on("listWorkers", Get, WORKERS)
        .runs(|call| Box::pin(worker_views::list(call)))
        .query(&[TOKEN, LIMIT, query("quarantined", YES_NO)])
        .output("list-workers-response.json")
        .scope("queue:list-workers:<provisionerId>/<workerType>")
        .deprecated()
        .about(METADATA, "List the workers of a task queue")
        .describe(
            "Workers that asked for work recently, by group and id; `quarantined` selects \
             quarantined workers, or only the others. The worker manager returns more details.",
        ),
    on("getWorker", Get, WORKER)
        .runs(|call| Box::pin(worker_views::show(call)))
        .output("worker-response.json")
        .scope("queue:get-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>")
        .deprecated()
        .about(METADATA, "Show a worker of a task queue")
        .describe(
            "The recent tasks of a worker, and its quarantines with their authors and reasons. The \
             worker manager returns more details.",
        ),
    on("quarantineWorker", Put, WORKER)
        .runs(|call| Box::pin(quarantine::quarantine(call)))
        .input("quarantine-worker-request.json")
        .output("worker-response.json")
        .scopes(AllOf(&[Scope(
            "queue:quarantine-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>",
        )]))
        .experimental()
        .about(METADATA, "Quarantine a worker")
        .describe(
            "Gives a worker no work until a time; a time in the past ends the quarantine. Running \
             tasks continue. The author and the reason are stored with the worker.",
        ),
    on("declareWorker", Put, DECLARED_WORKER)
        .runs(|call| Box::pin(quarantine::declare(call)))
        .input("update-worker-request.json")
        .output("worker-response.json")
        .scopes(AllOf(&[each(
            "property",
            "properties",
            "queue:declare-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>#<property>",
        )]))
        .experimental()
        .about(METADATA, "Declare a worker")
        .describe("Declares a worker that has not asked for work yet, or extends its expiration."),
];
