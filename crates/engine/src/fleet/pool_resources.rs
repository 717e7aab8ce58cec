//! Releases the resources that providers keep for pools, after the last machine of a pool.

use std::sync::Arc;

use cloud::CloudError;
use domain::id::{PoolId, ProviderId};
use domain::pool_resources::{PoolResources, ResourcesState};
use serde_json::json;

use super::facts::turn_of;
use super::pool_errors::{ErrorDetails, report_pool_error};
use super::resource_call::call;
use crate::Engine;
use crate::change::Change;

/// Rows of one read.
const PAGE: u32 = 50;
/// Pages of one pass; the next pass begins anew.
const MAX_PAGES: usize = 20;

/// The result of a pass over unused resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleasedPools {
    pub released: u64,
    pub failed: u64,
}

/// Releases the resources of pools that were deleted or have left the provider, once no machine is
/// left there. Failures are tried again, and reported to the owner of the pool.
pub async fn release_unused(engine: &Arc<Engine>) -> store::Result<ReleasedPools> {
    let mut done = ReleasedPools::default();
    let mut after: Option<(PoolId, ProviderId)> = None;
    for _ in 0..MAX_PAGES {
        let from = after.take();
        let read = engine.store.read("pool_resources_unused", move |tx| {
            let from = from.as_ref().map(|(pool, provider)| (pool, provider));
            store::pool_resources::list_unused(tx, from, PAGE)
        });
        let page = read.await?;
        let is_last = page.len() < PAGE as usize;
        after = page
            .last()
            .map(|row| (row.pool_id.clone(), row.provider_id.clone()));
        for row in page {
            match release(engine, row).await? {
                Some(true) => done.released += 1,
                Some(false) => done.failed += 1,
                None => {}
            }
        }
        if is_last {
            break;
        }
    }
    Ok(done)
}

/// Releases one pool's resources; whether that succeeded. `None`: not now.
async fn release(engine: &Arc<Engine>, row: PoolResources) -> store::Result<Option<bool>> {
    let now = engine.clock.now();
    if row.state == ResourcesState::Releasing && !row.is_due(now) {
        return Ok(None);
    }
    let begun = engine.change("pool_resources_release", now, move |change| {
        begin_release(change, &row)
    });
    let begun: store::Result<Option<PoolResources>> = begun.await;
    let Some(row) = begun? else {
        return Ok(None);
    };
    let asked = async {
        let provider = engine.providers.get(&row.provider_id);
        let provider = provider.map_err(|problem| CloudError::Unavailable(problem.to_string()))?;
        match provider.pool_resources() {
            Some(maker) => maker.release_pool(&row.pool_id, &row.data).await,
            None => Err(CloudError::Unavailable(
                "the provider keeps no resources for pools any more".to_owned(),
            )),
        }
    };
    let outcome = call(asked).await;
    let is_released = outcome.is_ok();
    let now = engine.clock.now();
    let written = engine.change("pool_resources_settle", now, move |change| {
        let known = store::pool_resources::get(change.tx, &row.pool_id, &row.provider_id)?;
        let Some(known) = known.filter(|known| known.version == row.version) else {
            return Ok(());
        };
        match &outcome {
            Ok(()) => store::pool_resources::delete(change.tx, &known),
            Err(problem) => write_failure(change, known, problem),
        }
    });
    let written: store::Result<()> = written.await;
    written?;
    Ok(Some(is_released))
}

/// Marks unused resources, so that nothing is launched with them. The turn of the pool's plans
/// keeps a plan that decides at the same time from not seeing this. `None`: they are in use again.
fn begin_release(
    change: &mut Change<'_, '_>,
    row: &PoolResources,
) -> store::Result<Option<PoolResources>> {
    store::turns::take(change.tx, &turn_of(&row.pool_id))?;
    let known = store::pool_resources::get(change.tx, &row.pool_id, &row.provider_id)?;
    let Some(known) = known else {
        return Ok(None);
    };
    match known.state {
        ResourcesState::Releasing => Ok(Some(known)),
        ResourcesState::Preparing | ResourcesState::Ready => {
            if store::pool_resources::is_used(change.tx, &known.pool_id, &known.provider_id)? {
                return Ok(None);
            }
            let mut releasing = known.release();
            releasing.version = store::pool_resources::update(change.tx, &releasing)?;
            Ok(Some(releasing))
        }
    }
}

fn write_failure(
    change: &mut Change<'_, '_>,
    known: PoolResources,
    problem: &CloudError,
) -> store::Result<()> {
    let failed = known.fail(problem.to_string(), change.now);
    store::pool_resources::update(change.tx, &failed)?;
    let (pool_id, provider_id) = (&failed.pool_id, &failed.provider_id);
    let details = ErrorDetails {
        kind: "release-error",
        title: "Resources Not Released",
        description: format!(
            "{provider_id} could not remove the resources of {pool_id}: {problem}. They may cost \
             money. The server tries again at {}",
            failed.next_try
        ),
        extra: json!({"code": "release", "providerId": provider_id.as_str(),
            "failures": failed.n_failures}),
        launch_config_id: None,
    };
    report_pool_error(change, pool_id, provider_id, details)
}
