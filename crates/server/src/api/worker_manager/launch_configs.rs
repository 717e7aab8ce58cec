//! The launch configs of a pool.

use domain::launch_config::LaunchConfig;
use engine::pools::PoolError;
use serde_json::{Value, json};

use super::kept_replies::kept_or_read;
use crate::api::paging::{MAX_PAGE_BYTES, Page};
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::pool_replies::Shown;

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let has_archived = call.query("includeArchived") == Some("true");
    if page.after.is_some() {
        return read(&call, page, has_archived).await;
    }
    let limit = page.limit;
    let shown = Shown::LaunchConfigs {
        limit,
        has_archived,
    };
    kept_or_read(&call, shown, read(&call, page, has_archived)).await
}

async fn read(call: &Call, page: Page<(String,)>, has_archived: bool) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let part = call.scan("launch_config_list", move |tx| {
        store::pools::get(tx, &id)?.ok_or(PoolError::NoSuchPool)?;
        let after = after.as_ref();
        let part = store::launch_configs::part(tx, &id, has_archived, after, limit, MAX_PAGE_BYTES);
        Ok::<_, PoolError>(part?)
    });
    let key = |config: &LaunchConfig| (config.id.to_string(),);
    page.reply("workerPoolLaunchConfigs", part.await?, key, document)
}

fn document(config: &LaunchConfig) -> Value {
    json!({
        "launchConfigId": config.id.as_str(),
        "workerPoolId": config.pool_id.as_str(),
        "isArchived": config.archived,
        "configuration": config.configuration,
        "created": config.created.to_string(),
        "lastModified": config.last_modified.to_string(),
    })
}
