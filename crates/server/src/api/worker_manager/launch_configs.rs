//! The launch configs of a pool.

use domain::launch_config::LaunchConfig;
use engine::pools::PoolError;
use serde_json::{Value, json};

use crate::api::{call::Call, error::ApiError, paging::MAX_PAGE_BYTES, reply::Reply};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let include_archived = call.query("includeArchived") == Some("true");
    let read = call.scan("launch_config_list", move |tx| {
        store::pools::get(tx, &id)?.ok_or(PoolError::NoSuchPool)?;
        let after = after.as_ref();
        let part =
            store::launch_configs::part(tx, &id, include_archived, after, limit, MAX_PAGE_BYTES);
        Ok::<_, PoolError>(part?)
    });
    let key = |config: &LaunchConfig| (config.id.to_string(),);
    page.reply("workerPoolLaunchConfigs", read.await?, key, document)
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
