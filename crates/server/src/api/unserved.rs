//! Methods of Taskcluster that this server does not have. The answer names the method, because
//! clients show nothing of a reply in another form.

use std::sync::LazyLock;

use http::Method;
use serde_json::{Map, Value};

use super::endpoint::Service;
use super::endpoint::Verb::{self, Delete, Get, Post, Put};
use super::error::ApiError;
use super::request_head::RequestHead;
use super::response::{Response, error_reply, not_found, options};
use super::route::{Parameters, Router, parameters, segments, take_apart};
use crate::app::App;

const PAGE: &str = "docs/api.md#methods-that-are-not-served";

/// Service, method, verb and route.
type UnservedMethod = (&'static str, &'static str, Verb, &'static str);

/// Services of which nothing is served, each with an alternative.
const ABSENT: [(&str, &str); 6] = [
    (
        "github",
        "let a program that GitHub calls create the tasks, with `queue.createTask`",
    ),
    (
        "hooks",
        "let a timer or a program of your own create the tasks, with `queue.createTask`",
    ),
    (
        "index",
        "find tasks by their group (`queue.listTaskGroup`), or keep the ids of tasks that others \
         need",
    ),
    (
        "notify",
        "configure the notices of this server (docs/notifications.md), or listen to its events \
         (docs/events.md)",
    ),
    (
        "object",
        "store files as artifacts of tasks, with the `storageType` s3",
    ),
    (
        "web-server",
        "see the pages of this server, at its root URL",
    ),
];
/// For methods of `auth`.
const OTHER_CREDENTIALS: &str = "give the credentials to workers by their launch config (such as \
     an instance profile), or as a secret (`secrets.get`)";

/// Each service of Taskcluster has these.
const MONITORING: [(&str, &str); 4] = [
    ("ping", "/ping"),
    ("lbheartbeat", "/__lbheartbeat__"),
    ("version", "/__version__"),
    ("heartbeat", "/__heartbeat__"),
];

/// Those of Taskcluster v106 to v114.
#[rustfmt::skip]
const METHODS: &[UnservedMethod] = &[
    ("auth", "awsS3Credentials", Get, "/aws/s3/<level>/<bucket>/<prefix>"),
    ("auth", "azureAccounts", Get, "/azure/accounts"),
    ("auth", "azureTables", Get, "/azure/<account>/tables"),
    ("auth", "azureTableSAS", Get, "/azure/<account>/table/<table>/<level>"),
    ("auth", "azureContainers", Get, "/azure/<account>/containers"),
    ("auth", "azureContainerSAS", Get, "/azure/<account>/containers/<container>/<level>"),
    ("auth", "sentryDSN", Get, "/sentry/<project>/dsn"),
    ("auth", "gcpCredentials", Get, "/gcp/credentials/<projectId>/<serviceAccount>"),
    ("auth", "listGithubApps", Get, "/github/apps"),
    ("auth", "githubRepoToken", Post, "/github/<appName>/<owner>/repo-token"),
    ("github", "githubWebHookConsumer", Post, "/github"),
    ("github", "builds", Get, "/builds"),
    ("github", "cancelBuilds", Post, "/builds/<owner>/<repo>/cancel"),
    ("github", "badge", Get, "/repository/<owner>/<repo>/<branch>/badge.svg"),
    ("github", "repository", Get, "/repository/<owner>/<repo>"),
    ("github", "latest", Get, "/repository/<owner>/<repo>/<branch>/latest"),
    ("github", "createStatus", Post, "/repository/<owner>/<repo>/statuses/<sha>"),
    ("github", "createComment", Post, "/repository/<owner>/<repo>/issues/<number>/comments"),
    ("github", "renderTaskclusterYml", Post, "/taskcluster-yml"),
    ("hooks", "listHookGroups", Get, "/hooks"),
    ("hooks", "listHooks", Get, "/hooks/<hookGroupId>"),
    ("hooks", "hook", Get, "/hooks/<hookGroupId>/<hookId>"),
    ("hooks", "getHookStatus", Get, "/hooks/<hookGroupId>/<hookId>/status"),
    ("hooks", "createHook", Put, "/hooks/<hookGroupId>/<hookId>"),
    ("hooks", "updateHook", Post, "/hooks/<hookGroupId>/<hookId>"),
    ("hooks", "removeHook", Delete, "/hooks/<hookGroupId>/<hookId>"),
    ("hooks", "triggerHook", Post, "/hooks/<hookGroupId>/<hookId>/trigger"),
    ("hooks", "getTriggerToken", Get, "/hooks/<hookGroupId>/<hookId>/token"),
    ("hooks", "resetTriggerToken", Post, "/hooks/<hookGroupId>/<hookId>/token"),
    ("hooks", "triggerHookWithToken", Post, "/hooks/<hookGroupId>/<hookId>/trigger/<token>"),
    ("hooks", "listLastFires", Get, "/hooks/<hookGroupId>/<hookId>/last-fires"),
    ("index", "findTask", Get, "/task/<indexPath>"),
    ("index", "findTasksAtIndex", Post, "/tasks/indexes"),
    ("index", "listNamespaces", Get, "/namespaces/<namespace>"),
    ("index", "listTasks", Get, "/tasks/<namespace>"),
    ("index", "insertTask", Put, "/task/<namespace>"),
    ("index", "deleteTask", Delete, "/task/<namespace>"),
    ("index", "findArtifactFromTask", Get, "/task/<indexPath>/artifacts/<name>"),
    ("notify", "email", Post, "/email"),
    ("notify", "pulse", Post, "/pulse"),
    ("notify", "matrix", Post, "/matrix"),
    ("notify", "slack", Post, "/slack"),
    ("notify", "addDenylistAddress", Post, "/denylist/add"),
    ("notify", "deleteDenylistAddress", Delete, "/denylist/delete"),
    ("notify", "listDenylist", Get, "/denylist/list"),
    ("object", "createUpload", Put, "/upload/<name>"),
    ("object", "finishUpload", Post, "/finish-upload/<name>"),
    ("object", "startDownload", Put, "/start-download/<name>"),
    ("object", "object", Get, "/metadata/<name>"),
    ("object", "download", Get, "/download/<name>"),
    ("web-server", "taskGroupProfile", Get, "/task-group/<taskGroupId>/profile"),
    ("web-server", "taskProfile", Get, "/task/<taskId>/profile"),
];

/// The answer to a request that no route of this server takes.
pub(super) fn answer(app: &App, head: &RequestHead) -> Response {
    let path = head.uri.path();
    if head.method == Method::OPTIONS {
        // Browsers ask before they send the request, and show its answer only then.
        let verbs = [Get, Put, Post, Delete];
        let known = |verb: &Verb| find(app, *verb, path).is_some();
        return options(&verbs.into_iter().filter(known).collect::<Vec<_>>());
    }
    let found = Verb::of(&head.method).and_then(|verb| find(app, verb, path));
    let Some((name, parameters, text)) = found else {
        return not_found();
    };
    let (error, now) = (ApiError::not_found(text), app.engine.clock.now());
    error_reply(&error, name, &parameters, Value::Object(Map::new()), now)
}

/// The method that a request means, the values of its parameters, and why it is not served.
type Found = (&'static str, Parameters, String);

fn find(app: &App, verb: Verb, path: &str) -> Option<Found> {
    let (service, path) = path.strip_prefix("/api/")?.split_once("/v1/")?;
    find_absent(service, verb, path).or_else(|| find_elsewhere(app, service, verb, path))
}

fn find_absent(service: &str, verb: Verb, path: &str) -> Option<Found> {
    let of_service = METHODS.iter().filter(|method| method.0 == service);
    let of_service = of_service.map(|(_, name, verb, route)| (*name, *verb, *route));
    let absent = ABSENT.iter().find(|(absent, _)| *absent == service);
    let is_absent = absent.is_some();
    let monitoring = MONITORING.iter().filter(|_| is_absent);
    let monitoring = monitoring.map(|(name, route)| (*name, Get, *route));
    let segments = segments(path)?;
    let (name, parameters) = of_service
        .chain(monitoring)
        .filter(|(_, other, _)| *other == verb)
        .find_map(|(name, _, route)| {
            let route = take_apart(route, Some("name"));
            Some((name, parameters(&route, &segments).ok()??))
        })?;
    let (why, instead) = match absent {
        Some((_, instead)) => (format!("it has no service `{service}`"), *instead),
        None => {
            let why = "it makes no such credentials for other services".to_owned();
            (why, OTHER_CREDENTIALS)
        }
    };
    let text = format!(
        "Fleetwright does not serve `{service}.{name}` of Taskcluster: {why}. Instead, {instead}. \
         See {PAGE}"
    );
    Some((name, parameters, text))
}

/// Methods that Fleetwright has, but not in this process or with this configuration.
fn find_elsewhere(app: &App, service: &str, verb: Verb, path: &str) -> Option<Found> {
    static ALL: LazyLock<Router> = LazyLock::new(|| Router::new(&Service::ALL));
    let service = Service::ALL.into_iter().find(|it| it.as_str() == service)?;
    let found = ALL.find(service, verb, path).ok()??;
    let config = &app.config;
    let queue = config.queue.taskcluster.as_ref().map(|it| &it.root_url);
    let auth = config.auth.taskcluster.as_ref().map(|it| &it.root_url);
    let url = match service {
        Service::Queue | Service::PurgeCache => queue,
        Service::Auth | Service::Secrets => auth,
        Service::WorkerManager | Service::Fleetwright => None,
    };
    let why = match url {
        Some(url) => format!("this server uses the service of {url}: call it there"),
        None => "this process does not have the role `api`: call a process with it".to_owned(),
    };
    let service = service.as_str();
    let text = format!(
        "`{service}.{}` is not served here: {why}. See {PAGE}",
        found.name
    );
    Some((found.name, found.parameters, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_method_of_the_list_is_served() {
        let served = Router::new(&Service::ALL);
        for (service, name, verb, route) in METHODS {
            let known = Service::ALL.into_iter().find(|it| it.as_str() == *service);
            let found = known.map(|service| served.find(service, *verb, route));
            assert!(matches!(found, None | Some(Ok(None))), "{service}.{name}");
            let is_absent = ABSENT.iter().any(|(absent, _)| absent == service);
            assert_eq!(known.is_none(), is_absent, "{service}");
        }
    }
}
