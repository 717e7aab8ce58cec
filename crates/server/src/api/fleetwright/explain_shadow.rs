//! Explains what the shadow of a pool would have done, beside what was done.

use domain::plan::{Comparison, ComparisonSums};
use engine::fleet::{self, ShadowDecision};
use engine::pools::PoolError;
use serde_json::{Value, json};

use super::explain::{shadow_json, strategy_json};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Maximum number of decisions that are shown; the sums are those of all that are kept.
const HISTORY: usize = 20;

pub(super) async fn pool(call: Call) -> Result<Reply, ApiError> {
    let (app, pool_id, now) = (call.app.clone(), call.pool_id()?, call.now);
    let (source, defaults) = (&app.engine.demand_source, app.engine.strategies);
    let demand = source.read(std::slice::from_ref(&pool_id)).await;
    let demand = demand.map_err(|problem| ApiError::queue_unavailable(&problem))?;
    let (embedded, horizon) = (!source.is_outside(), app.engine.horizon(now));
    let id = pool_id.clone();
    let read = call.read("explain_shadow", move |tx| {
        let pool = store::pools::get(tx, &id)?;
        let pool = pool.ok_or(PoolError::NoSuchPool)?;
        let strategies = fleet::explain_strategies(tx, &pool, defaults)?;
        let mut demand = demand.clone();
        if embedded {
            demand.insert(id.clone(), store::demand::of(tx, &id, now)?);
        }
        let facts = match &strategies.shadow {
            Some(_) => fleet::read_facts(tx, vec![pool], &demand, &horizon, defaults)?.pop(),
            None => None,
        };
        let decisions = fleet::list_shadow_decisions(tx, &id)?;
        Ok::<_, PoolError>((facts, strategies, decisions))
    });
    let (facts, strategies, decisions) = read.await?;
    let planned = match facts {
        Some(facts) => fleet::preview(&app.engine, facts).await?,
        None => None,
    };
    let present = planned.and_then(|(snapshot, plan)| {
        let comparison = plan.comparison(&snapshot)?;
        let of_shadow = snapshot.for_shadow()?;
        let mut present = comparison_json(&comparison);
        present["learned"] = json!(of_shadow.learned_json());
        present["learnedText"] = json!(of_shadow.learned_text());
        Some(present)
    });
    let shown = decisions.iter().take(HISTORY).map(decision_json);
    Reply::json(&json!({
        "workerPoolId": pool_id.as_str(),
        "time": now.to_string(),
        "strategy": strategies.strategy.as_ref().map(strategy_json),
        "shadow": shadow_json(&strategies),
        "now": present,
        "decisions": shown.collect::<Vec<_>>(),
        "sums": sums_json(&decisions),
    }))
}

fn decision_json(decision: &ShadowDecision) -> Value {
    let mut json = comparison_json(&decision.comparison);
    json["number"] = json!(decision.number);
    json["created"] = json!(decision.created.to_string());
    json["plan"] = json!(decision.plan_number);
    json
}

fn comparison_json(comparison: &Comparison) -> Value {
    json!(comparison)
}

/// The sums of the kept decisions of the newest pair of strategies; `null`: there are none.
fn sums_json(decisions: &[ShadowDecision]) -> Value {
    let pair = |comparison: &Comparison| (comparison.live.strategy, comparison.shadow.strategy);
    let Some(newest) = decisions.first().map(|decision| pair(&decision.comparison)) else {
        return Value::Null;
    };
    let equal = decisions
        .iter()
        .take_while(|decision| pair(&decision.comparison) == newest);
    let equal: Vec<&ShadowDecision> = equal.collect();
    let comparisons: Vec<&Comparison> = equal.iter().map(|it| &it.comparison).collect();
    let mut sums = json!(ComparisonSums::of(&comparisons));
    sums["strategy"] = json!(newest.0.as_str());
    sums["shadowStrategy"] = json!(newest.1.as_str());
    sums["since"] = json!(equal.last().map(|oldest| oldest.created.to_string()));
    sums
}
