//! "Is all well?": problems, totals, and the pools with the most trouble first.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::scope::ScopeSet;
use domain::id::PoolId;
use domain::series::FleetLevels;
use domain::status::{FleetProblem, ProblemSubject, Severity};
use domain::time::SECOND_MS;
use engine::status::{FleetStatus, PoolStatus};
use serde_json::{Map, Value, json};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};
use crate::fleet_status::Sources;

/// Problems of a reply, the worst.
const MAX_PROBLEMS: usize = 200;
const READ_COST: &str = "fleetwright:read-cost:all";

async fn last(call: &Call) -> Result<Arc<FleetStatus>, ApiError> {
    let most_ms = match call.query("maxAge") {
        None => 0,
        // The pattern of the parameter admits nothing else.
        Some(seconds) => seconds.parse::<i64>().unwrap_or(0) * SECOND_MS,
    };
    let app = &call.app;
    let from = Sources {
        engine: Arc::clone(&app.engine),
        images: app.tree.images(),
    };
    Ok(app.fleet_status.read(from, call.now, most_ms).await?)
}

pub(super) async fn read(call: Call) -> Result<Reply, ApiError> {
    let status = last(&call).await?;
    Reply::json(&reply(&status, &call.scopes(), MAX_PROBLEMS))
}

fn reply(status: &FleetStatus, scopes: &Arc<ScopeSet>, most: usize) -> Value {
    let mut left_out = BTreeSet::new();
    let is_shown = |problem: &&FleetProblem| {
        let missing = problem
            .kind
            .scope()
            .filter(|scope| !scopes.satisfies(scope));
        left_out.extend(missing);
        missing.is_none()
    };
    let problems: Vec<&FleetProblem> = status.problems.iter().filter(is_shown).collect();
    let count = |severity: Severity| {
        let of_severity = problems.iter().filter(|it| it.severity == severity);
        of_severity.count()
    };
    let (n_ill, n_warned) = (count(Severity::Ill), count(Severity::Warned));
    let shown = problems.iter().take(most);
    let shown: Vec<Value> = shown.map(|it| problem_json(it, scopes)).collect();
    let (levels, cost_today, cost_per_hour) = status.totals();
    let mut totals = levels_json(&levels);
    match scopes.satisfies(READ_COST) {
        true => {
            totals.insert("costToday".to_owned(), cost_today.into());
            totals.insert("costPerHour".to_owned(), cost_per_hour.into());
        }
        false => {
            left_out.insert(READ_COST);
        }
    }
    json!({
        "asOf": status.now.to_string(),
        "isWell": n_ill == 0,
        "ill": n_ill,
        "warned": n_warned,
        "problems": shown,
        "totals": totals,
        "pools": pools_json(&status.pools),
        "missingScopes": left_out,
    })
}

fn pools_json(pools: &[PoolStatus]) -> Value {
    let count = |is_one: fn(&PoolStatus) -> bool| pools.iter().filter(|pool| is_one(pool)).count();
    json!({
        "all": pools.len(),
        "waiting": count(|pool| pool.levels.waiting > 0),
        "quiet": count(|pool| pool.levels == FleetLevels::default()),
        "ill": count(|pool| rank(pool) == 0),
        "warned": count(|pool| rank(pool) == 1),
    })
}

fn problem_json(problem: &FleetProblem, scopes: &ScopeSet) -> Value {
    let words = problem
        .words
        .as_ref()
        .filter(|_| may_read_words(problem, scopes));
    let mut shown = without_nulls(json!({
        "kind": problem.kind.as_str(),
        "severity": problem.severity.as_str(),
        "since": problem.since.map(|since| since.to_string()),
        "reason": problem.reason,
        "words": words,
        "next": problem.next,
        "action": problem.action,
        "waiting": Some(problem.n_waiting).filter(|count| *count > 0),
    }));
    for (name, id) in subject(&problem.subject) {
        shown[name] = id.into();
    }
    shown
}

/// Texts of providers and workers are for callers that may list the errors of the pool.
fn may_read_words(problem: &FleetProblem, scopes: &ScopeSet) -> bool {
    match &problem.subject {
        ProblemSubject::Pool(id) | ProblemSubject::LaunchConfig(id, _) => {
            scopes.satisfies(&format!("worker-manager:list-worker-pool-errors:{id}"))
        }
        ProblemSubject::Provider(_) => scopes.satisfies("worker-manager:list-providers"),
        ProblemSubject::Image(_)
        | ProblemSubject::Budget(_)
        | ProblemSubject::Relay(_)
        | ProblemSubject::Override(_)
        | ProblemSubject::Process(_) => true,
    }
}

fn subject(subject: &ProblemSubject) -> Vec<(&'static str, &str)> {
    match subject {
        ProblemSubject::Pool(id) => vec![("workerPoolId", id.as_str())],
        ProblemSubject::LaunchConfig(pool, id) => {
            vec![
                ("workerPoolId", pool.as_str()),
                ("launchConfigId", id.as_str()),
            ]
        }
        ProblemSubject::Provider(id) => vec![("providerId", id.as_str())],
        ProblemSubject::Image(id) => vec![("imageId", id.as_str())],
        ProblemSubject::Budget(id) => vec![("budgetId", id.as_str())],
        ProblemSubject::Relay(id) => vec![("relayId", id.as_str())],
        ProblemSubject::Override(id) => vec![("overrideId", id.as_str())],
        ProblemSubject::Process(name) => vec![("process", name)],
    }
}

fn levels_json(levels: &FleetLevels) -> Map<String, Value> {
    let levels = [
        ("waiting", levels.waiting),
        ("requested", levels.requested),
        ("booting", levels.booting),
        ("idle", levels.idle),
        ("busy", levels.busy),
        ("leaving", levels.leaving),
    ];
    let levels = levels.into_iter();
    levels
        .map(|(name, level)| (name.to_owned(), level.into()))
        .collect()
}

/// The order of a list of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Trouble,
    Waiting,
    Name,
    Cost,
}

/// The place of a pool in a list.
type Place = (i64, i64, String);

impl Order {
    fn parse(call: &Call) -> Result<Self, ApiError> {
        Ok(match call.query("order") {
            None | Some("trouble") => Self::Trouble,
            Some("waiting") => Self::Waiting,
            Some("name") => Self::Name,
            Some("cost") => Self::Cost,
            Some(other) => {
                return Err(ApiError::input(format!(
                    "`order` is {other}, not trouble, waiting, name or cost"
                )));
            }
        })
    }

    fn place(self, pool: &PoolStatus, may_see_cost: bool) -> Place {
        let (first, second) = match self {
            Self::Trouble => (rank(pool), -pool.levels.waiting),
            Self::Waiting => (-pool.levels.waiting, 0),
            Self::Name => (0, 0),
            Self::Cost if may_see_cost => (-pool.cost_today, 0),
            Self::Cost => (0, 0),
        };
        (first, second, pool.id.to_string())
    }
}

/// Ill pools come before those with a warning, and both before all others.
fn rank(pool: &PoolStatus) -> i64 {
    match pool.trouble.first() {
        Some((Severity::Ill, _)) => 0,
        Some((Severity::Warned, _)) => 1,
        None => 2,
    }
}

pub(super) async fn pools(call: Call) -> Result<Reply, ApiError> {
    let (order, page) = (Order::parse(&call)?, call.page::<Place>()?);
    let status = last(&call).await?;
    let scopes = call.scopes();
    let search = call.query("search").unwrap_or_default().to_lowercase();
    let has_text = |pool: &&PoolStatus| pool.id.as_str().to_lowercase().contains(&search);
    let cost_of = |id: &PoolId| {
        scopes.satisfies(READ_COST) || scopes.satisfies(&format!("fleetwright:read-cost:pool:{id}"))
    };
    let matching = status.pools.iter().filter(has_text);
    let mut places: Vec<(Place, &PoolStatus)> = matching
        .map(|pool| (order.place(pool, cost_of(&pool.id)), pool))
        .collect();
    let n_matching = places.len();
    places.sort_by(|one, other| one.0.cmp(&other.0));
    let start = match &page.after {
        Some(after) => places.partition_point(|(place, _)| place <= after),
        None => 0,
    };
    let mut rest: Vec<(Place, &PoolStatus)> = places
        .into_iter()
        .skip(start)
        .take(page.limit_and_one() as usize)
        .collect();
    let token = page.cut(&mut rest, |(place, _)| place.clone());
    let shown = rest
        .iter()
        .map(|(_, pool)| pool_json(pool, cost_of(&pool.id)));
    let reply = json!({
        "asOf": status.now.to_string(),
        "matching": n_matching,
        "pools": shown.collect::<Vec<Value>>(),
    });
    Reply::page(reply, token)
}

fn pool_json(pool: &PoolStatus, may_see_cost: bool) -> Value {
    let wait = pool
        .wait
        .map(|wait| json!({"cause": wait.cause.as_str(), "since": wait.at.to_string()}));
    let trouble = pool
        .trouble
        .iter()
        .map(|(severity, kind)| json!({"kind": kind.as_str(), "severity": severity.as_str()}));
    let mut shown = without_nulls(json!({
        "workerPoolId": pool.id.as_str(),
        "maximum": pool.maximum,
        "wait": wait,
        "errors": pool.n_errors,
        "costToday": may_see_cost.then_some(pool.cost_today),
        "costPerHour": may_see_cost.then_some(pool.cost_per_hour),
        "trouble": trouble.collect::<Vec<Value>>(),
    }));
    if let Some(shown) = shown.as_object_mut() {
        shown.extend(levels_json(&pool.levels));
    }
    shown
}

#[cfg(test)]
mod tests {
    use domain::status::{LatePart, of_part};
    use domain::time::Timestamp;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn problems_beyond_the_limit_are_counted() {
        let limit = MAX_PROBLEMS;
        for count in sizes_around("server::api::fleetwright::status::MAX_PROBLEMS", limit) {
            let problem = of_part(LatePart::Planner, None, "");
            let status = FleetStatus {
                now: Timestamp::from_millis(0),
                pools: Vec::new(),
                problems: vec![problem; count],
                cost_of_deleted: (0, 0),
            };
            let reply = reply(&status, &Arc::default(), MAX_PROBLEMS);
            assert_eq!(
                reply["problems"].as_array().unwrap().len(),
                count.min(limit)
            );
            assert_eq!(reply["ill"], count);
            assert_eq!(reply["isWell"], count == 0);
        }
    }
}
