//! The client id and the scopes of a registered worker.

use crate::id::{ProviderId, WorkerKey};
use crate::time::{HOUR_MS, MINUTE_MS};

/// Credentials of workers and runs are valid from a time in the past, so that they work when a
/// clock is behind or is set back, ours included. This gives no access, because they did not exist
/// then.
pub const START_BEFORE_MS: i64 = 8 * HOUR_MS + 15 * MINUTE_MS;

pub fn client_id(provider_id: &ProviderId, worker: &WorkerKey) -> String {
    format!("worker/{provider_id}/{worker}")
}

pub fn scopes(worker: &WorkerKey) -> Vec<String> {
    let WorkerKey { pool_id, group, id } = worker;
    vec![
        format!("assume:worker-type:{pool_id}"), // deprecated, still relied upon
        format!("assume:worker-pool:{pool_id}"),
        format!("assume:worker-id:{group}/{id}"),
        format!("queue:worker-id:{group}/{id}"),
        format!("secrets:get:worker-type:{pool_id}"), // deprecated, still relied upon
        format!("secrets:get:worker-pool:{pool_id}"),
        format!("queue:claim-work:{pool_id}"),
        format!("worker-manager:remove-worker:{worker}"),
        format!("worker-manager:reregister-worker:{worker}"),
        format!("worker-manager:should-worker-terminate:{worker}"),
    ]
}

/// The scopes that the issuer of these credentials must have.
pub const ISSUER_SCOPES: [&str; 11] = [
    "auth:create-client:worker/*",
    "assume:worker-type:*",
    "assume:worker-pool:*",
    "assume:worker-id:*",
    "secrets:get:worker-type:*",
    "secrets:get:worker-pool:*",
    "queue:claim-work:*",
    "queue:worker-id:*",
    "worker-manager:remove-worker:*",
    "worker-manager:reregister-worker:*",
    "worker-manager:should-worker-terminate:*",
];

#[cfg(test)]
mod tests {
    use access::scope::ScopeSet;

    use super::*;

    #[test]
    fn the_issuer_holds_every_scope_that_it_hands_out() {
        let worker = WorkerKey {
            pool_id: "a/b".parse().unwrap(),
            group: "dc1".parse().unwrap(),
            id: "host-7".parse().unwrap(),
        };
        let issuer = ScopeSet::new(ISSUER_SCOPES.map(str::to_owned));
        for scope in scopes(&worker) {
            assert!(issuer.satisfies(&scope), "{scope}");
        }
        assert_eq!(
            client_id(&"static".parse().unwrap(), &worker),
            "worker/static/a/b/dc1/host-7"
        );
    }
}
