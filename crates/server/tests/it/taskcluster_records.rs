//! Log records in the form of Taskcluster's services have the fields that it documents.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use server::background::TaskclusterMeasure;
use server::background::driver::BackgroundTask as _;
use server::config::LogFormat;

use crate::database::Database;
use crate::fleet_world::{Fleet, POOL, plain_pool};

/// Their types, and the fields beside `v`.
const FIELDS: [(&str, &str); 12] = [
    ("audit-event", "service entity entityId clientId action"),
    (
        "worker-requested",
        "workerPoolId providerId workerId workerGroup terminateAfter",
    ),
    (
        "worker-running",
        "workerPoolId providerId workerId registrationDuration",
    ),
    (
        "worker-stopped",
        "workerPoolId providerId workerId workerAge runningDuration",
    ),
    (
        "worker-removed",
        "workerPoolId providerId workerId reason workerAge runningDuration",
    ),
    (
        "worker-error",
        "workerPoolId errorId kind title description",
    ),
    (
        "worker-pool-provisioned",
        "workerPoolId providerId duration",
    ),
    (
        "simple-estimate",
        "workerPoolId pendingTasks minCapacity maxCapacity scalingRatio totalIdleCapacity \
         adjustedPendingTasks existingCapacity desiredCapacity requestedCapacity stoppingCapacity",
    ),
    ("scan-seen", "providerId seen total"),
    (
        "launch-config-selector-debug",
        "workerPoolId weights remainingCapacity",
    ),
    (
        "registration-error-warning",
        "message error workerPoolId providerId workerId",
    ),
    (
        "monitor.apiMethod",
        "name apiVersion public resource method sourceIp duration statusCode",
    ),
];

/// The fields of the records, by their type.
fn records(fleet: &Fleet) -> BTreeMap<String, Vec<Value>> {
    let mut records = BTreeMap::<String, Vec<Value>>::new();
    for line in fleet.log.lines("record.fields=") {
        let (head, fields) = line.split_once("record.fields=").unwrap();
        let (_, kind) = head.split_once("record.kind=\"").unwrap();
        let (kind, _) = kind.split_once('"').unwrap();
        let fields = serde_json::from_str(fields).unwrap();
        records.entry(kind.to_owned()).or_default().push(fields);
    }
    records
}

async fn live(fleet: &Fleet) {
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.tasks(POOL, 2).await;
    fleet.provision().await;
    let keys = fleet.workers_in(POOL, "requested").await;
    let again = fleet.registration(&keys[0]);
    let running = fleet.register(&keys[0]).await;
    // The same proof once more is refused.
    let refused = again.await;
    assert!(refused.status >= 400, "{}", refused.text);
    let report = serde_json::json!({"kind": "k", "title": "t", "description": "d", "extra": {},
        "workerGroup": running.key.group.as_str(), "workerId": running.key.id.as_str()});
    let path = format!("/worker-pool-errors/{}", POOL.replace('/', "%2F"));
    fleet.post(&path, report).by(&running.who).await.expect(200);
    let mut measure = TaskclusterMeasure::new(fleet.app.clone());
    measure.activate().await.unwrap();
    fleet.remove(&running.key).await;
    fleet.end().await;
    fleet.scan().await;
}

#[tokio::test]
async fn the_records_of_a_worker_and_its_pool_have_the_fields_of_taskcluster() {
    let fleet = Fleet::open_with(Database::sqlite(), |config| {
        config.log.format = LogFormat::Taskcluster;
    })
    .await;
    live(&fleet).await;
    let records = records(&fleet);
    let known: BTreeSet<&str> = FIELDS.iter().map(|(kind, _)| *kind).collect();
    for kind in records.keys() {
        assert!(known.contains(kind.as_str()), "{kind}");
    }
    for (kind, fields) in FIELDS {
        let expected: BTreeSet<&str> = fields.split(' ').collect();
        let found = records.get(kind).unwrap_or_else(|| panic!("no {kind}"));
        for record in found {
            let fields = record.as_object().unwrap().keys().map(String::as_str);
            assert_eq!(
                fields.collect::<BTreeSet<_>>(),
                expected,
                "{kind}: {record}"
            );
        }
    }
    assert_eq!(records["worker-requested"].len(), 2);
    assert_eq!(records["worker-running"].len(), 1);
    let weights = &records["launch-config-selector-debug"][0]["weights"];
    assert_eq!(weights.as_object().unwrap().len(), 1, "{weights}");
    let seen = &records["scan-seen"][0];
    assert_eq!(seen["seen"][POOL], seen["total"], "{seen}");
    assert!(fleet.app.telemetry.render().contains("fleetwright_"));
    let names = "worker_manager_desired_capacity{";
    assert!(!fleet.app.telemetry.render().contains(names));
}

#[tokio::test]
async fn other_formats_have_no_such_records() {
    let fleet = Fleet::open(Database::sqlite()).await;
    live(&fleet).await;
    assert_eq!(records(&fleet), BTreeMap::new());
}
