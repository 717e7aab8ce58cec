//! Limits of one request and of one transaction of the queue.

use std::sync::Arc;

use domain::id::{PoolId, TaskGroupId, TaskId};
use domain::task::{Requires, Task};
use engine::queue::release_worker_claims_up_to;
use serde_json::json;
use server::background::QueueReleases;
use server::background::driver::BackgroundTask as _;
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::{new_task, redefined, stop_time, stored_task, task_id, with_id};
use crate::samples::key;
use crate::world::World;

fn id(number: usize) -> TaskId {
    task_id(u32::try_from(number).unwrap()).parse().unwrap()
}

/// Writes tasks, with their dependencies.
async fn store_tasks(world: &World, tasks: Vec<Task>) {
    world
        .write(move |tx| {
            for task in &tasks {
                assert!(store::tasks::insert(tx, task, task.definition.created)?);
                store::dependencies::require(tx, task)?;
            }
            Ok(())
        })
        .await;
}

/// Unscheduled tasks with these numbers, like this one.
fn copies(template: &Task, numbers: std::ops::Range<usize>) -> Vec<Task> {
    let copy = |number| {
        let id = id(number);
        let group = id.as_str().parse().unwrap();
        redefined(with_id(template, id), |it| it.task_group_id = group)
    };
    numbers.map(copy).collect()
}

on_both!(
    a_transaction_serves_a_bounded_number_of_waiting_workers,
    |world| {
        const AT_ONCE: usize = 128;
        /// Together they want more.
        const WORKERS: usize = 5;
        let mut first = 0;
        for count in sizes_around("engine::queue::claim_work::CLAIMS_AT_ONCE", AT_ONCE) {
            // With stopped time no sweep begins by itself.
            let time = stop_time();
            let queue: PoolId = format!("pp/of-{count}").parse().unwrap();
            let asking: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let body =
                        json!({"workerGroup": "g", "workerId": format!("w{worker}"), "tasks": 32});
                    let path = format!("queue:/claim-work/pp%2Fof-{count}");
                    tokio::spawn(world.post(&path, body).send())
                })
                .collect();
            until_waiting(world, &queue, WORKERS).await;
            let waiting = stored_task(world).schedule(world.now()).unwrap().task;
            let waiting = redefined(waiting, |it| it.task_queue_id = queue.clone());
            let silent = count.saturating_sub(1);
            store_tasks(world, copies(&waiting, first..first + silent)).await;
            world.app.engine.store.take_counts();
            if count > 0 {
                // Only this one wakes the workers.
                let path = format!("queue:/task/{}", id(first + silent));
                let task = new_task(world, json!({ "taskQueueId": queue.as_str() }));
                world.put(&path, task).await.expect(200);
            }
            let n_served = WORKERS.min(count);
            let mut n_got = 0;
            if n_served == WORKERS {
                for asking in asking {
                    let reply = asking.await.unwrap().expect(200);
                    n_got += reply["tasks"].as_array().unwrap().len();
                }
                assert_eq!(n_got, count.min(AT_ONCE));
            } else {
                until_waiting(world, &queue, WORKERS - n_served).await;
                asking.iter().for_each(tokio::task::JoinHandle::abort);
                n_got = n_served;
            }
            let counts = world.app.engine.store.take_counts();
            assert_eq!(counts.statements("task_take"), n_got as u64);
            assert_eq!(counts.transactions("claim_work"), u64::from(count > 0));
            // The other tasks still wait.
            let left = world.get(&format!("queue:/task-queues/pp%2Fof-{count}/counts"));
            assert_eq!(left.await.expect(200)["pendingTasks"], count - n_got);
            first += count;
            time.resume();
        }
    }
);

async fn until_waiting(world: &World, queue: &PoolId, count: usize) {
    const LIMIT: usize = 50_000_000;
    for _ in 0..LIMIT {
        if world.app.engine.queue.dispatcher.n_waiting(queue) == count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!(
        "{} wait",
        world.app.engine.queue.dispatcher.n_waiting(queue)
    );
}

on_both!(
    the_end_of_a_task_releases_its_dependents_in_batches,
    |world| {
        const AT_ONCE: usize = 100;
        let (mut first, mut n_pending) = (0, 0);
        for count in sizes_around("engine::queue::transitions::RELEASE_BATCH", AT_ONCE) {
            world
                .created(u32::try_from(first).unwrap(), json!({}))
                .await;
            let waiting = redefined(stored_task(world), |it| {
                it.dependencies = vec![id(first)];
                it.requires = Requires::AllResolved;
            });
            let waiting = copies(&waiting, first + 1..first + 1 + count);
            store_tasks(world, waiting).await;
            let cancelling = world.about_task(u32::try_from(first).unwrap(), "cancel");
            let (_, counts) = world.counted(async { cancelling.await.expect(200) }).await;
            let n_released = count.min(AT_ONCE);
            assert_eq!(
                counts.statements("task_dependency_release"),
                n_released as u64
            );
            let mut task = QueueReleases(Arc::clone(&world.app.engine));
            let (_, counts) = world.counted(task.activate()).await;
            let left = count - n_released;
            assert_eq!(counts.statements("task_dependency_release"), left as u64);
            // A full batch may not be the last one, so the server looks again.
            let n_looks = if count < AT_ONCE {
                0
            } else {
                (left / AT_ONCE + 1) as u64
            };
            // On PostgreSQL others may have been at work at the same time.
            let is_looked_for_rivals =
                n_looks == 0 && counts.transactions("dependents_release") == 1;
            assert!(
                is_looked_for_rivals || counts.transactions("dependents_release") == n_looks,
                "{counts:?}"
            );
            n_pending += count;
            let counts = world.get("queue:/task-queues/pp%2Fee/counts");
            assert_eq!(counts.await.expect(200)["pendingTasks"], n_pending);
            first += count + 1;
        }
    }
);

on_both!(remaining_dependencies_are_counted_up_to_a_limit, |world| {
    const MANY: usize = 256;
    let mut first = 0;
    for count in sizes_around("engine::queue::transitions::COUNT_LIMIT", MANY) {
        // One task ends, `count` others of its group stay, and one more task depends on all of
        // them.
        let group: TaskGroupId = id(first).as_str().parse().unwrap();
        let ending = u32::try_from(first).unwrap();
        world.created(ending, json!({})).await;
        let others = copies(&stored_task(world), first + 1..first + 1 + count);
        let others = others
            .into_iter()
            .map(|task| redefined(task, |it| it.task_group_id = group.clone()));
        let others: Vec<Task> = others.collect();
        let waiting_id = id(first + count + 1);
        let ids = others.iter().map(|task| task.id.clone());
        let waiting = redefined(with_id(&stored_task(world), waiting_id.clone()), |it| {
            it.task_group_id = waiting_id.as_str().parse().unwrap();
            it.dependencies = ids.chain([id(first)]).collect();
            it.requires = Requires::AllResolved;
        });
        let waiting_number = u32::try_from(first + count + 1).unwrap();
        store_tasks(world, others).await;
        store_tasks(world, vec![waiting]).await;
        let cancelling = world.about_task(ending, "cancel");
        let (_, counts) = world.counted(async { cancelling.await.expect(200) }).await;
        let counted = count.min(MANY) as u64;
        assert_eq!(counts.rows("task_open_dependencies"), counted);
        assert_eq!(counts.rows("task_group_active"), counted);
        // With few tasks left, the transaction writes a row that the others write, too.
        let is_watched = count > 0 && count < MANY;
        assert_eq!(counts.statements("task_touch"), u64::from(is_watched));
        assert_eq!(
            counts.statements("task_group_touch"),
            u64::from(count < MANY)
        );
        let state = if count == 0 { "pending" } else { "unscheduled" };
        assert_eq!(world.state(waiting_number).await, state);
        first += count + 2;
    }
});

on_both!(a_request_names_a_bounded_number_of_tasks, |world| {
    const LIMIT: usize = 10_000;
    world.created(1, json!({})).await;
    for count in sizes_around("server::api::queue::tasks::MAX_TASK_IDS", LIMIT) {
        // The one that exists comes last.
        let mut ids = vec![id(2); count.saturating_sub(1)];
        ids.extend([id(1)].into_iter().take(count));
        let ids: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let asked = world.post("queue:/tasks/status", json!({ "taskIds": ids }));
        if count > LIMIT {
            let text = "`taskIds` may name at most 10000 tasks";
            asked.await.refused(400, "InputError", text);
            continue;
        }
        let found = asked.await.expect(200);
        let found = found["statuses"].as_array().unwrap();
        assert_eq!(found.len(), count.min(1), "of {count}");
    }
});

on_both!(a_stopped_worker_loses_its_runs_in_batches, |world| {
    const LIMIT: usize = 5;
    let mut first = 0;
    for count in sizes_around("engine::queue::worker_claims::MAX_CLAIMS", LIMIT) {
        let (now, worker) = (world.now(), key("pp/ee", "g", "w"));
        let pending = stored_task(world).schedule(now).unwrap().task;
        let until = now.plus_seconds(1_200);
        let claimed = pending
            .claim(0, &worker.group, &worker.id, now, until)
            .unwrap();
        store_tasks(world, copies(&claimed.task, first..first + count)).await;
        first += count;
        let mut left = count;
        loop {
            let (worker, max) = (worker.clone(), u32::try_from(LIMIT).unwrap());
            let gone =
                world.change(move |change| release_worker_claims_up_to(change, &worker, max));
            let n_lost = left.min(LIMIT);
            assert_eq!(gone.await, n_lost as u64);
            left -= n_lost;
            // The rest keeps its claims until they expire.
            let counts = world.get("queue:/task-queues/pp%2Fee/counts");
            assert_eq!(counts.await.expect(200)["claimedTasks"], left);
            if n_lost == 0 {
                break;
            }
        }
    }
});
