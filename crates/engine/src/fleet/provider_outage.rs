//! Reports a provider that is out of service to the pools that need it.
//!
//! So it is an error of these pools like others: with an event, in their lists, and in notices to
//! their owners.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::id::{PoolId, ProviderId};
use domain::pool::Pool;
use domain::time::DAY_MS;
use serde_json::json;

use super::pool_errors::{ErrorDetails, report_pool_error};
use crate::Engine;
use crate::change::Change;

const KIND: &str = "provider-error";
/// An outage that goes on is reported again after this time.
const AGAIN_MS: i64 = DAY_MS;

/// How many pools one call looks at; the next call for an outage is an hour later.
#[derive(Clone, Copy, Debug)]
pub struct OutageLimits {
    /// Pools of a transaction.
    pub page: u32,
    pub pages: usize,
}

impl Default for OutageLimits {
    fn default() -> Self {
        Self {
            page: 500,
            pages: 20,
        }
    }
}

/// Reports the outage to each pool of the provider that has no recent report of it. Returns their
/// number.
pub async fn report_outage(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    why: &str,
    limits: OutageLimits,
) -> store::Result<u64> {
    let now = engine.clock.now();
    let (mut n_reported, mut after) = (0, None::<PoolId>);
    for _ in 0..limits.pages {
        let (id, why, start) = (provider_id.clone(), why.to_owned(), after.clone());
        let reported = engine.change_alone("provider_outage", now, move |change| {
            report_page(change, &id, &why, start.as_ref(), limits.page)
        });
        let (n_new, last) = reported.await?;
        n_reported += n_new;
        after = last;
        if after.is_none() {
            break;
        }
    }
    Ok(n_reported)
}

/// Returns the number of reports, and the last pool if there are more.
fn report_page(
    change: &mut Change<'_, '_>,
    provider_id: &ProviderId,
    why: &str,
    after: Option<&PoolId>,
    limit: u32,
) -> store::Result<(u64, Option<PoolId>)> {
    let pools = store::pools::list(change.tx, after, limit)?;
    let known = known_in(change, &pools, provider_id)?;
    let mut n_reported = 0;
    for pool in &pools {
        if needs(pool, provider_id) && !known.contains(&pool.id) {
            let details = ErrorDetails {
                kind: KIND,
                title: "Provider out of service",
                description: format!(
                    "{provider_id} cannot be used, and is tried again every minute: {why}"
                ),
                extra: json!({"providerId": provider_id.as_str()}),
                launch_config_id: None,
            };
            report_pool_error(change, &pool.id, provider_id, details)?;
            n_reported += 1;
        }
    }
    let is_full = pools.len() == limit as usize;
    let last = pools.into_iter().next_back().map(|pool| pool.id);
    Ok((n_reported, last.filter(|_| is_full)))
}

fn needs(pool: &Pool, provider_id: &ProviderId) -> bool {
    pool.provider_ids().any(|id| id == provider_id)
}

/// The pools that have a recent report of the outage.
fn known_in(
    change: &mut Change<'_, '_>,
    pools: &[Pool],
    provider_id: &ProviderId,
) -> store::Result<BTreeSet<PoolId>> {
    let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
        return Ok(BTreeSet::new());
    };
    let after = change.now.plus_millis(-AGAIN_MS);
    let (first, last) = (&first.id, &last.id);
    let reports =
        store::worker_errors::without_reporter_between(change.tx, first, last, after, KIND)?;
    let provider_id = json!(provider_id.as_str());
    let about_it = reports
        .into_iter()
        .filter(|report| report.extra.get("providerId") == Some(&provider_id));
    Ok(about_it.map(|report| report.pool_id).collect())
}
