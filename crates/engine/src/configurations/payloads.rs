//! Validates payloads of tasks by the schema of their worker type.
//!
//! People write these schemas, and validating by one can take a while. So it is done on other
//! threads, a limited number at a time, and never in a transaction. Pools take turns, so slow
//! payloads delay those of their own pool. The transaction only checks that the schema is still the
//! same.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use contract::Problem;
use domain::configuration::WorkerType;
use domain::id::{ConfigurationId, PoolId};
use serde_json::Value;
use store::{StoreError, Tx};

use super::schema_cache::{CompiledSchema, SchemaCache, SchemaVersion, schema_digest};
use crate::Engine;
use crate::fair_limiter::FairLimiter;

/// At most this many payloads are validated at the same time.
const MAX_AT_ONCE: usize = 4;
/// The maximum wait for a permit. A validation takes well below a second.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Compiled payload schemas of the worker types that check payloads.
pub struct PayloadSchemas {
    cache: SchemaCache,
    limiter: FairLimiter<PoolId>,
}

impl Default for PayloadSchemas {
    fn default() -> Self {
        Self {
            cache: SchemaCache::default(),
            limiter: FairLimiter::new(MAX_AT_ONCE),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error(
        "The payloads of many tasks are being judged by their schemas, and this one did not get its turn. Nothing was \
         created; send the request again."
    )]
    TooMany,
    #[error("{0}")]
    Schema(String),
    /// A blocking job failed.
    #[error(transparent)]
    Work(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The errors of a payload by one version of its schema.
#[derive(Clone)]
pub struct Verdict {
    by: SchemaVersion,
    problems: Vec<Problem>,
}

/// The status of a payload in the transaction that creates its task.
pub enum PayloadStatus {
    Valid,
    Invalid(String),
    /// The schema has changed since, or was unknown.
    NotValidated,
}

/// Validates by the cached schema. `None`: no schema is cached; the transaction finds out whether
/// one exists.
pub async fn validate_payload(
    engine: &Engine,
    pool_id: &PoolId,
    payload: &Value,
) -> Result<Option<Verdict>, PayloadError> {
    let Some((by, schema)) = engine.payload_schemas.cache.get(pool_id) else {
        return Ok(None);
    };
    let payload = payload.clone();
    let problems = run_limited(engine, pool_id, move || {
        schema.schema.validate(&payload).err()
    });
    let problems = problems.await?.unwrap_or_default();
    Ok(Some(Verdict { by, problems }))
}

/// Caches the current schema.
pub async fn load_payload_schema(engine: &Engine, pool_id: &PoolId) -> Result<(), PayloadError> {
    let id = pool_id.clone();
    let read = engine.store.read("worker_type_schema", move |tx| {
        let Some(by) = store::worker_types::payload_schema_version(tx, &id)? else {
            return Ok::<_, PayloadError>(None);
        };
        Ok(store::worker_types::get(tx, &id)?.map(|of| (by, of)))
    });
    let Some((by, worker_type)) = read.await? else {
        engine.payload_schemas.cache.forget(pool_id);
        return Ok(());
    };
    let schema = worker_type.payload_schema.unwrap_or(Value::Bool(true));
    let known = engine.payload_schemas.cache.find(&schema_digest(&schema));
    let schema = match known {
        Some(known) => known,
        None => compile_schema(engine, pool_id, schema).await?,
    };
    engine.payload_schemas.cache.put(pool_id, by, schema);
    Ok(())
}

async fn compile_schema(
    engine: &Engine,
    pool_id: &PoolId,
    schema: Value,
) -> Result<Arc<CompiledSchema>, PayloadError> {
    let compiled = run_limited(engine, pool_id, move || CompiledSchema::compile(&schema));
    // It was compiled when it was written.
    let compiled = compiled.await?.map_err(|bad| {
        let name = WorkerType::from(pool_id.clone());
        PayloadError::Schema(format!("the payload schema of {name}: {bad}"))
    })?;
    Ok(Arc::new(compiled))
}

/// Whether the verdict holds for the current schema, and its result.
pub fn payload_status(
    engine: &Engine,
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    verdict: Option<&Verdict>,
) -> store::Result<PayloadStatus> {
    let by = store::worker_types::payload_schema_version(tx, pool_id)?;
    Ok(match (by, verdict) {
        (None, None) => PayloadStatus::Valid,
        (None, Some(_)) => {
            engine.payload_schemas.cache.forget(pool_id);
            PayloadStatus::Valid
        }
        (Some(by), Some(verdict)) if verdict.by == by => match verdict.problems.as_slice() {
            [] => PayloadStatus::Valid,
            problems => {
                PayloadStatus::Invalid(invalid_payload_message(engine, pool_id, &by.0, problems))
            }
        },
        (Some(_), Some(_) | None) => PayloadStatus::NotValidated,
    })
}

async fn run_limited<T: Send + 'static>(
    engine: &Engine,
    pool_id: &PoolId,
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PayloadError> {
    let limiter = &engine.payload_schemas.limiter;
    limiter
        .run_within(MAX_WAIT, pool_id.clone(), compute)
        .await?
        .ok_or(PayloadError::TooMany)
}

fn invalid_payload_message(
    engine: &Engine,
    pool_id: &PoolId,
    configuration_id: &ConfigurationId,
    problems: &[Problem],
) -> String {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("* payload{} {}", problem.pointer, problem.message))
        .collect();
    format!(
        "The payload does not fit the payload schema of {pool_id}:\n{}\n\nThe schema is at \
         {}/api/worker-manager/v1/worker-type/{pool_id}/payload-schema; the worker configuration {configuration_id} asks \
         that payloads are checked. Nothing was created.",
        lines.join("\n"),
        engine.root_url,
    )
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::fair_limiter;

    #[tokio::test]
    async fn concurrent_validations_have_a_limit() {
        let pool = |number: usize| format!("pp/p{number}").parse::<PoolId>().unwrap();
        for count in sizes_around("engine::configurations::payloads::MAX_AT_ONCE", MAX_AT_ONCE) {
            let limiter = PayloadSchemas::default().limiter;
            fair_limiter::tests::check_limit(limiter, count, MAX_AT_ONCE, pool).await;
        }
    }
}
