//! Worker pools: creates, updates, deletes and shows them.

use domain::audit::EntityType;
use domain::counts;
use domain::id::PoolId;
use domain::launch_config::LaunchConfig;
use domain::provider_list;
use engine::image_references::MissingImages;
use engine::pools::{self, PoolDetails, PoolError, PoolRequest, ValidatedPool};
use store::StoreError;

use super::kept_replies::kept_or_read;
use super::wire::{PoolBody, PoolReply};
use crate::api::{call::Call, error::ApiError, paging::MAX_PAGE_BYTES, reply::Reply};
use crate::pool_replies::Shown;

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let validated = validated(&mut call, body, MissingImages::Refuse).await?;
    let audit = call.audit(EntityType::WorkerPool, id.as_str(), "created");
    let written = call.change("pool_create", move |change| {
        pools::create(change, &id, validated.clone(), &audit)
    });
    reply(&written.await?)
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let claimed = body.worker_pool_id.clone();
    let validated = validated(&mut call, body, MissingImages::Refuse).await?;
    if claimed.is_some_and(|claimed| claimed != id.as_str()) {
        return Err(ApiError::input("Incorrect workerPoolId in request body"));
    }
    let audit = call.audit(EntityType::WorkerPool, id.as_str(), "updated");
    let written = call.change("pool_redefine", move |change| {
        pools::update(change, &id, validated.clone(), &audit)
    });
    reply(&written.await?)
}

pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let audit = call.audit(EntityType::WorkerPool, id.as_str(), "deleted");
    let written = call.change("pool_redefine", move |change| {
        pools::delete(change, &id, &audit)
    });
    reply(&written.await?)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let read = async {
        let loaded = call.read("pool_show", move |tx| {
            PoolDetails::find(tx, &id)?.ok_or(PoolError::NoSuchPool)
        });
        reply(&loaded.await?)
    };
    kept_or_read(&call, Shown::Pool, read).await
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let read = call.scan("pool_list", move |tx| {
        let part = store::pools::part(tx, after.as_ref(), limit, MAX_PAGE_BYTES)?;
        let (Some(first), Some(last)) = (part.items.first(), part.items.last()) else {
            return Ok::<_, StoreError>((part, Vec::new(), Vec::new()));
        };
        let counts = store::worker_counts::between(tx, &first.id, &last.id)?;
        let configs = store::launch_configs::active_between(tx, &first.id, &last.id)?;
        Ok((part, configs, counts))
    });
    let (part, configs, by_pool) = read.await?;
    let (pools, token) = page.cut_part(part, |pool| (pool.id.to_string(),));
    let replies = pools.iter().map(|pool| {
        let counts = counts::of_pool(&by_pool, &pool.id);
        PoolReply::new(pool, of_pool(&configs, &pool.id), &counts)
    });
    Reply::list("workerPools", replies, token)
}

/// The launch configs of one pool; the list is ordered by pool.
fn of_pool<'a>(configs: &'a [LaunchConfig], id: &PoolId) -> &'a [LaunchConfig] {
    let start = configs.partition_point(|config| config.pool_id < *id);
    let end = configs.partition_point(|config| config.pool_id <= *id);
    &configs[start..end]
}

/// Authorises the caller for each provider, and has the providers check the definition.
pub(super) async fn validated(
    call: &mut Call,
    body: PoolBody,
    if_missing: MissingImages,
) -> Result<ValidatedPool, ApiError> {
    let params = call.url_params().text("providerId", &body.provider_id);
    call.authorize(params).await?;
    call.authorize_images(&body.config).await?;
    let asked = asked(call.pool_id()?, body)?;
    for further in asked.listed.iter().flatten().skip(1) {
        let params = call.url_params().text("providerId", further.as_str());
        call.authorize(params).await?;
    }
    match pools::validate(&call.app.engine, asked, if_missing).await {
        Ok(validated) => Ok(validated),
        Err(invalid) => {
            refuse_compiled(call).await?;
            Err(invalid.into())
        }
    }
}

/// No config can change a pool that is made of rules, so this says more than what is wrong with it.
async fn refuse_compiled(call: &Call) -> Result<(), ApiError> {
    let id = call.pool_id()?;
    let read = call.read("pool_is_compiled", move |tx| {
        store::pools::get(tx, &id)?
            .as_ref()
            .map_or(Ok(()), pools::refuse_compiled)
    });
    read.await
}

fn asked(id: PoolId, body: PoolBody) -> Result<PoolRequest, PoolError> {
    let provider_id = body.provider_id.parse();
    let provider_id = provider_id.map_err(|_| PoolError::UnknownProvider)?;
    Ok(PoolRequest {
        id,
        listed: provider_list::provider_ids(&provider_id, &body.config)?,
        provider_id,
        description: body.description,
        config: body.config,
        owner: body.owner,
        email_on_error: body.email_on_error,
    })
}

fn reply(details: &PoolDetails) -> Result<Reply, ApiError> {
    let (pool, counts) = (&details.pool, &details.counts);
    Reply::json(&PoolReply::new(pool, &details.launch_configs, counts))
}

pub(super) fn no_such_pool() -> ApiError {
    PoolError::NoSuchPool.into()
}
