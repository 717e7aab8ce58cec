//! Fleet-wide lists: the workers of all pools, and the audit log.

use domain::audit::{AuditEntry, EntityType};
use domain::queue_worker::QueueWorker;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use domain::worker::{Advice, StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::authorization::{Case, case, case_with};
use crate::database::{on_both, on_sqlite_first};
use crate::queue_samples::task_id;
use crate::samples::{key, static_pool, worker};
use crate::world::World;

const LIST: &str = "fleetwright:/workers";

pub(crate) fn cases() -> Vec<Case> {
    let name = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w"});
    let named = json!({"workers": [name], "reason": "r"});
    let mut quarantine = named.clone();
    quarantine["quarantineUntil"] = json!("2026-10-01T00:00:00.000Z");
    vec![
        case("listAllWorkers", LIST, &["fleetwright:list-workers"]),
        case_with(
            "endWorkers",
            "fleetwright:/workers/end",
            named,
            &["fleetwright:end-workers"],
        ),
        case_with(
            "quarantineWorkers",
            "fleetwright:/workers/quarantine",
            quarantine,
            &["fleetwright:quarantine-workers"],
        ),
        case(
            "listAudit",
            "fleetwright:/audit",
            &["fleetwright:read-audit"],
        ),
        case(
            "readStartup",
            "fleetwright:/startup",
            &["fleetwright:read-startup"],
        ),
        case(
            "listErrorCauses",
            "fleetwright:/error-causes",
            &["fleetwright:list-error-causes"],
        ),
        case(
            "listProviderStates",
            "fleetwright:/providers",
            &["fleetwright:list-provider-states"],
        ),
        case(
            "listProcesses",
            "fleetwright:/processes",
            &["fleetwright:list-processes"],
        ),
    ]
}

/// A worker that was made so many seconds after the start.
pub(crate) fn running(pool: &str, group: &str, id: &str, age: i64) -> StoredWorker {
    let fresh = worker(pool, group, id).into_stored();
    StoredWorker {
        state: WorkerState::Running,
        created: fresh.created.plus_seconds(age),
        ..fresh
    }
}

/// A worker in each state, and one for each thing that a running worker may do.
async fn populate(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let advice = Advice {
        terminate: true,
        reason: "over capacity".to_owned(),
        decided_at: 0,
    };
    let leaving = Terms {
        advice: Some(advice),
        ..Terms::default()
    };
    let workers = [
        running("pp/ee", "g", "busy", 1),
        running("pp/ff", "h", "idle", 2),
        running("pp/ee", "g", "quarantined", 3),
        StoredWorker {
            terms: leaving,
            launch_config_id: Some("lc-1".parse().unwrap()),
            price: Some(0.25),
            ..running("pp/ff", "g", "draining", 4)
        },
        running("pp/ee", "g", "silent_one", 5),
        StoredWorker {
            state: WorkerState::Requested,
            provider_id: "aws".parse().unwrap(),
            ..running("pp/ff", "g", "requested", 6)
        },
        StoredWorker {
            state: WorkerState::Stopped,
            ..running("pp/ee", "g", "stopped", 7)
        },
    ];
    for worker in workers {
        world.insert(Worker::from_stored(worker)).await;
    }
    let named = json!({"metadata": {"name": "a build", "description": "d",
        "owner": "me@example.com", "source": "https://example.com"}});
    world.created(1, named).await;
    assert_eq!(world.claim("busy", 1).await.len(), 1);
    // Long enough for the others to be silent; one of them has asked meanwhile.
    for _ in 0..10 {
        world.clock.advance_ms(MINUTE_MS);
        world.app.engine.availability.note_answer(world.now());
    }
    let now = world.now();
    let seen = |pool: &str, group: &str, id: &str| QueueWorker {
        last_date_active: Some(now.plus_millis(-MINUTE_MS)),
        ..QueueWorker::new(key(pool, group, id), now, now.plus_millis(DAY_MS))
    };
    let mut quarantined = seen("pp/ee", "g", "quarantined");
    quarantined.quarantine(now.plus_millis(DAY_MS), "me", None, now);
    for row in [seen("pp/ff", "h", "idle"), quarantined] {
        world
            .write(move |tx| store::queue_workers::upsert(tx, &row))
            .await;
    }
}

fn ids(listed: &Value, list: &str, id: &str) -> Vec<String> {
    let rows = listed[list].as_array().unwrap().iter();
    rows.map(|row| row[id].as_str().unwrap().to_owned())
        .collect()
}

/// The ids of a list that is read in pages of this many, and the number of pages.
async fn paged(world: &World, path: &str, limit: usize, names: (&str, &str)) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), String::new());
    let separator = if path.contains('?') { '&' } else { '?' };
    loop {
        let page = format!("{path}{separator}limit={limit}{token}");
        let page = world.get(&page).await.expect(200);
        let more = ids(&page, names.0, names.1);
        assert!(more.len() <= limit);
        found.extend(more);
        let Some(next) = page["continuationToken"].as_str() else {
            return found;
        };
        token = format!("&continuationToken={next}");
    }
}

on_both!(
    the_workers_of_all_pools_are_filtered_by_what_they_are_and_do,
    |world| {
        populate(world).await;
        for (query, expected) in [
            ("", "requested silent_one draining quarantined idle busy"),
            ("?state=stopped", "stopped"),
            (
                "?state=running",
                "silent_one draining quarantined idle busy",
            ),
            ("?state=requested", "requested"),
            ("?workerPoolId=pp%2Fff", "requested draining idle"),
            ("?workerPoolId=pp%2Fee&state=stopped", "stopped"),
            ("?workerPoolId=pp%2Fnosuch", ""),
            ("?providerId=aws", "requested"),
            ("?launchConfigId=lc-1", "draining"),
            ("?presence=busy", "busy"),
            ("?presence=idle", "idle"),
            ("?presence=quarantined", "quarantined"),
            ("?presence=draining", "draining"),
            ("?presence=silent", "silent_one"),
            ("?presence=idle&workerPoolId=pp%2Fee", ""),
            ("?search=IdL", "idle"),
            // A wildcard of patterns is a letter of names.
            ("?search=t_o", "silent_one"),
            ("?search=pp/ff&state=running", "draining idle"),
            ("?search=h&workerPoolId=pp%2Fff", "idle"),
        ] {
            let path = format!("{LIST}{query}");
            let listed = world.get(&path).await.expect(200);
            let found = ids(&listed, "workers", "workerId").join(" ");
            assert_eq!(found, expected, "{query}");
            for limit in [1, 2, 3] {
                let found = paged(world, &path, limit, ("workers", "workerId")).await;
                assert_eq!(found.join(" "), expected, "{query} by {limit}");
            }
        }
    }
);

on_both!(a_worker_of_the_list_has_its_task_and_its_price, |world| {
    populate(world).await;
    let listed = world.get(LIST).await.expect(200);
    let row = |id: &str| {
        let mut rows = listed["workers"].as_array().unwrap().iter();
        rows.find(|row| row["workerId"] == id).unwrap()
    };
    let busy = row("busy");
    assert_eq!(busy["presence"], "busy");
    assert_eq!(
        busy["task"],
        json!({"taskId": task_id(1), "runId": 0, "name": "a build"})
    );
    assert_eq!(
        *row("draining"),
        json!({
            "workerPoolId": "pp/ff", "workerGroup": "g", "workerId": "draining",
            "providerId": "google", "launchConfigId": "lc-1", "state": "running",
            "presence": "draining", "capacity": 1, "created": "2026-09-21T14:13:24.000Z",
            "draining": true, "adviceReason": "over capacity", "price": 0.25,
        })
    );
    assert_eq!(
        row("quarantined")["quarantineUntil"],
        world.now().plus_millis(DAY_MS).to_string()
    );
    assert_eq!(row("requested").get("presence"), None);
});

on_both!(workers_that_the_caller_may_not_list_are_left_out, |world| {
    populate(world).await;
    let who = |pools: &str| {
        let list = format!("worker-manager:list-workers:{pools}");
        let scopes = ["fleetwright:list-workers", &list];
        world.root().temporary(None, &scopes, world.now())
    };
    for (pools, expected) in [
        ("pp/ee", "silent_one quarantined busy"),
        ("pp/ff", "requested draining idle"),
        ("pp/nosuch", ""),
        (
            "pp/*",
            "requested silent_one draining quarantined idle busy",
        ),
    ] {
        let listed = world.get(LIST).by(&who(pools)).await.expect(200);
        let found = ids(&listed, "workers", "workerId").join(" ");
        assert_eq!(found, expected, "{pools}");
    }
});

on_both!(
    the_name_of_a_task_is_for_those_who_may_read_the_task,
    |world| {
        populate(world).await;
        let of_task = format!("queue:get-task:{}", task_id(1));
        for (scope, name) in [("queue:get-task:other", None), (&*of_task, Some("a build"))] {
            let list = "worker-manager:list-workers:*";
            let scopes = ["fleetwright:list-workers", list, scope];
            let who = world.root().temporary(None, &scopes, world.now());
            let listed = world.get(LIST).by(&who).await.expect(200);
            let mut rows = listed["workers"].as_array().unwrap().iter();
            let busy = rows.find(|row| row["workerId"] == "busy").unwrap();
            assert_eq!(busy["task"]["taskId"], task_id(1));
            assert_eq!(busy["task"].get("name").and_then(Value::as_str), name);
        }
    }
);

on_both!(
    a_page_of_workers_costs_four_statements_at_any_size,
    |world| {
        populate(world).await;
        for count in [0, 500_usize] {
            let workers = (0..count).map(|number| {
                let pool = format!("pp/p{}", number % 50);
                Worker::from_stored(running(&pool, "g", &format!("w{number}"), 10))
            });
            let workers: Vec<Worker> = workers.collect();
            world
                .write(move |tx| {
                    for worker in &workers {
                        store::workers::insert(tx, worker)?;
                    }
                    Ok(())
                })
                .await;
            let read = async { world.get(LIST).await.expect(200) };
            let (listed, counts) = world.counted(read).await;
            assert_eq!(listed["workers"].as_array().unwrap().len(), count + 6);
            for statement in ["all_worker_list", "all_worker_tasks"] {
                assert_eq!(counts.statements(statement), 1, "{statement}");
            }
        }
    }
);

on_sqlite_first!(
    with_an_outside_queue_nothing_is_known_of_what_workers_do,
    |config| {
        config.queue.taskcluster = Some(server::config::OutsideQueue {
            root_url: "http://127.0.0.1:9/".to_owned(),
            client_id: "fleet".to_owned(),
            access_token: Some(access::Secret::new("t".repeat(44))),
            access_token_file: None,
            pulse: None,
        });
    },
    |world| {
        world
            .insert(Worker::from_stored(running("pp/ee", "g", "w", 0)))
            .await;
        let listed = world.get(LIST).await.expect(200);
        assert_eq!(ids(&listed, "workers", "workerId"), ["w"]);
        assert_eq!(listed["workers"][0].get("presence"), None);
        let refused = world.get(&format!("{LIST}?presence=busy")).await;
        refused.refused_with(400, "InputError", "another deployment's queue");
        let listed = world.get(&format!("{LIST}?presence=draining")).await;
        assert_eq!(listed.expect(200)["workers"], json!([]));
    }
);

const AUDIT: &str = "fleetwright:/audit";

fn entry(entity_type: EntityType, id: &str, client_id: &str, created: Timestamp) -> AuditEntry {
    AuditEntry {
        entity_type,
        entity_id: id.to_owned(),
        action: "updated".to_owned(),
        client_id: client_id.to_owned(),
        created,
        source_ip: Some("192.0.2.7".to_owned()),
        request_id: Some("r1".to_owned()),
        detail: json!({"reason": "because"}),
    }
}

on_both!(
    the_audit_log_of_all_objects_is_listed_newest_first,
    |world| {
        let start = world.now();
        let at = |hours: i64| start.plus_seconds(hours * 3_600);
        let entries = [
            entry(EntityType::Role, "a", "me", at(0)),
            entry(EntityType::WorkerPool, "a", "you", at(1)),
            entry(EntityType::Role, "b", "you", at(2)),
            entry(EntityType::Role, "c", "me", at(3)),
            // Written late: its time is before that of the entry before it.
            entry(EntityType::Image, "d", "you", at(3).plus_millis(-1)),
            entry(EntityType::Role, "a", "you", at(4)),
        ];
        world
            .write(move |tx| {
                for entry in &entries {
                    store::audit::insert(tx, entry)?;
                }
                Ok(())
            })
            .await;
        let moment = |hours: i64| at(hours).to_string();
        for (query, expected) in [
            (String::new(), "a d c b a a"),
            ("?entityType=role".to_owned(), "a c b a"),
            ("?entityType=role&entityId=a".to_owned(), "a a"),
            ("?entityType=role&entityId=nosuch".to_owned(), ""),
            ("?clientId=you".to_owned(), "a d b a"),
            ("?clientId=you&entityType=role".to_owned(), "a b"),
            ("?entityType=role&entityId=a&clientId=me".to_owned(), "a"),
            (format!("?since={}", moment(3)), "a c"),
            (format!("?until={}", moment(3)), "d b a a"),
            (format!("?since={}&until={}", moment(1), moment(3)), "d b a"),
            (format!("?clientId=me&since={}", moment(1)), "c"),
            (format!("?since={}", moment(5)), ""),
            (format!("?until={}", moment(0)), ""),
        ] {
            let path = format!("{AUDIT}{query}");
            let listed = world.get(&path).await.expect(200);
            let found = ids(&listed, "entries", "entityId").join(" ");
            assert_eq!(found, expected, "{query}");
            for limit in [1, 2, 5] {
                let found = paged(world, &path, limit, ("entries", "entityId")).await;
                assert_eq!(found.join(" "), expected, "{query} by {limit}");
            }
        }
        let listed = world.get(AUDIT).await.expect(200);
        assert_eq!(
            listed["entries"][0],
            json!({
                "entityType": "role", "entityId": "a", "clientId": "you", "actionType": "updated",
                "created": moment(4), "sourceIp": "192.0.2.7", "requestId": "r1",
                "detail": {"reason": "because"},
            })
        );
    }
);

on_sqlite_first!(
    a_filter_of_the_audit_log_that_means_nothing_is_refused,
    |world| {
        for (query, part) in [
            ("entityId=a", "`entityId` needs `entityType`"),
            ("entityType=nosuch", "entityType"),
            ("since=2026-13-01", "since"),
        ] {
            let answer = world.get(&format!("{AUDIT}?{query}")).await;
            answer.refused_with(400, "InputError", part);
        }
    }
);
