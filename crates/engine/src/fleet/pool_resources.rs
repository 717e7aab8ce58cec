//! Resources that providers keep for pools: made before the first launch, released after the last
//! machine.
//!
//! The row is written before the provider is asked, so a crash between both leaves a row: then the
//! provider is asked again, or asked to remove what may exist. Providers are asked while no
//! transaction is open.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use cloud::{CloudError, LaunchError};
use domain::id::{PoolId, ProviderId};
use domain::launch::Cause;
use domain::pool::Pool;
use domain::pool_resources::{PoolResources, ResourcesState};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::facts::turn_of;
use super::pool_errors::{ErrorDetails, report_pool_error};
use crate::Engine;
use crate::change::Change;

/// Clouds make networks in minutes.
const CALL_LIMIT: Duration = Duration::from_secs(300);
/// Rows of one read.
const PAGE: u32 = 50;
/// Pages of one pass; the next pass begins anew.
const MAX_PAGES: usize = 20;

/// What a pass over unused resources did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Releases {
    pub released: u64,
    pub failed: u64,
}

/// The data of the provider for launches of this pool. Makes its resources if there are none yet.
/// The inner error refuses the launch.
pub async fn prepare_pool(
    engine: &Arc<Engine>,
    pool: &Pool,
    provider_id: &ProviderId,
) -> store::Result<Result<Value, LaunchError>> {
    let provider = engine.providers.get(provider_id);
    let Some(maker) = provider.ok().and_then(|provider| provider.pool_resources()) else {
        return Ok(Ok(Value::Null));
    };
    // Several launches of a new pool begin at once.
    let name = format!("resources:{}:{provider_id}", pool.id);
    let _lock = engine
        .launch_tracker
        .lock_decisions(BTreeSet::from([name]))
        .await;
    let known = begin(engine, &pool.id, provider_id).await?;
    let refused = |cause, error: String| Ok(Err(LaunchError::Refused { cause, error }));
    match known.state {
        ResourcesState::Ready => return Ok(Ok(known.data)),
        ResourcesState::Releasing => {
            let text = format!(
                "the earlier resources of {} at {provider_id} are being released",
                pool.id
            );
            return refused(Cause::Unavailable, text);
        }
        ResourcesState::Preparing if !known.is_due(engine.clock.now()) => {
            return refused(Cause::Unavailable, preparation_failed(&known));
        }
        ResourcesState::Preparing => {}
    }
    match call(maker.prepare_pool(pool, &known.data)).await {
        Ok(data) => {
            let completed = known.clone().complete(data.clone());
            // Another process may have been first: both have the same resources.
            match write(engine, completed).await {
                Ok(()) => Ok(Ok(data)),
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => {
            let failed = known.fail(problem.to_string(), engine.clock.now());
            let text = preparation_failed(&failed);
            write(engine, failed).await?;
            refused(cause_of(&problem), text)
        }
    }
}

fn preparation_failed(row: &PoolResources) -> String {
    format!(
        "{} could not make the resources of {}: {}. The server tries again",
        row.provider_id, row.pool_id, row.problem
    )
}

/// The row, inserted if there is none.
async fn begin(
    engine: &Arc<Engine>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
) -> store::Result<PoolResources> {
    let (pool_id, provider_id) = (pool_id.clone(), provider_id.clone());
    let now = engine.clock.now();
    let written =
        engine.change(
            "pool_resources_begin",
            now,
            move |change| match store::pool_resources::get(change.tx, &pool_id, &provider_id)? {
                Some(known) => Ok(known),
                None => {
                    let row = PoolResources::new(pool_id.clone(), provider_id.clone(), now);
                    store::pool_resources::insert(change.tx, &row)?;
                    Ok(row)
                }
            },
        );
    written.await
}

/// Writes the row, unless another process has changed it since it was read.
async fn write(engine: &Arc<Engine>, row: PoolResources) -> store::Result<()> {
    let written = engine.change("pool_resources_write", engine.clock.now(), move |change| {
        let known = store::pool_resources::get(change.tx, &row.pool_id, &row.provider_id)?;
        if known.is_some_and(|known| known.version == row.version) {
            store::pool_resources::update(change.tx, &row)?;
        }
        Ok(())
    });
    written.await
}

/// Asks the provider, within a limit.
async fn call<T>(asked: impl Future<Output = Result<T, CloudError>>) -> Result<T, CloudError> {
    let caught = AssertUnwindSafe(asked).catch_unwind();
    match tokio::time::timeout(CALL_LIMIT, caught).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(CloudError::Unavailable(
            "the provider's code panicked".to_owned(),
        )),
        Err(_) => Err(CloudError::Unavailable(format!(
            "no answer within {} s",
            CALL_LIMIT.as_secs()
        ))),
    }
}

fn cause_of(problem: &CloudError) -> Cause {
    match problem {
        CloudError::Throttled(_) => Cause::Throttled,
        CloudError::Credentials(_) => Cause::Credentials,
        CloudError::Unavailable(_) => Cause::Unavailable,
        CloudError::Refused(_) => Cause::Configuration,
    }
}

/// Releases the resources of pools that were deleted or have left the provider, once no machine is
/// left there. Failures are tried again, and reported to the owner of the pool.
pub async fn release_unused(engine: &Arc<Engine>) -> store::Result<Releases> {
    let mut done = Releases::default();
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
