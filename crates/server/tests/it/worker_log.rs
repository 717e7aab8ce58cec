//! The log of a worker over the API: what its provider has of it.

use std::sync::atomic::Ordering;

use cloud::{CloudError, LogEnd, MAX_WORKER_LOG_BYTES, WorkerLog};
use domain::id::WorkerKey;
use domain::worker::{StoredWorker, Worker};

use crate::ask::Answer;
use crate::database::on_sqlite_first;
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test, plain_pool};
use crate::samples::{static_pool, worker};

fn path_of(key: &WorkerKey) -> String {
    let pool = key.pool_id.as_str().replace('/', "%2F");
    format!("fleetwright:/worker-log/{pool}/{}/{}", key.group, key.id)
}

/// A worker that has not registered.
async fn launched(fleet: &Fleet) -> WorkerKey {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.workers_in(POOL, "requested").await.remove(0)
}

impl Fleet {
    async fn log_of(&self, key: &WorkerKey, log: Result<WorkerLog, CloudError>) -> Answer {
        *self.one.log.lock().unwrap() = Some(log);
        self.get(&path_of(key)).await
    }
}

fleet_test!(the_log_of_a_worker_is_text_and_cut_at_its_front, |fleet| {
    const LIMIT: usize = MAX_WORKER_LOG_BYTES;
    let key = launched(fleet).await;
    for size in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT] {
        let text: String = ('a'..='z').cycle().take(size).collect();
        let log = LogEnd::of(text.clone().into_bytes());
        let answer = fleet.log_of(&key, Ok(WorkerLog::Kept(log))).await;
        assert_eq!(answer.status, 200, "{size}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        let end = &text[size.saturating_sub(LIMIT)..];
        let first = match size > LIMIT {
            true => "[The beginning is left out: these are the last 256 KiB.]\n",
            false => "",
        };
        assert!(answer.text == format!("{first}{end}"), "{size}");
    }
    let control = b"\x1b[2Jcleared\r\n".to_vec();
    let answer = fleet.log_of(&key, Ok(WorkerLog::Kept(LogEnd::of(control))));
    assert_eq!(answer.await.text, "\x1b[2Jcleared\r\n");
});

fleet_on_sqlite_first!(the_log_of_a_worker_needs_the_scope_of_its_pool, |fleet| {
    let key = launched(fleet).await;
    let log = WorkerLog::Kept(LogEnd::of(b"secret".to_vec()));
    fleet.log_of(&key, Ok(log)).await;
    let scope = "fleetwright:read-worker-log:pp/ee";
    for (name, scopes, status) in [
        ("reader", vec![scope], 200),
        ("other", vec!["fleetwright:read-worker-log:pp/other"], 403),
        ("explainer", vec!["fleetwright:explain:*"], 403),
    ] {
        let who = fleet.client(name, &scopes).await;
        let answer = fleet.get(&path_of(&key)).by(&who).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text);
        assert_eq!(answer.text.contains("secret"), status == 200);
    }
    let answer = fleet.get(&path_of(&key)).anonymously().await;
    assert_eq!(answer.status, 403, "{}", answer.text);
});

fleet_on_sqlite_first!(a_missing_log_has_its_reason_and_the_next_step, |fleet| {
    let key = launched(fleet).await;
    let explain = format!(
        "Ask `fleetwright explain worker {POOL}/{}/{}` what happened to it",
        key.group, key.id
    );
    let why =
        format!("Provider one keeps no logs of workers, because it is of kind fake. {explain}");
    let answer = fleet.get(&path_of(&key)).await;
    answer.refused(404, "ResourceNotFound", &why);
    let answer = fleet.log_of(&key, Ok(WorkerLog::Missing)).await;
    let why = format!(
        "Provider one has no log of worker {}, or has deleted it with its machine. {explain}",
        key.id
    );
    answer.refused(404, "ResourceNotFound", &why);
    *fleet.one.elsewhere.lock().unwrap() = Some(key.group.clone());
    let answer = fleet.log_of(&key, Ok(WorkerLog::Missing)).await;
    let why = format!("is on host {}: ask the server there", key.group);
    answer.refused_with(404, "ResourceNotFound", &why);

    let refused = CloudError::Refused("it does not have our tags".to_owned());
    let answer = fleet.log_of(&key, Err(refused)).await;
    answer.refused_with(400, "InputError", "it does not have our tags");
    let denied = CloudError::Credentials("GetConsoleOutput".to_owned());
    let answer = fleet.log_of(&key, Err(denied)).await;
    answer.refused_with(503, "ProviderSetupFailed", "GetConsoleOutput");

    let mut unknown = key;
    unknown.id = "nobody".parse().unwrap();
    let answer = fleet.get(&path_of(&unknown)).await;
    answer.refused_with(404, "ResourceNotFound", "Worker not found");
});

on_sqlite_first!(
    no_log_is_read_of_a_provider_that_is_out_of_service,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", static_pool())
            .await
            .expect(200);
        world.shaky.works.store(false, Ordering::Release);
        let of = |provider: &str| {
            Worker::from_stored(StoredWorker {
                provider_id: provider.parse().unwrap(),
                ..worker("pp/ee", "g", provider).into_stored()
            })
        };
        for provider in ["shaky", "static", "removed"] {
            world.insert(of(provider)).await;
        }
        let log = |id: &str| world.get(&path_of(&of(id).key));
        let text = "Provider backend may be down or misconfigured";
        log("shaky").await.refused(503, "ProviderSetupFailed", text);
        let text = "Provider static keeps no logs of workers, because it is of kind static";
        log("static")
            .await
            .refused_with(404, "ResourceNotFound", text);
        let text = "Provider removed does not exist";
        log("removed")
            .await
            .refused_with(404, "ResourceNotFound", text);
    }
);
