//! The queue's views: task queues, provisioners, worker types.

use domain::id::PoolId;
use serde_json::{Value, json};

use crate::database::on_both;
use crate::samples::DAY_MS;
use crate::world::World;

impl World {
    /// A worker asked this queue for work, or a task was made for it.
    async fn used(&self, id: &str, by_worker: bool) {
        let (id, now): (PoolId, _) = (id.parse().unwrap(), self.now());
        self.write(move |tx| store::task_queues::note_used(tx, &id, now, by_worker))
            .await;
    }

    async fn used_queues(&self) {
        for id in ["pp/ee", "pp/ff", "qq/ee"] {
            self.used(id, true).await;
            self.clock.advance_ms(1_000);
        }
    }
}

fn of(list: &Value, member: &str, name: &str) -> Vec<String> {
    let items = list[member].as_array().unwrap().iter();
    items
        .map(|item| item[name].as_str().unwrap().to_owned())
        .collect()
}

on_both!(a_task_queue_is_known_while_it_is_used, |world| {
    let missing = world.get("queue:/task-queues/pp%2Fee").await;
    let text = "Task queue `pp/ee` not found. Are you sure it was created?";
    missing.refused(404, "ResourceNotFound", text);
    world.used("pp/ee", true).await;
    let queue = world.get("queue:/task-queues/pp%2Fee").await.expect(200);
    let expected = json!({"taskQueueId": "pp/ee", "description": "", "stability": "experimental",
        "lastDateActive": "2026-09-21T14:13:20.000Z", "expires": "2026-09-22T14:13:20.000Z"});
    assert_eq!(queue, expected);
    world.clock.advance_ms(DAY_MS + 1);
    assert_eq!(world.get("queue:/task-queues/pp%2Fee").await.status, 404);
    world.used("pp/ee", false).await;
    let queue = world.get("queue:/task-queues/pp%2Fee").await.expect(200);
    assert_eq!(queue["expires"], "2026-09-27T14:13:20.001Z");
    let bad = world.get("queue:/task-queues/pp").await;
    bad.refused_with(400, "InvalidRequestArguments", "taskQueueId");
});

on_both!(task_queues_are_listed_in_pages, |world| {
    world.used_queues().await;
    let page = world.get("queue:/task-queues?limit=2").await.expect(200);
    assert_eq!(of(&page, "taskQueues", "taskQueueId"), ["pp/ee", "pp/ff"]);
    let token = page["continuationToken"].as_str().unwrap();
    let next = format!("queue:/task-queues?limit=2&continuationToken={token}");
    let page = world.get(&next).await.expect(200);
    assert_eq!(of(&page, "taskQueues", "taskQueueId"), ["qq/ee"]);
    assert_eq!(page.get("continuationToken"), None);
    // The key of a list of something else.
    for bad in ["WzFd", "WyJubyBxdWV1ZSJd"] {
        let refused = world
            .get(&format!("queue:/task-queues?continuationToken={bad}"))
            .await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
});

on_both!(worker_types_are_task_queues_by_halves, |world| {
    world.used_queues().await;
    let list = world
        .get("queue:/provisioners/pp/worker-types")
        .await
        .expect(200);
    assert_eq!(of(&list, "workerTypes", "workerType"), ["ee", "ff"]);
    assert_eq!(of(&list, "workerTypes", "taskQueueId"), ["pp/ee", "pp/ff"]);
    assert_eq!(of(&list, "workerTypes", "provisionerId"), ["pp", "pp"]);
    let list = world
        .get("queue:/provisioners/zz/worker-types")
        .await
        .expect(200);
    assert_eq!(list, json!({"workerTypes": []}));
    let one = world
        .get("queue:/provisioners/qq/worker-types/ee")
        .await
        .expect(200);
    let expected = json!({"provisionerId": "qq", "workerType": "ee", "taskQueueId": "qq/ee",
        "description": "", "stability": "experimental",
        "lastDateActive": "2026-09-21T14:13:22.000Z", "expires": "2026-09-22T14:13:22.000Z"});
    assert_eq!(one, expected);
    // The second one is a name that no task queue can have.
    for unknown in ["gg", "G_G"] {
        let missing = world
            .get(&format!("queue:/provisioners/pp/worker-types/{unknown}"))
            .await;
        let text = format!(
            "Worker type `{unknown}` of provisioner `pp` not found. Are you sure it was created?"
        );
        missing.refused(404, "ResourceNotFound", &text);
    }
});

on_both!(provisioners_are_the_first_parts_of_queue_names, |world| {
    world.used_queues().await;
    let page = world.get("queue:/provisioners?limit=1").await.expect(200);
    let expected = json!({"provisionerId": "pp", "description": "", "stability": "experimental",
        "lastDateActive": "2026-09-21T14:13:21.000Z", "expires": "2026-09-22T14:13:21.000Z"});
    assert_eq!(page["provisioners"], json!([expected]));
    let token = page["continuationToken"].as_str().unwrap();
    let next = format!("queue:/provisioners?limit=1&continuationToken={token}");
    let page = world.get(&next).await.expect(200);
    assert_eq!(of(&page, "provisioners", "provisionerId"), ["qq"]);
    assert_eq!(page.get("continuationToken"), None);
    let one = world.get("queue:/provisioners/pp").await.expect(200);
    assert_eq!(one, expected);
    let missing = world.get("queue:/provisioners/zz").await;
    let text = "Provisioner `zz` not found. Are you sure it was created?";
    missing.refused(404, "ResourceNotFound", text);
});
