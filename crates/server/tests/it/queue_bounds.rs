//! How much the queue does for one request or in one transaction, around each limit.

use std::sync::Arc;

use domain::id::{PoolId, TaskGroupId, TaskId};
use domain::task::{Requires, Task, TaskDefinition};
use engine::queue::worker_gone_with;
use serde_json::json;
use server::tasks::QueueReleases;
use server::tasks::driver::Task as _;
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::{new_task, stop_time, stored_task, task_id};
use crate::samples::key;
use crate::world::World;

fn id(number: usize) -> TaskId {
    task_id(u32::try_from(number).unwrap()).parse().unwrap()
}

/// The definition of a task, to be changed.
fn of(task: &mut Task) -> &mut TaskDefinition {
    Arc::make_mut(&mut task.definition)
}

/// Writes tasks; those that wait for others are taken note of.
async fn store_tasks(world: &World, tasks: Vec<Task>) {
    world
        .write(move |tx| {
            for task in &tasks {
                assert!(store::tasks::insert(tx, task)?);
                store::dependencies::require(tx, task)?;
            }
            Ok(())
        })
        .await;
}

/// Unscheduled tasks with these numbers, like this one.
fn copies(template: &Task, numbers: std::ops::Range<usize>) -> Vec<Task> {
    let copy = |number| {
        let mut task = template.clone();
        task.id = id(number);
        of(&mut task).task_group_id = task.id.as_str().parse().unwrap();
        task
    };
    numbers.map(copy).collect()
}

on_both!(
    those_who_wait_together_get_so_many_tasks_in_one_transaction,
    |world| {
        const AT_ONCE: usize = 128;
        /// Together they want more.
        const WORKERS: usize = 5;
        let mut first = 0;
        for count in sizes_around("engine::queue::claiming::CLAIMS_AT_ONCE", AT_ONCE) {
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
            let mut waiting = stored_task(world).schedule(world.now()).unwrap().task;
            of(&mut waiting).task_queue_id = queue.clone();
            let silent = count.saturating_sub(1);
            store_tasks(world, copies(&waiting, first..first + silent)).await;
            world.app.engine.store.take_counts();
            if count > 0 {
                // Only this one rings.
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
        if world.app.engine.queue.broker.waiting(queue) == count {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} wait", world.app.engine.queue.broker.waiting(queue));
}

on_both!(
    the_end_of_a_task_releases_so_many_at_once_and_the_rest_in_batches,
    |world| {
        const AT_ONCE: usize = 100;
        let (mut first, mut n_pending) = (0, 0);
        for count in sizes_around("engine::queue::moves::RELEASED_AT_ONCE", AT_ONCE) {
            world
                .created(u32::try_from(first).unwrap(), json!({}))
                .await;
            let mut waiting = stored_task(world);
            of(&mut waiting).dependencies = vec![id(first)];
            of(&mut waiting).requires = Requires::AllResolved;
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
            let n_looks = match count < AT_ONCE {
                true => 0,
                false => (left / AT_ONCE + 1) as u64,
            };
            // On PostgreSQL others may have been at work at the same time.
            let is_looked_for_rivals = n_looks == 0 && counts.transactions("task_look_again") == 1;
            assert!(
                is_looked_for_rivals || counts.transactions("task_look_again") == n_looks,
                "{counts:?}"
            );
            n_pending += count;
            let counts = world.get("queue:/task-queues/pp%2Fee/counts");
            assert_eq!(counts.await.expect(200)["pendingTasks"], n_pending);
            first += count + 1;
        }
    }
);

on_both!(
    what_is_left_to_wait_for_is_counted_up_to_a_limit_and_few_are_watched,
    |world| {
        const MANY: usize = 256;
        let mut first = 0;
        for count in sizes_around("engine::queue::moves::MANY", MANY) {
            // One task ends, `count` others of its group stay, and one more task depends on all of them.
            let group: TaskGroupId = id(first).as_str().parse().unwrap();
            let ending = u32::try_from(first).unwrap();
            world.created(ending, json!({})).await;
            let others = copies(&stored_task(world), first + 1..first + 1 + count);
            let others = others.into_iter().map(|mut task| {
                of(&mut task).task_group_id = group.clone();
                task
            });
            let others: Vec<Task> = others.collect();
            let mut waiting = stored_task(world);
            let waiting_id = id(first + count + 1);
            waiting.id = waiting_id.clone();
            let ids = others.iter().map(|task| task.id.clone());
            of(&mut waiting).task_group_id = waiting_id.as_str().parse().unwrap();
            of(&mut waiting).dependencies = ids.chain([id(first)]).collect();
            of(&mut waiting).requires = Requires::AllResolved;
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
    }
);

on_both!(a_request_asks_for_so_many_tasks_at_most, |world| {
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

on_both!(a_worker_that_is_gone_loses_so_many_runs_at_once, |world| {
    const LIMIT: usize = 5;
    let mut first = 0;
    for count in sizes_around("engine::queue::worker_gone::MAX_CLAIMS", LIMIT) {
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
            let gone = world.change(move |change| worker_gone_with(change, &worker, max));
            let n_lost = left.min(LIMIT);
            assert_eq!(gone.await, n_lost as u64);
            left -= n_lost;
            // What is left is claimed as before, until its claim runs out.
            let counts = world.get("queue:/task-queues/pp%2Fee/counts");
            assert_eq!(counts.await.expect(200)["claimedTasks"], left);
            if n_lost == 0 {
                break;
            }
        }
    }
});
