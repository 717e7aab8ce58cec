//! The scopes that the endpoints of pools, workers, launch configs, overrides and budgets need.

use serde_json::json;

use crate::authorization::{Case, case, case_with};
use crate::samples::{static_pool, static_worker};

pub(crate) fn pool_cases() -> Vec<Case> {
    let manage: &[&str] = &[
        "worker-manager:manage-worker-pool:pp/ee",
        "worker-manager:provider:static",
    ];
    let report = json!({"kind": "k", "title": "t", "description": "d", "extra": {},
        "workerGroup": "g", "workerId": "w"});
    let pool = "/worker-pool/pp%2Fee";
    let get_pool: &[&str] = &["worker-manager:get-worker-pool:pp/ee"];
    vec![
        case(
            "listProviders",
            "/providers",
            &["worker-manager:list-providers"],
        ),
        case_with("createWorkerPool", pool, static_pool(), manage),
        case_with("updateWorkerPool", pool, static_pool(), manage),
        case_with(
            "planWorkerPool",
            "/plan-worker-pool/pp%2Fee",
            static_pool(),
            &[
                "worker-manager:get-worker-pool:pp/ee",
                "worker-manager:provider:static",
            ],
        ),
        case(
            "deleteWorkerPool",
            pool,
            &["worker-manager:manage-worker-pool:pp/ee"],
        ),
        case(
            "listWorkerPoolLaunchConfigs",
            "/worker-pool/pp%2Fee/launch-configs",
            get_pool,
        ),
        case("workerPoolStats", "/worker-pool/pp%2Fee/stats", get_pool),
        case("workerPool", pool, get_pool),
        case(
            "listWorkerPools",
            "/worker-pools",
            &["worker-manager:list-worker-pools"],
        ),
        case(
            "listWorkerPoolsStats",
            "/worker-pools/stats",
            &["worker-manager:list-worker-pools"],
        ),
        case_with(
            "reportWorkerError",
            "/worker-pool-errors/pp%2Fee",
            report,
            &["assume:worker-pool:pp/ee", "assume:worker-id:g/w"],
        ),
        case(
            "workerPoolErrorStats",
            "/worker-pool-errors/stats?workerPoolId=pp%2Fee",
            &["worker-manager:list-worker-pool-errors:pp/ee"],
        ),
        case(
            "workerPoolErrorStats",
            "/worker-pool-errors/stats",
            &["worker-manager:list-worker-pool-errors:*"],
        ),
        case(
            "listWorkerPoolErrors",
            "/worker-pool-errors/pp%2Fee",
            &["worker-manager:list-worker-pool-errors:pp/ee"],
        ),
    ]
}

/// In the order of the endpoints: the overrides exist before they are removed.
pub(crate) fn budget_cases() -> Vec<Case> {
    let body = |scope: &str, id: &str| json!({scope: id, "per": "day", "limit": 1});
    let of_pools: &[&str] = &[
        "worker-manager:manage-budget:b.pools",
        "worker-manager:manage-worker-pool:pp/*",
    ];
    let of_provider: &[&str] = &[
        "worker-manager:manage-budget:b.provider",
        "worker-manager:provider:static",
    ];
    let of_owner: &[&str] = &[
        "worker-manager:manage-budget:b.owner",
        "worker-manager:budget-of-owner:ann",
    ];
    let (pools, provider, owner) = ("/budget/b.pools", "/budget/b.provider", "/budget/b.owner");
    let set = |path, body, scopes| case_with("setBudget", path, body, scopes);
    vec![
        set(pools, body("workerPools", "pp/*"), of_pools),
        set(provider, body("providerId", "static"), of_provider),
        set(owner, body("owner", "ann"), of_owner),
        case("budget", pools, &["worker-manager:get-budget:b.pools"]),
        case("listBudgets", "/budgets", &["worker-manager:list-budgets"]),
        case("removeBudget", pools, of_pools),
        case("removeBudget", provider, of_provider),
        case("removeBudget", owner, of_owner),
    ]
}

pub(crate) fn override_cases() -> Vec<Case> {
    let pause = |target: &str, id: &str| json!({target: id, "pause": true, "reason": "r", "until": "2026-10-01T00:00:00Z"});
    let brief = json!({"reason": "r", "until": "2026-10-01T00:00:00Z"});
    let of_pool: &[&str] = &[
        "worker-manager:manage-override:o.pool",
        "worker-manager:manage-worker-pool:pp/ee",
    ];
    let of_provider: &[&str] = &[
        "worker-manager:manage-override:o.provider",
        "worker-manager:provider:static",
    ];
    let of_region: &[&str] = &[
        "worker-manager:manage-override:o.region",
        "worker-manager:region:us-east-1",
    ];
    let of_config: &[&str] = &[
        "worker-manager:manage-override:pause.pp.ee.lc",
        "worker-manager:manage-worker-pool:pp/ee",
    ];
    let (pool, provider, region) = (
        "/override/o.pool",
        "/override/o.provider",
        "/override/o.region",
    );
    let set = |path, body, scopes| case_with("setOverride", path, body, scopes);
    let to_pause = "/launch-config/pp%2Fee/lc/pause";
    let to_resume = "/launch-config/pp%2Fee/lc/resume";
    vec![
        set(pool, pause("workerPoolId", "pp/ee"), of_pool),
        set(provider, pause("providerId", "static"), of_provider),
        set(region, pause("region", "us-east-1"), of_region),
        case("override", pool, &["worker-manager:get-override:o.pool"]),
        case(
            "listOverrides",
            "/overrides",
            &["worker-manager:list-overrides"],
        ),
        case("removeOverride", pool, of_pool),
        case("removeOverride", provider, of_provider),
        case("removeOverride", region, of_region),
        case_with("pauseLaunchConfig", to_pause, brief, of_config),
        case("resumeLaunchConfig", to_resume, of_config),
    ]
}

pub(crate) fn worker_cases() -> Vec<Case> {
    let reregister = json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
        "secret": "x".repeat(44)});
    let worker = "/workers/pp%2Fee/g/w";
    vec![
        case(
            "listWorkersForWorkerGroup",
            "/workers/pp%2Fee/g",
            &["worker-manager:list-workers:pp/ee/g"],
        ),
        case("worker", worker, &["worker-manager:get-worker:pp/ee/g/w"]),
        case(
            "worker",
            "/workers/pp%2Fee:/g/w",
            &["worker-manager:get-worker:pp/ee/g/w"],
        ),
        case_with(
            "createWorker",
            worker,
            static_worker(),
            &["worker-manager:create-worker:pp/ee/g/w"],
        ),
        case_with(
            "updateWorker",
            worker,
            static_worker(),
            &["worker-manager:update-worker:pp/ee/g/w"],
        ),
        case(
            "removeWorker",
            worker,
            &["worker-manager:remove-worker:pp/ee/g/w"],
        ),
        case(
            "shouldWorkerTerminate",
            "/workers/pp%2Fee/g/w/should-terminate",
            &["worker-manager:should-worker-terminate:pp/ee/g/w"],
        ),
        case(
            "workerLaunchConfig",
            "/workers/pp%2Fee/g/w/launch-config",
            &["worker-manager:should-worker-terminate:pp/ee/g/w"],
        ),
        case(
            "listWorkersForWorkerPool",
            "/workers/pp%2Fee",
            &["worker-manager:list-workers:pp/ee"],
        ),
        case_with(
            "reregisterWorker",
            "/worker/reregister",
            reregister,
            &["worker-manager:reregister-worker:pp/ee/g/w"],
        ),
        case(
            "listWorkers",
            "/provisioners/pp/worker-types/ee/workers",
            &["worker-manager:list-workers:pp/ee"],
        ),
        case(
            "getWorker",
            "/provisioners/pp/worker-types/ee/workers/g/w",
            &["worker-manager:get-worker:pp/ee/g/w"],
        ),
    ]
}

pub(crate) fn launch_config_cases() -> Vec<Case> {
    let get_pool: &[&str] = &["worker-manager:get-worker-pool:pp/ee"];
    vec![
        case("getLaunchConfigs", "/launch-configs/pp%2Fee", get_pool),
        case("getLaunchConfig", "/launch-config/pp%2Fee/lc", get_pool),
        case(
            "launchConfigHealth",
            "/launch-config-health",
            &["worker-manager:list-worker-pools"],
        ),
    ]
}

pub(crate) fn state_cases() -> Vec<Case> {
    let of_pool: &[&str] = &["worker-manager:get-worker-state:pp/ee"];
    vec![
        case("workerState", "/worker-state/pp%2Fee/g/w", of_pool),
        case("workerPoolState", "/worker-state/pool/pp%2Fee", of_pool),
        case(
            "workerTypeState",
            "/worker-state/worker-type/ee",
            &["worker-manager:get-worker-state:worker-manager/ee"],
        ),
        case(
            "workerConfigurationState",
            "/worker-state/configuration/build",
            &["worker-manager:get-worker-configuration:build"],
        ),
    ]
}
