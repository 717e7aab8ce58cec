//! Methods of Taskcluster that are not served: the answer names them, in the form of API errors.

use http::Method;
use serde_json::json;

use crate::database::{Database, on_sqlite_first};
use crate::world::World;

/// Verb, path and name of methods.
const UNSERVED: &str = "\
    GET object/v1/metadata/project%2Fa object
    GET object/v1/download/project/a download
    GET notify/v1/denylist/list?limit=3 listDenylist
    GET index/v1/task/a.b.c findTask
    POST index/v1/tasks/indexes findTasksAtIndex
    GET index/v1/ping ping
    POST hooks/v1/hooks/g/h/trigger triggerHook
    GET github/v1/builds builds
    POST notify/v1/email email
    PUT object/v1/upload/a createUpload
    GET web-server/v1/task/x/profile taskProfile
    GET auth/v1/aws/s3/read-only/b/p awsS3Credentials
    GET auth/v1/gcp/credentials/-/a%40b gcpCredentials
    GET auth/v1/github/apps listGithubApps";

on_sqlite_first!(methods_that_are_not_served_are_named, |world| {
    for line in UNSERVED.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [verb, path, name] = words.try_into().unwrap();
        let (service, _) = path.split_once('/').unwrap();
        let path = format!("root:/api/{path}");
        let verb: Method = verb.parse().unwrap();
        let ask = || world.ask(verb.clone(), &path);
        for ask in [ask(), ask().anonymously()] {
            let answer = ask.await;
            let body = answer.body();
            assert_eq!(body["requestInfo"]["method"], name, "{path}");
            assert_eq!(answer.header("access-control-allow-origin"), "*");
            assert!(body["message"].as_str().unwrap().contains("Instead, "));
            let text = format!("does not serve `{service}.{name}` of Taskcluster");
            answer.refused_with(404, "ResourceNotFound", &text);
        }
        let options = world.ask(Method::OPTIONS, &path).await;
        assert_eq!(options.status, 200, "{path}");
    }
    let answer = world.get("root:/api/object/v1/download/a%2Fb").await;
    assert_eq!(
        answer.body()["requestInfo"]["params"],
        json!({"name": "a/b"})
    );
    answer.refused_with(
        404,
        "ResourceNotFound",
        "docs/api.md#methods-that-are-not-served",
    );
});

on_sqlite_first!(paths_of_no_method_are_unknown, |world| {
    for path in [
        "/api/secrets/v1/",
        "/api/secrets/v1/nonsense",
        "/api/secrets/v2/secret/a",
        "/api/secrets",
        "/api/nonsense/v1/ping",
        "/api/auth/v1/azure",
    ] {
        let answer = world.get(&format!("root:{path}")).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (404, "{\"error\":\"Not found\"}")
        );
        let options = world.ask(Method::OPTIONS, &format!("root:{path}")).await;
        assert_eq!(options.status, 404, "{path}");
    }
    // A wrong verb of a known path, and a percent-encoding that is no text.
    for (method, path) in [
        (Method::POST, "/api/secrets/v1/secret/a"),
        (Method::GET, "/api/object/v1/download/%ff"),
    ] {
        assert_eq!(world.ask(method, &format!("root:{path}")).await.status, 404);
    }
});

#[tokio::test]
async fn methods_of_another_deployments_services_name_it() {
    let queue = "https://tc.example.com";
    let world = World::open(Database::sqlite(), |config| {
        config.queue.taskcluster = Some(server::config::OutsideQueue {
            root_url: queue.to_owned(),
            client_id: "me".to_owned(),
            access_token: Some(access::Secret::new("0123456789012345678901")),
            access_token_file: None,
            pulse: None,
        });
    })
    .await;
    let answer = world.get("queue:/task/fN1SbArXTPSVFNUvaOlinQ").await;
    assert_eq!(answer.body()["requestInfo"]["method"], "task");
    let text = format!("`queue.task` is not served here: this server uses the service of {queue}");
    answer.refused_with(404, "ResourceNotFound", &text);
}
