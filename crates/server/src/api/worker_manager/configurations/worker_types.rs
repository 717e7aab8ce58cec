//! Payload schemas: what the payload of a worker type's tasks must look like, shown and checked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use access::scope::Params;
use contract::{BadSchema, PayloadSchema};
use domain::configuration::WorkerType;
use domain::id::{LaunchConfigId, PoolId};
use serde_json::{Value, json};
use store::Tx;

use super::super::super::call::Call;
use super::super::super::error::{ApiError, Code};
use super::super::super::reply::Reply;
use super::cache::compiled;
use super::no_such_configuration;
use crate::app::App;

/// So many compiled schemas are kept.
const MAX_KEPT: usize = 256;

/// Compiled payload schemas by their text.
#[derive(Default)]
pub struct PayloadSchemas(Mutex<BTreeMap<String, Arc<PayloadSchema>>>);

impl PayloadSchemas {
    fn compiled(&self, schema: &Value) -> Result<Arc<PayloadSchema>, BadSchema> {
        let text = schema.to_string();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(&text) {
            return Ok(Arc::clone(known));
        }
        let compiled = Arc::new(PayloadSchema::compile(schema)?);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(text, Arc::clone(&compiled));
        Ok(compiled)
    }
}

/// Refuses a payload that does not fit, if the worker type's configuration asks for that.
pub(in crate::api) fn check_payload(
    app: &App,
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    payload: &Value,
) -> Result<(), ApiError> {
    let Some(worker_type) = store::worker_type_get(tx, pool_id)? else {
        return Ok(());
    };
    let Some(schema) = worker_type
        .payload_schema
        .filter(|_| worker_type.check_payload)
    else {
        return Ok(());
    };
    let name = WorkerType::from(pool_id.clone());
    let schema = app.payload_schemas.compiled(&schema);
    // It was compiled when it was written.
    let schema =
        schema.map_err(|bad| ApiError::input(format!("the payload schema of {name}: {bad}")))?;
    schema.judge(payload).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("* payload{} {}", problem.pointer, problem.message)).collect();
        let text = format!(
            "The payload does not fit the payload schema of {pool_id}:\n{}\n\nThe schema is at \
             {}/api/worker-manager/v1/worker-type/{pool_id}/payload-schema; the worker configuration {} asks that \
             payloads are checked. Nothing was created.",
            lines.join("\n"),
            app.root_url,
            worker_type.configuration_id
        );
        ApiError::new(Code::InputValidationError, text)
    })
}

/// The worker type of the URL, by whichever of its names; scopes know it by the short one, if it has one.
async fn worker_type(call: &mut Call) -> Result<WorkerType, ApiError> {
    let worker_type: WorkerType = call.parameter("workerTypeId").parse()?;
    let params = Params::new().text("workerType", worker_type.name());
    call.authorize(params).await?;
    Ok(worker_type)
}

pub(super) async fn payload_schema(mut call: Call) -> Result<Reply, ApiError> {
    let worker_type = worker_type(&mut call).await?;
    let pool_id = worker_type.pool_id().clone();
    let read = call.app.store.read("worker_type_get", move |tx| {
        store::worker_type_get(tx, &pool_id)
    });
    let record = read.await?.ok_or_else(no_such_worker_type)?;
    let schema = record.payload_schema.ok_or_else(no_schema)?;
    Reply::json(&json!({
        "workerConfigurationId": record.configuration_id.as_str(),
        "checkPayload": record.check_payload,
        "payloadSchema": schema,
    }))
}

/// The schema as the rules say for the place of one launch config.
pub(super) async fn launch_config_schema(mut call: Call) -> Result<Reply, ApiError> {
    let worker_type = worker_type(&mut call).await?;
    let config_id: LaunchConfigId = call.parameter("launchConfigId").parse()?;
    let pool_id = worker_type.pool_id().clone();
    let read = call.app.store.read("worker_type_configuration", move |tx| {
        let record = store::worker_type_get(tx, &pool_id)?.ok_or_else(no_such_worker_type)?;
        let stored = store::configuration_get(tx, &record.configuration_id)?;
        let stored = stored.ok_or_else(no_such_configuration)?;
        Ok::<_, ApiError>((record, stored))
    });
    let (record, stored) = read.await?;
    let compilation = compiled(&call.app, &stored).await?;
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
    let values = compilation.evaluator().evaluate(&config.presented);
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
