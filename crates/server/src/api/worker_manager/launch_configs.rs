//! The launch configs of a pool.

use domain::id::LaunchConfigId;
use domain::launch_config::LaunchConfig;
use engine::pools::PoolError;
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::paging::MAX_PAGE_BYTES;
use super::super::reply::Reply;
use super::wire::WireTime;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LaunchConfigsReply {
    worker_pool_launch_configs: Vec<LaunchConfigReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LaunchConfigReply {
    launch_config_id: String,
    worker_pool_id: String,
    is_archived: bool,
    configuration: Map<String, Value>,
    created: WireTime,
    last_modified: WireTime,
}

impl From<LaunchConfig> for LaunchConfigReply {
    fn from(config: LaunchConfig) -> Self {
        Self {
            launch_config_id: config.id.to_string(),
            worker_pool_id: config.pool_id.to_string(),
            is_archived: config.archived,
            configuration: config.configuration,
            created: WireTime(config.created),
            last_modified: WireTime(config.last_modified),
        }
    }
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let page = call.page::<(String,)>()?;
    let after = page
        .after
        .as_ref()
        .map(|(id,)| id.parse::<LaunchConfigId>())
        .transpose()?;
    let include_archived = call.query("includeArchived") == Some("true");
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("launch_config_list", move |tx| {
        store::pools::get(tx, &id)?.ok_or(PoolError::NoSuchPool)?;
        let after = after.as_ref();
        let part =
            store::launch_configs::part(tx, &id, include_archived, after, limit, MAX_PAGE_BYTES);
        Ok::<_, PoolError>(part?)
    });
    let (configs, continuation_token) =
        page.cut_part(read.await?, |config| (config.id.to_string(),));
    let worker_pool_launch_configs = configs.into_iter().map(Into::into).collect();
    Reply::json(&LaunchConfigsReply {
        worker_pool_launch_configs,
        continuation_token,
    })
}
