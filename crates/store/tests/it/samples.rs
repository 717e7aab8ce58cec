//! Sample values, with content in every field.

use domain::Version;
use domain::access::{ClientRecord, RoleRecord};
use domain::error_report::ErrorReport;
use domain::event::{Event, EventBody};
use domain::id::{PoolId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use domain::queue_worker::{QuarantineEntry, QueueWorker, TaskRun};
use domain::time::Timestamp;
use domain::worker::{PreviousSecret, StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Map, Value, json};

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn pool_id(id: &str) -> PoolId {
    id.parse().unwrap()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(crate) fn pool(id: &str, provider: &str) -> Pool {
    let definition = PoolDefinition {
        provider_id: provider.parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: "A \"pool\" of 'workers' – größe".to_owned(),
        config: object(json!({"minCapacity": 0, "scalingRatio": 0.5, "b": {"a": [1, null]}})),
        owner: "ops@example.com".to_owned(),
        email_on_error: true,
    };
    Pool::new(pool_id(id), definition, at(1_000))
}

pub(crate) fn launch_config(pool: &str, id: &str) -> LaunchConfig {
    LaunchConfig {
        pool_id: pool_id(pool),
        id: id.parse().unwrap(),
        archived: false,
        position: 0,
        configuration: object(json!({"image": id, "workerManager": {"maxCapacity": 3}})),
        created: at(5),
        last_modified: at(6),
        version: Version::FIRST,
    }
}

pub(crate) fn worker_key(pool: &str, group: &str, id: &str) -> WorkerKey {
    WorkerKey {
        pool_id: pool_id(pool),
        group: group.parse().unwrap(),
        id: id.parse().unwrap(),
    }
}

pub(crate) fn worker(pool: &str, group: &str, id: &str) -> Worker {
    Worker::from_stored(StoredWorker {
        key: worker_key(pool, group, id),
        provider_id: "aws-1".parse().unwrap(),
        launch_config_id: Some("lc-1".parse().unwrap()),
        state: WorkerState::Running,
        capacity: 2,
        price: None,
        created: at(100),
        expires: at(10_000),
        last_modified: at(200),
        last_checked: at(300),
        terms: Terms {
            terminate_after: Some(9_000),
            worker_config: Some(json!({"deep": {"er": true}})),
            ..Terms::default()
        },
        provider_data: json!({"region": "us-east-1", "n": 3}),
        secret: Some("digest-2".to_owned()),
        previous_secret: Some(PreviousSecret {
            digest: "digest-1".to_owned(),
            until: at(400),
        }),
        version: Version::FIRST,
    })
}

pub(crate) fn error(pool: &str, number: u8, reported: i64) -> ErrorReport {
    ErrorReport {
        pool_id: pool_id(pool),
        // A slugid whose first six bits vary.
        error_id: format!("{}AAAAAAAQACAAAAAAAAAAA", char::from(b'A' + number))
            .parse()
            .unwrap(),
        reported: at(reported),
        kind: "creation-error".to_owned(),
        title: "Instance Creation Error".to_owned(),
        description: "no luck".to_owned(),
        extra: object(json!({"code": "Throttled"})),
        launch_config_id: None,
    }
}

pub(crate) fn queue_worker(pool: &str, group: &str, id: &str) -> QueueWorker {
    QueueWorker {
        key: worker_key(pool, group, id),
        first_claim: at(1),
        last_date_active: Some(at(2)),
        last_task_ended: None,
        expires: at(1_000),
        recent_tasks: vec![TaskRun {
            task_id: "AAAAAAAAQAAAAAAAAAAAAA".to_owned(),
            run_id: 3,
        }],
        quarantine_until: None,
        quarantine_details: vec![QuarantineEntry {
            updated_at: at(1).to_string(),
            client_id: "admin".to_owned(),
            quarantine_until: at(2).to_string(),
            quarantine_info: "odd \"noises\"".to_owned(),
        }],
    }
}

pub(crate) fn client(id: &str) -> ClientRecord {
    ClientRecord {
        client_id: id.parse().unwrap(),
        description: "someone".to_owned(),
        scopes: vec!["queue:*".to_owned(), "a \"b\"".to_owned()],
        sealed_access_token: "sealed".to_owned(),
        expires: at(1_000),
        created: at(1),
        last_modified: at(2),
        last_date_used: at(3),
        last_rotated: at(4),
        delete_on_expiration: true,
        disabled: false,
        version: Version::FIRST,
    }
}

pub(crate) fn role(id: &str) -> RoleRecord {
    RoleRecord {
        role_id: id.parse().unwrap(),
        description: "something".to_owned(),
        scopes: vec!["assume:other".to_owned()],
        created: at(1),
        last_modified: at(2),
        version: Version::FIRST,
    }
}

pub(crate) fn event(id: &str, pool: &str) -> Event {
    Event {
        id: id.to_owned(),
        created: at(7),
        body: EventBody::PoolCreated {
            pool_id: pool_id(pool),
            provider_id: "aws-1".parse().unwrap(),
        },
    }
}

/// Makes a worker another one, whatever moves it can make.
pub(crate) fn edit(worker: &mut Worker, change: impl FnOnce(&mut StoredWorker)) {
    let mut stored = worker.clone().into_stored();
    change(&mut stored);
    *worker = Worker::from_stored(stored);
}
