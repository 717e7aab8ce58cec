//! Two processes on one PostgreSQL database do the same work at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::id::LaunchToken;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use server::app::App;
use server::background::ProvisionRounds;
use server::background::driver::BackgroundTask;
use server::start::start_with;

use crate::database::Database;
use crate::fleet_world::{Fleet, MINUTE_MS, REGISTRATION_MS, machine, plain_pool, pool, round};

const POOLS: u32 = 100;
const ROUNDS: u32 = 3;

fn name(number: u32) -> String {
    format!("pp/pool-{number:03}")
}

/// This many tasks are pending in a pool.
fn wanted(number: u32) -> u32 {
    number % 3 + 1
}

/// A second server on the same database, in the same clouds.
pub(crate) async fn second(fleet: &Fleet) -> Arc<App> {
    let random = Random::new(StdRng::seed_from_u64(8));
    let (config, clock) = (fleet.app.config.clone(), Arc::clone(&fleet.clock));
    let started = start_with(config, clock, random, fleet.providers());
    Box::pin(started).await.unwrap()
}

/// Both make their round at once, again and again, until the clouds have answered.
pub(crate) async fn both_at_once(fleet: &Fleet, other: &Arc<App>) {
    for _ in 0..ROUNDS {
        let (ours, mut theirs) = (
            Arc::clone(&fleet.app),
            ProvisionRounds(Arc::clone(&other.engine)),
        );
        let ours = tokio::spawn(async move { round(&ours).await });
        let theirs = tokio::spawn(async move { theirs.activate().await });
        ours.await.unwrap();
        let done = theirs.await.unwrap();
        assert!(done.is_ok() || other.engine.store.is_stopped(), "{done:?}");
    }
    fleet.app.engine.launch_tracker.finish().await;
    other.engine.launch_tracker.finish().await;
}

async fn open() -> Option<(Fleet, Arc<App>)> {
    let fleet = Fleet::open(Database::postgres()?).await;
    let other = second(&fleet).await;
    Some((fleet, other))
}

async fn make_pools(fleet: &Fleet) {
    for number in 0..POOLS {
        fleet.make_pool(&name(number), plain_pool(10)).await;
        fleet.tasks(&name(number), wanted(number)).await;
    }
}

/// A machine for each task, and no launch that a cloud has received twice.
#[track_caller]
fn is_as_wanted(fleet: &Fleet) {
    let mut made: BTreeMap<String, u32> = BTreeMap::new();
    for machine in fleet.machines() {
        *made.entry(machine.key.pool_id.to_string()).or_default() += 1;
        let token: LaunchToken = machine.token.unwrap();
        assert_eq!(fleet.one.fake.n_launch_calls(&token), 1);
    }
    let expected: BTreeMap<_, _> = (0..POOLS)
        .map(|number| (name(number), wanted(number)))
        .collect();
    assert_eq!(made, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_that_decide_on_a_hundred_pools_launch_the_need_once() {
    let Some((fleet, other)) = open().await else {
        return;
    };
    make_pools(&fleet).await;
    both_at_once(&fleet, &other).await;
    is_as_wanted(&fleet);
    other.engine.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_finishes_what_another_left_half_done_when_it_died() {
    let Some((fleet, other)) = open().await else {
        return;
    };
    make_pools(&fleet).await;
    other.engine.store.stop_after(u64::from(POOLS) / 2);
    both_at_once(&fleet, &other).await;
    assert!(other.engine.store.is_stopped());
    // Its decision is found, or retried with one machine at a time until one has started.
    fleet.pass_ms(10 * MINUTE_MS);
    fleet.scan().await;
    for _ in 0..4 {
        fleet.round().await;
        for number in 0..POOLS {
            fleet.register_all(&name(number)).await;
        }
        fleet.pass_ms(2 * MINUTE_MS);
    }
    is_as_wanted(&fleet);
    other.engine.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_that_decide_at_once_keep_a_shared_providers_limit() {
    let Some((fleet, other)) = open().await else {
        return;
    };
    for number in 0..10 {
        fleet
            .make_pool(&name(number), pool("two", 0, 10, &[machine("a")]))
            .await;
        fleet.tasks(&name(number), 1).await;
    }
    both_at_once(&fleet, &other).await;
    assert_eq!(
        fleet.two.fake.n_machines(),
        crate::fleet_world::MAX_MACHINES
    );
    other.engine.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_that_scan_at_once_stop_a_worker_once() {
    let Some((fleet, other)) = open().await else {
        return;
    };
    fleet.make_pool(&name(0), plain_pool(40)).await;
    fleet.tasks(&name(0), 40).await;
    fleet.round().await;
    fleet.news().await;
    for _ in 0..=REGISTRATION_MS / MINUTE_MS {
        fleet.listen_ms(MINUTE_MS);
        other.engine.availability.note_answer(fleet.now());
    }
    let apps = [Arc::clone(&fleet.app), Arc::clone(&other)];
    let scans = apps.map(|app| {
        tokio::spawn(async move {
            let id = "one".parse().unwrap();
            engine::fleet::Scanner::new(Arc::clone(&app.engine), id)
                .scan()
                .await
                .unwrap()
        })
    });
    let mut n_ended = 0;
    for scan in scans {
        n_ended += scan.await.unwrap().unwrap().ended;
    }
    assert_eq!(n_ended, 40);
    assert_eq!(fleet.states(&name(0)).await, "40 stopping");
    assert_eq!(fleet.news().await, ["worker-removed"; 40]);
    other.engine.store.close().await;
}
