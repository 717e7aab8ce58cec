//! Artifacts, their files, and logs, as runs come and end.

use bytes::Bytes;
use domain::artifact::{Artifact, ArtifactRefusal, Content};
use domain::id::{TaskId, WorkerKey};
use domain::task::{Task, TaskLimits};
use domain::time::{DAY_MS, MINUTE_MS};
use engine::artifacts::{
    self, ArtifactError, ExpectedFile, LogPiece, append_to_log, find_file, log_state,
};
use engine::queue;
use serde_json::json;

use crate::world::World;

const LIMITS: TaskLimits = TaskLimits {
    deadline_days: 5,
    expires_days: 400,
    dependencies: 0,
    task_bytes: 10_000,
    tags_bytes: 100,
};
const MAX_LOG: u64 = 1_000;

/// A task whose first run has been claimed.
async fn claimed(world: &World) -> Task {
    let task = pending(world).await;
    let worker = WorkerKey {
        pool_id: "pp/wt".parse().unwrap(),
        group: "dc1".parse().unwrap(),
        id: "host-7".parse().unwrap(),
    };
    let claimed = queue::claim_task(&world.engine, world.now(), task.id.clone(), 0, worker);
    claimed.await.unwrap()
}

async fn pending(world: &World) -> Task {
    let id: TaskId = world.engine.random.slugid().parse().unwrap();
    let at = |ms| world.now().plus_millis(ms).to_string();
    let document = json!({
        "taskQueueId": "pp/wt", "schedulerId": "s", "dependencies": [], "routes": [],
        "requires": "all-completed", "priority": "low", "retries": 1, "scopes": [],
        "created": at(0), "deadline": at(DAY_MS), "expires": at(2 * DAY_MS),
        "payload": {}, "metadata": {}, "tags": {}, "extra": {},
    });
    let document = serde_json::from_value(document).unwrap();
    let task = LIMITS.task(id, document, world.now()).unwrap();
    let made = queue::create_task(&world.engine, world.now(), task);
    made.await.unwrap()
}

fn artifact(world: &World, task: &Task, content: Content) -> Artifact {
    Artifact {
        task_id: task.id.clone(),
        run_id: 0,
        name: "public/a".parse().unwrap(),
        content_type: "text/plain".to_owned(),
        expires: world.now().plus_millis(DAY_MS),
        created: world.now(),
        content,
    }
}

fn file() -> Content {
    Content::File {
        declared_bytes: None,
        uploaded: None,
    }
}

async fn end(world: &World, task: &Task) {
    let step = |task: Task, now| task.report(0, true, now);
    let ended = queue::change_task(&world.engine, "end", world.now(), task.id.clone(), step);
    ended.await.unwrap();
}

#[tokio::test]
async fn an_artifact_needs_a_claimed_run() {
    let world = World::new().await;
    let task = pending(&world).await;
    let create = |asked| artifacts::create_artifact(&world.engine, asked);
    let refused = create(artifact(&world, &task, file())).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("Run was not claimed"),
        "{refused}"
    );
    let mut unknown = artifact(&world, &task, file());
    unknown.task_id = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
    let refused = create(unknown).await.unwrap_err();
    assert_eq!(refused.to_string(), "Task not found");
    let task = claimed(&world).await;
    let before = world.n_events().await;
    let link = |to: &str| Content::Link {
        artifact: to.to_owned(),
    };
    for _ in 0..2 {
        let asked = artifact(&world, &task, link("public/b"));
        create(asked).await.unwrap();
    }
    assert_eq!(world.n_events().await, before + 1, "a repeat is no news");
    let other = artifact(&world, &task, link("public/c"));
    let refused = create(other).await.unwrap_err();
    assert!(matches!(refused, ArtifactError::Conflict(_)), "{refused}");
    let mut late = artifact(&world, &task, link("public/b"));
    late.expires = world.now().plus_millis(3 * DAY_MS);
    let refused = create(late).await.unwrap_err();
    assert!(matches!(refused, ArtifactError::Refused(_)), "{refused}");
}

#[tokio::test]
async fn a_file_that_comes_after_the_end_of_its_run_is_refused() {
    let world = World::new().await;
    let task = claimed(&world).await;
    let asked = artifact(&world, &task, file());
    let of = || (asked.task_id.clone(), asked.run_id, asked.name.clone());
    let unknown = ExpectedFile::find(&world.engine, of(), world.now()).await;
    assert!(matches!(unknown.err(), Some(ArtifactError::NoFile)));
    artifacts::create_artifact(&world.engine, asked.clone())
        .await
        .unwrap();
    for (text, ends) in [("in time", false), ("late", true)] {
        let expected = ExpectedFile::find(&world.engine, of(), world.now()).await;
        let expected = expected.unwrap();
        let mut upload = expected.begin(&world.engine, None).await.unwrap();
        upload
            .write(&Bytes::from_static(text.as_bytes()))
            .await
            .unwrap();
        if ends {
            end(&world, &task).await;
        }
        let complete = expected.complete(&world.engine, upload, None).await;
        assert_eq!(complete.is_ok(), !ends, "{text}: {complete:?}");
        let known = find_file(&world.engine, of(), world.now()).await.unwrap();
        assert_eq!(known.content.length(), Some(7), "the first file stays");
    }
    world.advance_ms(DAY_MS + MINUTE_MS);
    let expired = find_file(&world.engine, of(), world.now()).await;
    assert!(matches!(expired, Err(ArtifactError::Expired)));
}

#[tokio::test]
async fn a_log_is_known_as_soon_as_it_begins_and_ends_with_its_run() {
    let world = World::new().await;
    let task = claimed(&world).await;
    let run = (task.id.clone(), 0);
    let append = async |offset, is_last, task: &Task| {
        let piece = LogPiece {
            bytes: Bytes::from_static(b"one\n"),
            offset,
            is_last,
        };
        let (expires, limits) = (task.definition.expires, (MAX_LOG, world.now()));
        let state = task.run(0).unwrap();
        append_to_log(&world.engine, run.clone(), state, expires, piece, limits).await
    };
    let state = log_state(&world.engine, (&run.0, run.1), MAX_LOG).await;
    assert_eq!(state.unwrap(), None);
    let mut grown = world.engine.artifacts.log_wakeups.listen(&run);
    append(0, false, &task).await.unwrap();
    assert!(grown.wait(std::time::Duration::ZERO).await);
    let name = "public/logs/live.log".parse().unwrap();
    let log = find_file(&world.engine, (task.id.clone(), 0, name), world.now()).await;
    assert_eq!(log.unwrap().content, Content::Log);
    let gap = append(9, false, &task).await.unwrap_err();
    assert!(matches!(gap, ArtifactError::Append(_)), "{gap}");
    assert!(append(4, true, &task).await.unwrap().is_finished);
    end(&world, &task).await;
    let id = task.id.clone();
    let read = world
        .engine
        .store
        .read("task_get", move |tx| store::tasks::get(tx, &id));
    let ended: Result<Option<Task>, store::StoreError> = read.await;
    let late = append(8, false, &ended.unwrap().unwrap())
        .await
        .unwrap_err();
    assert!(
        matches!(late, ArtifactError::ArtifactRefusal(ArtifactRefusal::Ended)),
        "{late}"
    );
}
