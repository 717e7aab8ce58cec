//! Reports a provider that is out of service to the pools that need it.
//!
//! So it is an error of these pools like others: with an event, in their lists, and in notices to
//! their owners.

use std::sync::Arc;

use domain::error_report::ErrorReport;
use domain::id::{PoolId, ProviderId};
use domain::pool::Pool;
use domain::time::{DAY_MS, Timestamp};
use serde_json::json;
use store::worker_errors::ErrorFilter;

use super::pool_errors::{ErrorDetails, report_pool_error};
use crate::Engine;
use crate::change::Change;

const KIND: &str = "provider-error";
/// An outage that goes on is reported again after this time.
const AGAIN_MS: i64 = DAY_MS;
/// Errors of a pool among which a report of the outage is looked for.
const RECENT: u32 = 50;

/// How many pools one call looks at; the next call for an outage is the next day.
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
    let mut n_reported = 0;
    for pool in &pools {
        if needs(pool, provider_id) && !is_known(change, &pool.id, provider_id)? {
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

fn is_known(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
) -> store::Result<bool> {
    let filter = ErrorFilter::default();
    let recent = store::worker_errors::list(change.tx, pool_id, &filter, None, RECENT)?;
    let now = change.now;
    Ok(recent
        .iter()
        .any(|report| is_about(report, provider_id, now)))
}

fn is_about(report: &ErrorReport, provider_id: &ProviderId, now: Timestamp) -> bool {
    report.kind == KIND
        && report.extra.get("providerId") == Some(&json!(provider_id.as_str()))
        && now.millis_since(report.reported) < AGAIN_MS
}
