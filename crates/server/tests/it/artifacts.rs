//! Artifacts: created by workers, uploaded, downloaded, listed, and deleted after they expire.

use domain::artifact::{Artifact, Content};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::{Database, on_both, on_sqlite_first};
use crate::runs::{OTHER_TASK, TASK};
use crate::samples::DAY_MS;
use crate::world::World;

pub(crate) const RUN: &str = "queue:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0";
pub(crate) const FOREVER: &str = "2026-10-01T00:00:00.000Z";

pub(crate) fn path(name: &str) -> String {
    format!("{RUN}/artifacts/{name}")
}

pub(crate) fn s3(content_type: &str) -> Value {
    json!({"storageType": "s3", "contentType": content_type, "expires": FOREVER})
}

pub(crate) fn link(to: &str) -> Value {
    json!({"storageType": "link", "artifact": to, "expires": FOREVER})
}

fn reference(url: &str) -> Value {
    json!({"storageType": "reference", "url": url, "contentType": "text/html", "expires": FOREVER})
}

fn error() -> Value {
    json!({"storageType": "error", "reason": "file-missing-on-worker", "message": "no such file",
        "expires": FOREVER})
}

impl World {
    pub(crate) async fn create(&self, name: &str, body: Value) -> Value {
        self.post(&path(name), body).await.expect(200)
    }

    /// Where an artifact is fetched from.
    pub(crate) async fn place(&self, path: &str) -> String {
        let found = self.get(path).await;
        assert_eq!(found.status, 303, "{}", found.text);
        assert_eq!(found.body()["url"], found.header("location"));
        found.header("location").to_owned()
    }
}

#[tokio::test]
async fn a_server_without_a_folder_reports_the_missing_setting() {
    let world = World::open(Database::sqlite(), |config| config.data = None).await;
    world.running_task().await;
    let refused = world.post(&path("public/a"), s3("a/b")).await;
    refused.refused_with(400, "InputError", "`data`, or `artifacts.folder`");
    // Artifacts without files work.
    world
        .create("public/b", reference("https://example.com/"))
        .await;
    assert_eq!(world.place(&path("public/b")).await, "https://example.com/");
    world.tidy_artifacts().await;
}

on_sqlite_first!(
    references_links_and_errors_lead_where_they_should,
    |world| {
        world.running_task().await;
        let to = "https://example.com/x?y=z";
        assert_eq!(
            world.create("public/r", reference(to)).await,
            json!({"storageType": "reference"})
        );
        assert_eq!(
            world.create("public/l", link("public/r")).await,
            json!({"storageType": "link"})
        );
        world.create("public/ll", link("public/l")).await;
        assert_eq!(
            world.create("public/e", error()).await,
            json!({"storageType": "error"})
        );
        for name in ["public/r", "public/l", "public/ll"] {
            let found = world.get(&path(name)).await;
            assert_eq!((found.status, found.header("location")), (303, to));
            assert_eq!(
                found.header("x-taskcluster-artifact-storage-type"),
                "reference"
            );
            assert_eq!(found.body(), json!({"storageType": "reference", "url": to}));
            let content = world
                .get(&format!("{RUN}/artifact-content/{name}"))
                .await
                .expect(200);
            assert_eq!(content, json!({"storageType": "reference", "url": to}));
        }
        let never = world.get(&path("public/e")).await;
        assert_eq!(never.header("x-taskcluster-artifact-storage-type"), "error");
        let why = json!({"reason": "file-missing-on-worker", "message": "no such file"});
        assert_eq!(never.expect(424), why);
        let content = world
            .get(&format!("{RUN}/artifact-content/public/e"))
            .await
            .expect(200);
        let expected =
            json!({"storageType": "error", "reason": why["reason"], "message": why["message"]});
        assert_eq!(content, expected);
        // Lists do not follow.
        let info = world
            .get(&format!("{RUN}/artifact-info/public/l"))
            .await
            .expect(200);
        assert_eq!(info["storageType"], "link");
        let told = world.told().await;
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 4, "{told}");
        let key = format!("artifact-created primary.{TASK}.0.g.w.pp.ee.-.{TASK}._ ");
        assert!(lines[0].starts_with(&key), "{}", lines[0]);
        assert!(lines[0].contains(r#""name":"public/r""#), "{}", lines[0]);
    }
);

on_sqlite_first!(references_lead_to_the_web_and_nowhere_else, |world| {
    world.running_task().await;
    for url in [
        "javascript:alert(1)",
        "JavaScript://example.com/%0aalert(1)",
        "file:///etc/passwd",
        "data:text/html,<script>alert(1)</script>",
        "ftp://example.com/x",
        "//example.com/x",
        "/x",
        "x",
        "",
        "https://",
        "https:///x y",
        "https://exa mple.com/",
    ] {
        let refused = world.post(&path("public/x"), reference(url)).await;
        assert_eq!(refused.status, 400, "{url}: {}", refused.text);
    }
    for (number, url) in ["http://example.com", "HTTPS://user@example.com:8443/a?b#c"]
        .iter()
        .enumerate()
    {
        world
            .create(&format!("public/{number}"), reference(url))
            .await;
    }
});

on_sqlite_first!(links_that_lead_nowhere_are_refused, |world| {
    world.running_task().await;
    world.create("public/a", link("public/b")).await;
    world.create("public/b", link("public/a")).await;
    let cycle = world.get(&path("public/a")).await;
    cycle.refused(400, "InputError", "Artifact leads to a link cycle");
    world.create("public/c", link("public/not-there")).await;
    world
        .get(&path("public/c"))
        .await
        .refused(404, "ResourceNotFound", "Artifact not found");
});

on_sqlite_first!(a_bounded_number_of_links_is_followed, |world| {
    const LIMIT: usize = 100;
    let artifact = |number: usize, content| Artifact {
        task_id: TASK.parse().unwrap(),
        run_id: 0,
        name: format!("public/{number}").parse().unwrap(),
        content_type: "text/plain".to_owned(),
        expires: world.now().plus_millis(DAY_MS),
        created: world.now(),
        content,
    };
    world.running_task().await;
    let sizes = sizes_around("server::api::queue::artifact_content::MAX_LINKS", LIMIT);
    let most = *sizes.last().unwrap();
    let url = "https://example.com/".to_owned();
    // Each leads to the one before it.
    let links = (1..=most).map(|number| {
        let artifact_before = format!("public/{}", number - 1);
        artifact(
            number,
            Content::Link {
                artifact: artifact_before,
            },
        )
    });
    let all: Vec<Artifact> = [artifact(0, Content::Reference { url })]
        .into_iter()
        .chain(links)
        .collect();
    world
        .write(move |tx| {
            all.iter()
                .try_for_each(|artifact| store::artifacts::insert(tx, artifact).map(drop))
        })
        .await;
    for count in sizes {
        let asked = world.get(&path(&format!("public/{count}")));
        let (answer, counts) = world.counted(async { asked.await }).await;
        // The requested artifact, and the targets of the links.
        let n_looked_at = count.min(LIMIT) + 1;
        assert_eq!(counts.transactions("artifact_get"), n_looked_at as u64);
        if count <= LIMIT {
            assert_eq!(answer.header("location"), "https://example.com/", "{count}");
        } else {
            answer.refused(400, "InputError", "Artifact leads to more than 100 links");
        }
    }
});

on_sqlite_first!(each_name_on_the_way_needs_its_scope, |world| {
    world.running_task().await;
    world
        .create("private/x", reference("https://example.com/"))
        .await;
    world.create("public/x", link("private/x")).await;
    let some = world
        .root()
        .temporary(None, &["queue:get-artifact:public/*"], world.now());
    for way in ["artifacts", "artifact-content"] {
        let refused = world.get(&format!("{RUN}/{way}/public/x")).by(&some).await;
        refused.refused_with(403, "InsufficientScopes", "queue:get-artifact:private/x");
        let latest = format!("queue:/task/{TASK}/{way}/public/x");
        let refused = world.get(&latest).by(&some).await;
        refused.refused_with(403, "InsufficientScopes", "queue:get-artifact:private/x");
    }
    // A caller without scopes does not learn whether the task exists.
    let unknown = format!("queue:/task/{OTHER_TASK}/artifacts/private/x");
    assert_eq!(world.get(&unknown).by(&some).await.status, 403);
});

on_sqlite_first!(
    public_artifacts_are_open_if_the_anonymous_role_says_so,
    |world| {
        world.running_task().await;
        world
            .create("public/x", reference("https://example.com/"))
            .await;
        let ask = || world.get(&path("public/x")).anonymously();
        assert_eq!(ask().await.status, 403);
        let role = json!({"description": "", "scopes": ["queue:get-artifact:public/*"]});
        world.put("auth:/roles/anonymous", role).await.expect(200);
        assert_eq!(ask().await.status, 303);
    }
);

on_sqlite_first!(the_latest_run_counts_where_none_is_named, |world| {
    world.running_task().await;
    world
        .create("public/x", reference("https://example.com/0"))
        .await;
    let latest = |way: &str| format!("queue:/task/{TASK}/{way}");
    assert_eq!(
        world.place(&latest("artifacts/public/x")).await,
        "https://example.com/0"
    );
    world.lose_run(0).await;
    let missing = world.get(&latest("artifacts/public/x")).await;
    missing.refused(404, "ResourceNotFound", "Artifact not found");
    world.claim_run(1).await;
    let run = format!("queue:/task/{TASK}/runs/1/artifacts/public/x");
    world
        .post(&run, reference("https://example.com/1"))
        .await
        .expect(200);
    let content = world
        .get(&latest("artifact-content/public/x"))
        .await
        .expect(200);
    assert_eq!(content["url"], "https://example.com/1");
    let info = world
        .get(&latest("artifact-info/public/x"))
        .await
        .expect(200);
    assert_eq!(info["storageType"], "reference");
    let listed = world.get(&latest("artifacts")).await.expect(200);
    assert_eq!(listed["artifacts"], json!([info]));
});

on_sqlite_first!(missing_artifacts_are_not_found, |world| {
    for (path, text) in [
        ("task/fN1SbArXTPSVFNUvaOlinQ/artifacts", "Task not found"),
        (
            "task/fN1SbArXTPSVFNUvaOlinQ/artifacts/public/x",
            "Task not found",
        ),
        (
            "task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifacts",
            "Task not found",
        ),
        (
            "task/fN1SbArXTPSVFNUvaOlinQ/runs/0/artifacts/public/x",
            "Artifact not found",
        ),
    ] {
        let answer = world.get(&format!("queue:/{path}")).await;
        answer.refused(404, "ResourceNotFound", text);
    }
    world.unscheduled_task().await;
    let answer = world.get(&format!("queue:/task/{TASK}/artifacts")).await;
    answer.refused(404, "ResourceNotFound", "Task doesn't have any runs");
    for run in ["0", "50", "99999999999999999999"] {
        let answer = world
            .get(&format!("queue:/task/{TASK}/runs/{run}/artifacts"))
            .await;
        let text = format!("Task `{TASK}` has no run `{run}`");
        answer.refused(404, "ResourceNotFound", &text);
        for way in ["artifacts", "artifact-info", "artifact-content"] {
            let answer = world
                .get(&format!("queue:/task/{TASK}/runs/{run}/{way}/x"))
                .await;
            answer.refused(404, "ResourceNotFound", "Artifact not found");
        }
    }
});

on_sqlite_first!(
    artifacts_at_the_wrong_time_or_above_the_size_are_refused,
    |world| {
        let create = async |name: &str, body: Value| world.post(&path(name), body).await;
        create("x", error())
            .await
            .refused(400, "InputError", "Task not found");
        world.pending_task().await;
        let unclaimed = "Run was not claimed by a worker and so no artifacts can exist";
        create("x", error())
            .await
            .refused(400, "InputError", unclaimed);
        let run = format!("queue:/task/{TASK}/runs/7/artifacts/x");
        world
            .post(&run, error())
            .await
            .refused(400, "InputError", "Run not found");
        world.claim_run(0).await;
        let until = |expires: &str| {
            let mut body = error();
            body["expires"] = json!(expires);
            body
        };
        let late = create("x", until("2026-09-21T13:58:19.999Z")).await;
        late.refused(400, "InputError", "Expires must be in the future");
        let long = create("x", until("2026-10-21T14:13:20.001Z")).await;
        long.refused_with(400, "InputError", "task.expires < expires");
        create("x", until("2026-10-21T14:13:20.000Z"))
            .await
            .expect(200);
        let object = json!({"storageType": "object", "contentType": "a/b", "expires": FOREVER});
        let refused = create("o", object).await;
        refused.refused_with(400, "InputError", "use the storage type `s3`");
        let refused = create("t", s3("a/b\n")).await;
        refused.refused(
            400,
            "InputError",
            "`contentType` must be a content type, such as text/plain",
        );
        let refused = create("t", json!({"storageType": "socks", "expires": FOREVER})).await;
        refused.refused_with(400, "InputValidationError", "");
        world.complete_run(0).await;
        create("y", error())
            .await
            .refused_with(409, "RequestConflict", "after it has ended");
    }
);

on_sqlite_first!(logs_are_accepted_for_a_while_after_an_exception, |world| {
    world.running_task().await;
    world.lose_run(0).await;
    world.clock.advance_ms(25 * 60_000 - 1);
    world.create("x", error()).await;
    world.clock.advance_ms(1);
    let refused = world.post(&path("y"), error()).await;
    refused.refused_with(409, "RequestConflict", "for 25 minutes");
});

on_sqlite_first!(an_artifact_does_not_become_another, |world| {
    world.running_task().await;
    world.create("x", reference("https://example.com/1")).await;
    world.told().await;
    world.create("x", reference("https://example.com/1")).await;
    assert_eq!(world.told().await, "");
    world.create("x", reference("https://example.com/2")).await;
    assert_eq!(world.told().await.lines().count(), 1);
    world.create("x", link("y")).await;
    let mut sooner = link("y");
    sooner["expires"] = json!("2026-09-30T00:00:00.000Z");
    for other in [
        reference("https://example.com/3"),
        error(),
        s3("text/html"),
        link("z"),
        sooner,
    ] {
        let refused = world.post(&path("x"), other).await;
        refused.refused_with(
            409,
            "RequestConflict",
            "none of the allowed exceptions apply",
        );
    }
});

on_sqlite_first!(nothing_needs_to_be_finished, |world| {
    let body = json!({"uploadId": OTHER_TASK});
    let finish = async |path: &str| world.put(path, body.clone()).await;
    let text = format!("Artifact with taskId `{TASK}`, runId 0, name `x` not found");
    finish(&path("x"))
        .await
        .refused(404, "ResourceNotFound", &text);
    world.running_task().await;
    finish(&path("x"))
        .await
        .refused(404, "ResourceNotFound", &text);
    world.create("x", error()).await;
    let text = "Only object artifacts can be finished";
    finish(&path("x")).await.refused(400, "InputError", text);
});

on_both!(lists_come_in_pages, |world| {
    world.running_task().await;
    for name in ["c", "a", "b"] {
        world.create(name, link("d")).await;
    }
    let list = format!("{RUN}/artifacts?limit=2");
    let page = world.get(&list).await.expect(200);
    let names = |page: &Value| {
        let artifacts = page["artifacts"].as_array().unwrap().iter();
        artifacts
            .map(|found| found["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&page), ["a", "b"]);
    let token = page["continuationToken"].as_str().unwrap();
    let page = world
        .get(&format!("{list}&continuationToken={token}"))
        .await
        .expect(200);
    assert_eq!(names(&page), ["c"]);
    assert_eq!(page.get("continuationToken"), None);
    // The key of another list, and no key.
    for bad in ["WyIiXQ", "WzFd", "x"] {
        let refused = world.get(&format!("{list}&continuationToken={bad}")).await;
        refused.refused(400, "InputError", "Invalid continuation token");
    }
});
