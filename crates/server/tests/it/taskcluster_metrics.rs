//! Metrics under Taskcluster's names have the numbers of our own.

use std::collections::BTreeSet;

use serde_json::json;
use server::background::driver::BackgroundTask as _;
use server::background::{EventPublisher, Measure, MeasureLimits, Outcomes, TaskclusterMeasure};
use server::telemetry::catalogue::{METRICS, TASKCLUSTER_METRICS};

use crate::database::Database;
use crate::fleet_world::{Fleet, POOL, plain_pool};

async fn with_names() -> Fleet {
    Fleet::open_with(Database::sqlite(), |config| {
        config.metrics.taskcluster_names = true;
    })
    .await
}

async fn measure(fleet: &Fleet, task: &mut TaskclusterMeasure) -> String {
    // Outcomes are read from published events.
    let mut publisher = EventPublisher(fleet.app.clone());
    publisher.activate().await.unwrap();
    Outcomes(fleet.app.clone()).activate().await.unwrap();
    Measure(fleet.app.clone()).activate().await.unwrap();
    task.activate().await.unwrap();
    fleet.app.telemetry.render()
}

/// The sum of the series of this name that have all these parts.
fn sum(text: &str, name: &str, parts: &[&str]) -> f64 {
    let lines = text.lines().filter(|line| {
        let is_named = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']));
        is_named && parts.iter().all(|part| line.contains(part))
    });
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

fn assert_same(found: f64, expected: f64, name: &str) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{name}: {found} is not {expected}"
    );
}

#[tokio::test]
async fn the_numbers_under_taskclusters_names_are_ours() {
    let fleet = with_names().await;
    let mut task = TaskclusterMeasure::new(fleet.app.clone());
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 6).await;
    fleet.provision().await;
    let text = measure(&fleet, &mut task).await;
    let of_pool = format!("workerPoolId=\"{POOL}\"");
    let requested = sum(&text, "fleetwright_workers", &["requested"]);
    assert_same(requested, 4.0, "requested");
    for (name, expected) in [
        ("worker_manager_existing_capacity", requested),
        ("worker_manager_requested_capacity", requested),
        ("worker_manager_stopping_capacity", 0.0),
        ("worker_manager_pending_tasks", 6.0),
        ("worker_manager_claimed_tasks", 0.0),
        ("worker_manager_total_idle_capacity", 4.0),
        ("worker_manager_adjusted_pending_tasks", 2.0),
        ("worker_manager_desired_capacity", 4.0),
        ("worker_manager_worker_pool_scan_seen_workers", 4.0),
    ] {
        assert_same(sum(&text, name, &[&of_pool, "providerId="]), expected, name);
    }
    let series = sum(&text, "worker_manager_existing_capacity", &["workerGroup="]);
    assert_same(series, requested, "series without a worker group");
    let decisions = "worker_manager_worker_pool_provision_seconds_count";
    assert!(sum(&text, decisions, &[&of_pool]) >= 1.0, "{text}");
    claim_and_compare(&fleet, &mut task, &of_pool).await;
}

/// Workers register and claim, and one run completes.
async fn claim_and_compare(fleet: &Fleet, task: &mut TaskclusterMeasure, of_pool: &str) {
    let running = fleet.register_all(POOL).await;
    let mut claims = Vec::new();
    for worker in &running[..3] {
        claims.push(fleet.claim_with(worker).await);
    }
    fleet.complete(&claims[0]).await;
    let text = measure(fleet, task).await;
    let (provisioner, worker_type) = POOL.split_once('/').unwrap();
    let queue = [
        format!("provisionerId=\"{provisioner}\""),
        format!("workerType=\"{worker_type}\""),
    ];
    let queue = [queue[0].as_str(), queue[1].as_str()];
    let now = fleet.now();
    let demand = fleet.read(move |tx| store::demand::total(tx, now)).await;
    let completed = sum(&text, "fleetwright_task_runs_total", &["completed"]);
    assert_same(completed, 1.0, "completed");
    for (name, expected) in [
        ("queue_pending_tasks", demand.pending),
        ("queue_claimed_tasks", demand.claimed),
        ("queue_running_workers", demand.claimed),
    ] {
        assert_same(
            sum(&text, name, &queue),
            f64::from(u32::try_from(expected).unwrap()),
            name,
        );
    }
    assert_same(
        sum(&text, "queue_completed_tasks", &queue),
        completed,
        "queue_completed_tasks",
    );
    let known = sum(&text, "queue_workers_total", &queue);
    let parts = [
        "queue_running_workers",
        "queue_idle_workers",
        "queue_quarantined_workers",
    ];
    let parts: f64 = parts.iter().map(|name| sum(&text, name, &queue)).sum();
    assert_same(parts, known, "workers of the queue");
    let existing = sum(
        &text,
        "worker_manager_existing_capacity",
        &[of_pool, "workerGroup="],
    );
    let ours = sum(&text, "fleetwright_workers", &["running"]);
    assert_same(existing, ours, "existing");
}

#[tokio::test]
async fn series_without_a_value_become_zero() {
    let fleet = with_names().await;
    let mut task = TaskclusterMeasure::new(fleet.app.clone());
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.tasks(POOL, 1).await;
    fleet.provision().await;
    let name = "worker_manager_existing_capacity";
    assert_same(sum(&measure(&fleet, &mut task).await, name, &[]), 1.0, name);
    let [worker] = fleet.workers(POOL).await.try_into().unwrap();
    fleet.remove(&worker.key).await;
    let text = measure(&fleet, &mut task).await;
    assert_same(sum(&text, name, &[]), 0.0, name);
    assert!(text.contains(name), "{text}");
}

#[tokio::test]
async fn without_the_option_there_are_no_further_names() {
    let fleet = Fleet::open(Database::sqlite()).await;
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.tasks(POOL, 1).await;
    fleet.provision().await;
    Measure(fleet.app.clone()).activate().await.unwrap();
    let text = fleet.app.telemetry.render();
    for metric in TASKCLUSTER_METRICS {
        assert!(
            !text.contains(&format!("{} ", metric.name)),
            "{}",
            metric.name
        );
        assert!(
            !text.contains(&format!("{}{{", metric.name)),
            "{}",
            metric.name
        );
    }
    assert!(!text.contains("workerGroup"), "{text}");
}

#[tokio::test]
async fn pools_and_queues_are_read_in_pages_up_to_a_limit() {
    for count in [0_u32, 1, 2, 3, 4, 5] {
        let fleet = with_names().await;
        let mut task = TaskclusterMeasure::new(fleet.app.clone());
        for number in 0..count {
            let pool = format!("many/pool-{number:02}");
            fleet.make_pool(&pool, plain_pool(1)).await;
            fleet.tasks(&pool, 1).await;
        }
        let limits = MeasureLimits { page: 2, pages: 20 };
        task.with_limits(limits).await.unwrap();
        let text = fleet.app.telemetry.render();
        let n_pending = sum(&text, "worker_manager_pending_tasks", &[]);
        assert_same(n_pending, f64::from(count), "pools");
        let n_pending = sum(&text, "queue_pending_tasks", &[]);
        assert_same(n_pending, f64::from(count), "queues");
    }
}

#[test]
fn all_names_of_taskcluster_are_there() {
    let known: BTreeSet<&str> = METRICS
        .iter()
        .chain(TASKCLUSTER_METRICS)
        .map(|metric| metric.name)
        .collect();
    let theirs = json!([
        "worker_manager_adjusted_pending_tasks",
        "worker_manager_claimed_tasks",
        "worker_manager_desired_capacity",
        "worker_manager_existing_capacity",
        "worker_manager_pending_tasks",
        "worker_manager_requested_capacity",
        "worker_manager_stopping_capacity",
        "worker_manager_total_idle_capacity",
        "worker_manager_worker_lifetime_seconds",
        "worker_manager_worker_pool_provision_seconds",
        "worker_manager_worker_pool_scan_errors",
        "worker_manager_worker_pool_scan_seen_workers",
        "worker_manager_worker_provision_seconds",
        "worker_manager_worker_registration_failures_total",
        "worker_manager_worker_registration_seconds",
        "worker_manager_worker_startup_seconds",
        "worker_manager_workers_to_terminate",
        "queue_claimed_tasks",
        "queue_completed_tasks",
        "queue_exception_tasks",
        "queue_failed_tasks",
        "queue_idle_workers",
        "queue_pending_tasks",
        "queue_quarantined_workers",
        "queue_running_workers",
        "queue_workers_total",
        "http_requests_total",
        "http_request_duration_seconds",
        "iterate_duration_seconds",
    ]);
    for name in theirs.as_array().unwrap() {
        assert!(known.contains(name.as_str().unwrap()), "{name}");
    }
}
