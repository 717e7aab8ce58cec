//! Stores what the shadows of pools would have done.
//!
//! Each plan that is written is stored with the shadow's. If the pool's strategy does nothing, the
//! shadow's opinion is stored when it changes, not in each round.

use std::sync::Arc;

use domain::id::PoolId;
use domain::plan::{Comparison, Input, Plan};
use domain::time::{HOUR_MS, Timestamp};
use serde_json::json;
use store::Tx;
use store::shadow_plans::ShadowRecord;

use crate::Engine;
use crate::change::Change;

/// This many decisions of a pool with a shadow are kept.
const KEPT_SHADOW_PLANS: u32 = 100;
/// An opinion that stays is stored again after this time.
const REPEAT_MS: i64 = HOUR_MS;

/// A stored decision.
pub struct ShadowDecision {
    pub number: i64,
    pub created: Timestamp,
    /// The plan of the pool; `None`: its strategy did nothing.
    pub plan_number: Option<i64>,
    pub comparison: Comparison,
}

/// Stores the opinion of the shadow about a plan that does nothing. An error is logged: it must not
/// concern the pool.
pub(super) async fn note_opinion(engine: &Arc<Engine>, input: Input, plan: Plan) {
    let Some(comparison) = plan.comparison(&input.snapshot) else {
        return;
    };
    let id = input.snapshot.pool_id.clone();
    if let Err(problem) = note(engine, input, plan, comparison).await {
        tracing::warn!(pool.id = %id, error = %problem,
            "cannot store what the shadow of {id} would have done: {problem}");
    }
}

async fn note(
    engine: &Arc<Engine>,
    input: Input,
    plan: Plan,
    comparison: Comparison,
) -> store::Result<()> {
    let (now, id) = (input.snapshot.now, input.snapshot.pool_id.clone());
    let comparison = Arc::new(comparison);
    let (of_read, pool_id) = (Arc::clone(&comparison), id.clone());
    let read = engine.store.read("shadow_last", move |tx| {
        is_news(tx, &pool_id, &of_read, now)
    });
    if !read.await? {
        return Ok(());
    }
    let (document, packed) = (plan.to_json(), input.pack());
    let written = engine.store.write("shadow_note", move |tx| {
        let number = take_number(tx, &id)?;
        // Another process may have stored the same meanwhile.
        if !is_news(tx, &id, &comparison, now)? {
            return Ok(());
        }
        let record = ShadowRecord {
            pool_id: id.clone(),
            number,
            created: now,
            plan_number: None,
            comparison: json!(&*comparison),
            plan: Some(document.clone()),
        };
        let keep = i64::from(KEPT_SHADOW_PLANS);
        store::shadow_plans::insert(tx, &record, packed.as_deref(), keep)
    });
    written.await
}

/// Stores the comparison of a plan that is written in this transaction.
pub(super) fn insert_beside(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    plan_number: i64,
    comparison: &Comparison,
) -> store::Result<()> {
    let record = ShadowRecord {
        pool_id: pool_id.clone(),
        number: take_number(change.tx, pool_id)?,
        created: change.now,
        plan_number: Some(plan_number),
        comparison: json!(comparison),
        plan: None,
    };
    let keep = i64::from(KEPT_SHADOW_PLANS);
    store::shadow_plans::insert(change.tx, &record, None, keep)
}

fn take_number(tx: &mut Tx<'_>, pool_id: &PoolId) -> store::Result<i64> {
    store::turns::take(tx, &format!("shadow:{pool_id}"))
}

/// Whether the opinion differs from the last stored opinion.
fn is_news(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    comparison: &Comparison,
    now: Timestamp,
) -> store::Result<bool> {
    let last = store::shadow_plans::list(tx, pool_id, 1)?
        .into_iter()
        .next();
    let Some(last) = last else {
        return Ok(!comparison.is_idle());
    };
    let age_ms = now.millis_since(last.created);
    let Some(earlier) = decision(last) else {
        return Ok(!comparison.is_idle());
    };
    if comparison.is_idle() {
        // The end of an opinion is news, the end of a plan is not.
        return Ok(earlier.plan_number.is_none() && !earlier.comparison.is_idle());
    }
    Ok(!comparison.repeats(&earlier.comparison) || !(0..REPEAT_MS).contains(&age_ms))
}

/// `None`: another version of the program wrote it.
fn decision(record: ShadowRecord) -> Option<ShadowDecision> {
    Some(ShadowDecision {
        number: record.number,
        created: record.created,
        plan_number: record.plan_number,
        comparison: serde_json::from_value(record.comparison).ok()?,
    })
}

/// The kept decisions of a pool with its shadow, from newest to oldest.
pub fn list_shadow_decisions(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> store::Result<Vec<ShadowDecision>> {
    let rows = store::shadow_plans::list(tx, pool_id, KEPT_SHADOW_PLANS)?;
    Ok(rows.into_iter().filter_map(decision).collect())
}
