//! Payload schemas of worker types.

use access::scope::Params;
use domain::configuration::WorkerType;
use domain::id::LaunchConfigId;
use engine::configurations::{ConfigurationError, require_compilation};
use serde_json::json;

use crate::api::{call::Call, error::ApiError, reply::Reply};

/// The worker type in the URL, by either of its names. Scopes use the short name if one exists, so
/// the caller is authorised once the name is parsed.
pub(in super::super) async fn worker_type(call: &mut Call) -> Result<WorkerType, ApiError> {
    let worker_type: WorkerType = call.id("workerTypeId")?;
    let params = Params::new().text("workerType", worker_type.name());
    call.authorize(params).await?;
    Ok(worker_type)
}

pub(super) async fn payload_schema(mut call: Call) -> Result<Reply, ApiError> {
    let worker_type = worker_type(&mut call).await?;
    let pool_id = worker_type.pool_id().clone();
    let read = call.read("worker_type_get", move |tx| {
        store::worker_types::get(tx, &pool_id)
    });
    let record = read.await?.ok_or_else(no_such_worker_type)?;
    let schema = record.payload_schema.ok_or_else(no_schema)?;
    Reply::json(&json!({
        "workerConfigurationId": record.configuration_id.as_str(),
        "checkPayload": record.check_payload,
        "payloadSchema": schema,
    }))
}

/// The schema by the rules for the place of one launch config.
pub(super) async fn launch_config_schema(mut call: Call) -> Result<Reply, ApiError> {
    let worker_type = worker_type(&mut call).await?;
    let config_id: LaunchConfigId = call.id("launchConfigId")?;
    let pool_id = worker_type.pool_id().clone();
    let read = call.read("worker_type_configuration", move |tx| {
        let Some(record) = store::worker_types::get(tx, &pool_id)? else {
            return Ok(None);
        };
        let stored = store::configurations::get(tx, &record.configuration_id)?;
        let stored = stored.ok_or(ConfigurationError::NotFound)?;
        Ok::<_, ConfigurationError>(Some((record, stored)))
    });
    let (record, stored) = read.await?.ok_or_else(no_such_worker_type)?;
    let compilation = require_compilation(&call.app.engine, &stored).await?;
    let pool = compilation
        .pool(worker_type.pool_id())
        .ok_or_else(no_such_worker_type)?;
    let mut configs = pool.launch_configs();
    let config = configs
        .find(|(provider, config)| compilation.known_id(pool, provider, config) == config_id)
        .map(|(_, config)| config)
        .ok_or_else(|| {
            ApiError::not_found("Worker type has no such launch config, or it is archived")
        })?;
    let values = compilation.evaluator().evaluate(&config.attributes);
    let schema = values.get("payloadSchema").ok_or_else(no_schema)?;
    Reply::json(&json!({
        "workerConfigurationId": record.configuration_id.as_str(),
        "checkPayload": record.check_payload,
        "payloadSchema": schema,
    }))
}

fn no_such_worker_type() -> ApiError {
    ApiError::not_found("Worker type does not exist in any worker configuration")
}

fn no_schema() -> ApiError {
    ApiError::not_found("Worker type has no payload schema")
}
