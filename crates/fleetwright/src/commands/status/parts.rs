//! The parts of the status: one call for each, all at once.

use serde_json::{Value, json};

use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Pools of one reply; a larger fleet has its quiet pools left out.
const POOLS: usize = 1_000;

/// The replies. A part that the caller may not read, or that could not be read, is `Null`.
pub(super) struct Parts {
    pub(super) status: Value,
    pub(super) pools: Value,
    pub(super) providers: Value,
    pub(super) processes: Value,
    pub(super) overrides: Value,
    pub(super) budgets: Value,
    pub(super) images: Value,
    /// Names of the parts that the caller may not read.
    pub(super) not_allowed: Vec<&'static str>,
    /// Errors of further parts.
    pub(super) errors: Vec<String>,
}

/// The pools to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolQuery {
    /// `None`: the pools with the most trouble first, then the busiest.
    pub(super) order: Option<&'static str>,
    pub(super) search: String,
}

/// Reads all parts at once. Only the first must succeed.
pub(super) async fn read(query: &PoolQuery, session: &Session) -> Result<Parts, Failure> {
    let status = Call::get(FLEETWRIGHT, &["status"]).to("show the status");
    let search = Some(&query.search).filter(|text| !text.is_empty());
    let pools = Call::get(FLEETWRIGHT, &["status", "pools"])
        .query("limit", Some(POOLS))
        .query("order", query.order)
        .query("search", search)
        .to("list the pools with their state");
    let list = |service, segments: &[&str], purpose: &str| Call::get(service, segments).to(purpose);
    let providers = list(FLEETWRIGHT, &["providers"], "list providers");
    let processes = list(FLEETWRIGHT, &["processes"], "list processes");
    let overrides = list(WORKER_MANAGER, &["overrides"], "list overrides");
    let budgets = list(WORKER_MANAGER, &["budgets"], "list budgets");
    let images = list(FLEETWRIGHT, &["images", "status"], "list images");
    let client = &session.client;
    let (status, pools, providers, processes, overrides, budgets, images) = tokio::join!(
        client.call(&status),
        client.call(&pools),
        client.call(&providers),
        client.call(&processes),
        client.call(&overrides),
        client.call(&budgets),
        client.call(&images),
    );
    let mut parts = Parts::of(status?);
    parts.pools = parts.taken("pools", pools);
    parts.sort_pools(query);
    parts.providers = parts.taken("providers", providers);
    parts.processes = parts.taken("processes", processes);
    parts.overrides = parts.taken("overrides", overrides);
    parts.budgets = parts.taken("budgets", budgets);
    parts.images = parts.taken("images", images);
    Ok(parts)
}

impl Parts {
    pub(super) fn of(status: Value) -> Self {
        Self {
            status,
            pools: Value::Null,
            providers: Value::Null,
            processes: Value::Null,
            overrides: Value::Null,
            budgets: Value::Null,
            images: Value::Null,
            not_allowed: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn taken(&mut self, name: &'static str, read: Result<Value, Failure>) -> Value {
        match read {
            Ok(reply) => reply,
            // Other servers lack some of these lists.
            Err(failure) if matches!(failure.exit, Exit::NotAllowed | Exit::NotFound) => {
                self.not_allowed.push(name);
                Value::Null
            }
            Err(failure) => {
                self.errors.push(failure.message);
                Value::Null
            }
        }
    }

    /// Within the server's order by trouble and waiting tasks, the busiest first.
    fn sort_pools(&mut self, query: &PoolQuery) {
        if let (None, Some(pools)) = (query.order, self.pools["pools"].as_array_mut()) {
            pools.sort_by_key(|pool| (rank(pool), -level(pool, "waiting"), -capacity(pool)));
        }
    }

    /// With those beyond the reply.
    pub(super) fn n_matching_pools(&self) -> usize {
        let matching = self.pools["matching"].as_u64().unwrap_or_default();
        usize::try_from(matching).unwrap_or(usize::MAX)
    }

    /// The reply of the API, with the other parts beside it.
    pub(super) fn document(self) -> Value {
        let mut document = self.status;
        document["parts"] = json!({
            "pools": self.pools["pools"],
            "providers": self.providers["providers"],
            "processes": self.processes["processes"],
            "overrides": self.overrides["overrides"],
            "budgets": self.budgets["budgets"],
            "images": self.images["images"],
            "notAllowed": self.not_allowed,
            "errors": self.errors,
        });
        document
    }
}

/// Ill pools come before those with a warning, and both before all others.
fn rank(pool: &Value) -> u8 {
    match pool["trouble"][0]["severity"].as_str() {
        Some("ill") => 0,
        Some(_) => 1,
        None => 2,
    }
}

pub(super) fn level(pool: &Value, key: &str) -> i64 {
    pool[key].as_i64().unwrap_or(0)
}

/// The units of a pool that run or start.
pub(super) fn capacity(pool: &Value) -> i64 {
    let levels = ["requested", "booting", "idle", "busy", "leaving"];
    levels.iter().map(|key| level(pool, key)).sum()
}

/// Whether a pool deserves no line: nothing waits, runs or is wrong.
pub(super) fn is_quiet(pool: &Value) -> bool {
    rank(pool) == 2 && level(pool, "waiting") == 0 && capacity(pool) == 0
}

/// The items of a list; empty if it was left out.
pub(super) fn items<'a>(part: &'a Value, key: &str) -> &'a [Value] {
    part[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ill_pools_come_first_then_waiting_then_busy_ones() {
        let pool = |id: &str, severity: &str, waiting: u64, busy: u64| {
            let mut pool = json!({"workerPoolId": id, "waiting": waiting, "busy": busy,
                "trouble": []});
            if !severity.is_empty() {
                pool["trouble"] = json!([{"kind": "tasks-wait", "severity": severity}]);
            }
            pool
        };
        let mut parts = Parts::of(json!({}));
        parts.pools = json!({"pools": [
            pool("a/ill", "ill", 1, 0), pool("a/warned", "warned", 0, 0), pool("a/waits", "", 4, 0),
            pool("a/idle", "", 0, 1), pool("a/busy", "", 0, 9), pool("a/quiet", "", 0, 0)]});
        let ids = |parts: &Parts| {
            let pools = items(&parts.pools, "pools").iter();
            let ids = pools.map(|pool| pool["workerPoolId"].as_str().unwrap().to_owned());
            ids.collect::<Vec<_>>().join(" ")
        };
        let by_name = PoolQuery {
            order: Some("name"),
            ..PoolQuery::default()
        };
        parts.sort_pools(&by_name);
        assert!(ids(&parts).ends_with("a/idle a/busy a/quiet"));
        parts.sort_pools(&PoolQuery::default());
        let sorted = "a/ill a/warned a/waits a/busy a/idle a/quiet";
        assert_eq!(ids(&parts), sorted);
        let quiet = items(&parts.pools, "pools")
            .iter()
            .filter(|it| is_quiet(it));
        assert_eq!(quiet.count(), 1);
    }

    #[test]
    fn a_part_that_cannot_be_read_is_named() {
        let mut parts = Parts::of(json!({"isWell": true}));
        let refused = Failure::new(Exit::NotAllowed, "no");
        assert_eq!(parts.taken("budgets", Err(refused)), Value::Null);
        let broken = Failure::failed("could not list images: the tree is away");
        assert_eq!(parts.taken("images", Err(broken)), Value::Null);
        let document = parts.document();
        assert_eq!(document["isWell"], true);
        assert_eq!(document["parts"]["notAllowed"], json!(["budgets"]));
        assert_eq!(
            document["parts"]["errors"],
            json!(["could not list images: the tree is away"])
        );
    }
}
