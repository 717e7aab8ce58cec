//! Payloads of tasks, judged by the schema of their worker type.
//!
//! Schemas are written by people, and judging by one can take a while. So it is done beside other work, a few at a
//! time, and never within a transaction: that one only makes sure that the schema is still the one of the verdict.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{PayloadSchema, Problem};
use domain::Version;
use domain::configuration::WorkerType;
use domain::id::{ConfigurationId, PoolId};
use serde_json::Value;
use store::{StoreError, Tx};

use crate::Engine;
use crate::turns::Turns;

/// So many compiled schemas are kept.
const MAX_KEPT: usize = 256;
/// So many payloads are judged at a time.
const MAX_AT_ONCE: usize = 4;
/// A verdict takes well below a second; who waits so long for a turn comes back later.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// The version of the configuration by which a worker type's payloads are judged.
type By = (ConfigurationId, Version);

/// Compiled payload schemas of the worker types that ask for judgements.
pub struct PayloadSchemas {
    kept: Mutex<BTreeMap<PoolId, (By, Arc<PayloadSchema>)>>,
    turns: Turns,
}

impl Default for PayloadSchemas {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            turns: Turns::new(MAX_AT_ONCE),
        }
    }
}

/// Why a payload cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error(
        "The payloads of many tasks are being judged by their schemas, and this one did not get its turn. Nothing was \
         created; send the request again."
    )]
    TooMany,
    #[error("{0}")]
    Schema(String),
    /// Work beside other work came to no end.
    #[error(transparent)]
    Work(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a version of a schema says about a payload.
#[derive(Clone)]
pub struct Verdict {
    by: By,
    problems: Vec<Problem>,
}

/// A verdict in the transaction that creates the task.
pub enum Standing {
    Fits,
    /// What does not fit, for people.
    Misfit(String),
    /// There is another schema by now, or the first one.
    NotJudged,
}

impl PayloadSchemas {
    fn get(&self, pool_id: &PoolId) -> Option<(By, Arc<PayloadSchema>)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(pool_id).cloned()
    }

    fn put(&self, pool_id: &PoolId, by: By, schema: Arc<PayloadSchema>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT && !kept.contains_key(pool_id) {
            kept.pop_first();
        }
        kept.insert(pool_id.clone(), (by, schema));
    }

    fn forget(&self, pool_id: &PoolId) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(pool_id);
    }
}

/// By the schema that was used last. `None`: none is known; the transaction finds out whether there is one.
pub async fn judge_payload(
    engine: &Engine,
    pool_id: &PoolId,
    payload: &Value,
) -> Result<Option<Verdict>, PayloadError> {
    match engine.payload_schemas.get(pool_id) {
        Some((by, schema)) => {
            let payload = payload.clone();
            let problems = in_turn(engine, move || schema.validate(&payload).err());
            let problems = problems.await?.unwrap_or_default();
            Ok(Some(Verdict { by, problems }))
        }
        None => Ok(None),
    }
}

/// Takes note of the schema as it is now.
pub async fn learn_payload_schema(engine: &Engine, pool_id: &PoolId) -> Result<(), PayloadError> {
    let id = pool_id.clone();
    let read = engine.store.read("worker_type_schema", move |tx| {
        match store::worker_types::payload_schema_version(tx, &id)? {
            Some(by) => {
                Ok::<_, PayloadError>(store::worker_types::get(tx, &id)?.map(|of| (by, of)))
            }
            None => Ok(None),
        }
    });
    let Some((by, worker_type)) = read.await? else {
        engine.payload_schemas.forget(pool_id);
        return Ok(());
    };
    let schema = worker_type.payload_schema.unwrap_or(Value::Bool(true));
    let compiled = in_turn(engine, move || PayloadSchema::compile(&schema)).await?;
    // It was compiled when it was written.
    let compiled = compiled.map_err(|bad| {
        let name = WorkerType::from(pool_id.clone());
        PayloadError::Schema(format!("the payload schema of {name}: {bad}"))
    })?;
    engine.payload_schemas.put(pool_id, by, Arc::new(compiled));
    Ok(())
}

/// Whether the verdict is one by the schema as it is now, and what it is.
pub fn payload_standing(
    engine: &Engine,
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    verdict: Option<&Verdict>,
) -> Result<Standing, StoreError> {
    let by = store::worker_types::payload_schema_version(tx, pool_id)?;
    Ok(match (by, verdict) {
        (None, None) => Standing::Fits,
        (None, Some(_)) => {
            engine.payload_schemas.forget(pool_id);
            Standing::Fits
        }
        (Some(by), Some(verdict)) if verdict.by == by => match verdict.problems.as_slice() {
            [] => Standing::Fits,
            problems => Standing::Misfit(misfit(engine, pool_id, &by.0, problems)),
        },
        (Some(_), Some(_) | None) => Standing::NotJudged,
    })
}

async fn in_turn<T: Send + 'static>(
    engine: &Engine,
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PayloadError> {
    let turns = &engine.payload_schemas.turns;
    turns
        .run_within(MAX_WAIT, compute)
        .await?
        .ok_or(PayloadError::TooMany)
}

fn misfit(
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
    use crate::turns;

    #[test]
    fn so_many_schemas_are_kept_and_the_one_learnt_last_is_among_them() {
        let pool = |number: usize| format!("pp/p{number:04}").parse::<PoolId>().unwrap();
        let schema = Arc::new(PayloadSchema::compile(&Value::Bool(true)).unwrap());
        let by = |version| ("c".parse::<ConfigurationId>().unwrap(), Version(version));
        for count in sizes_around("engine::configurations::payloads::MAX_KEPT", MAX_KEPT) {
            let schemas = PayloadSchemas::default();
            let n_kept = || {
                (0..count)
                    .filter(|number| schemas.get(&pool(*number)).is_some())
                    .count()
            };
            for number in 0..count {
                schemas.put(&pool(number), by(1), Arc::clone(&schema));
                assert!(schemas.get(&pool(number)).is_some());
            }
            assert_eq!(n_kept(), count.min(MAX_KEPT));
            // A new version takes the place of the old one, and no other.
            if let Some(last) = count.checked_sub(1) {
                schemas.put(&pool(last), by(2), Arc::clone(&schema));
                assert_eq!(schemas.get(&pool(last)).unwrap().0, by(2));
            }
            assert_eq!(n_kept(), count.min(MAX_KEPT));
        }
    }

    #[tokio::test]
    async fn so_many_payloads_are_judged_at_a_time() {
        for count in sizes_around("engine::configurations::payloads::MAX_AT_ONCE", MAX_AT_ONCE) {
            turns::tests::check(&PayloadSchemas::default().turns, count, MAX_AT_ONCE).await;
        }
    }
}
