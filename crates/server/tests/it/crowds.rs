//! Many concurrent requests for one object: each is answered, and none of them with an internal
//! error.
//!
//! `CROWD=2000 CONNECTIONS=32` makes them larger.

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;
use server::background::QueueReleases;
use server::background::driver::BackgroundTask as _;
use server::config::Config;
use tokio::task::JoinSet;

use crate::ask::Ask;
use crate::database::on_both;
use crate::queue_samples::task_id;
use crate::world::World;

/// Number of concurrent requests.
const AT_ONCE: usize = 50;

fn number(variable: &str, default: u32) -> u32 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |given| given.parse().unwrap())
}

fn size() -> u32 {
    number("CROWD", 300)
}

pub(crate) fn connections(config: &mut Config) {
    config.database.connections = number("CONNECTIONS", 8).try_into().unwrap();
}

/// The number of replies by status.
async fn crowd(asks: impl IntoIterator<Item = Ask>) -> BTreeMap<u16, u32> {
    let mut waiting: VecDeque<Ask> = asks.into_iter().collect();
    let (mut running, mut statuses) = (JoinSet::new(), BTreeMap::new());
    while running.len() < AT_ONCE
        && let Some(ask) = waiting.pop_front()
    {
        running.spawn(ask.send());
    }
    while let Some(answer) = running.join_next().await {
        let answer = answer.unwrap();
        if answer.status != 200 {
            assert!(answer.status < 500, "{}", answer.text);
        }
        *statuses.entry(answer.status).or_default() += 1;
        if let Some(ask) = waiting.pop_front() {
            running.spawn(ask.send());
        }
    }
    statuses
}

async fn pending(world: &World) -> u64 {
    let counts = world.get("queue:/task-queues/pp%2Fee/counts").await;
    counts.expect(200)["pendingTasks"].as_u64().unwrap()
}

/// The number of events of this kind.
async fn n_told(world: &World, kind: &'static str) -> usize {
    let mut n_told = 0;
    loop {
        let placed = world
            .write(|tx| store::events::assign_positions(tx, 1_000))
            .await;
        let found = placed.items.iter().filter(|row| row.topic.ends_with(kind));
        n_told += found.count();
        if !placed.may_have_more(1_000) {
            return n_told;
        }
    }
}

async fn look_again(world: &World) {
    let mut releases = QueueReleases(std::sync::Arc::clone(&world.app.engine));
    for _ in 0..100 {
        releases.activate().await.unwrap();
    }
}

on_both!(parallel a_crowd_of_tasks_that_depend_on_one, connections, |world| {
    let claim = world.running(0, "w").await;
    let changes = json!({"dependencies": [task_id(0)], "taskGroupId": task_id(0)});
    let made = crowd((1..=size()).map(|number| world.create_task(number, changes.clone()))).await;
    assert_eq!(made, [(200, size())].into());
    world.report(&claim, "completed", json!({})).await.expect(200);
    look_again(world).await;
    assert_eq!(pending(world).await, u64::from(size()));
});

on_both!(parallel a_crowd_of_tasks_whose_dependency_ends_meanwhile, connections, |world| {
    let claim = world.running(0, "w").await;
    let changes = json!({"dependencies": [task_id(0)], "taskGroupId": task_id(0)});
    let creating = crowd((1..=size()).map(|number| world.create_task(number, changes.clone())));
    let ending = async {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        world.report(&claim, "completed", json!({})).await.expect(200);
    };
    let (made, ()) = tokio::join!(creating, ending);
    assert_eq!(made, [(200, size())].into());
    look_again(world).await;
    assert_eq!(pending(world).await, u64::from(size()), "some wait for what is over");
});

on_both!(parallel a_crowd_of_tasks_of_one_group, connections, |world| {
    let group = json!({"taskGroupId": task_id(0)});
    let made = crowd((1..=size()).map(|number| world.create_task(number, group.clone()))).await;
    assert_eq!(made, [(200, size())].into());
    // And all of them end at once, while another one waits for them.
    let on: Vec<String> = (1..=size().min(250)).map(task_id).collect();
    world.created(9_999, json!({"dependencies": on, "requires": "all-resolved"})).await;
    let ended = crowd((1..=size()).map(|number| world.about_task(number, "cancel"))).await;
    assert_eq!(ended, [(200, size())].into());
    look_again(world).await;
    assert_eq!(world.state(9_999).await, "pending");
    assert_eq!(n_told(world, "/task-group-resolved").await, 1);
});

on_both!(parallel a_crowd_of_tasks_of_one_queue, connections, |world| {
    let made = crowd((1..=size()).map(|number| world.create_task(number, json!({})))).await;
    assert_eq!(made, [(200, size())].into());
    assert_eq!(pending(world).await, u64::from(size()));
});

on_both!(parallel a_crowd_of_roles, connections, |world| {
    let role = json!({"description": "", "scopes": ["a:b"]});
    let made = crowd((1..=size()).map(|number| {
        world.put(&format!("auth:/roles/r{number}"), role.clone())
    })).await;
    assert_eq!(made, [(200, size())].into());
    let known = world.get("auth:/roles/").await.expect(200);
    assert_eq!(known.as_array().unwrap().len(), size() as usize);
});

on_both!(parallel a_crowd_of_clients_each_of_which_is_known_at_once, connections, |world| {
    let expires = world.now().plus_millis(86_400_000).to_string();
    let client = json!({"description": "", "expires": expires, "scopes": ["a:b"]});
    let made = crowd((1..=size()).map(|number| {
        world.put(&format!("auth:/clients/c{number}"), client.clone())
    })).await;
    assert_eq!(made, [(200, size())].into());
});
