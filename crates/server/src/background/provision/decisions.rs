//! Carries out decisions on pools, and summarises them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use domain::facts::Facts;
use domain::id::PoolId;
use engine::Engine;
use engine::fleet::{self, CommittedPlan};
use engine::measures::{POOL_PROVISION_SECONDS, Stopwatch};
use engine::taskcluster_records::{Record, Severity};
use futures_util::FutureExt;
use serde_json::json;
use store::{StoreError, Tx};

use super::super::driver::{ActivationResult, summary};

/// Maximum number of pools that are decided on at the same time.
pub(super) const AT_ONCE: usize = 16;

/// Why the facts of pools could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// A row of one of the pools; the others can be read without it.
    #[error(transparent)]
    Corrupt(StoreError),
    #[error("{0}")]
    Other(String),
}

impl From<StoreError> for ReadError {
    fn from(problem: StoreError) -> Self {
        if matches!(problem, StoreError::Corrupt { .. }) {
            return Self::Corrupt(problem);
        }
        Self::Other(problem.to_string())
    }
}

impl From<String> for ReadError {
    fn from(problem: String) -> Self {
        Self::Other(problem)
    }
}

pub(super) struct Decision {
    pub(super) pool_id: PoolId,
    /// `None`: nothing to do.
    pub(super) result: Result<Option<CommittedPlan>, String>,
}

/// Why a pool is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The pool was woken.
    WakeUp,
    /// It is the pool's turn in a round: other decisions go first.
    Round,
}

/// Decides on a pool whose launch configs have not been read.
pub(super) async fn decide(engine: &Arc<Engine>, facts: Facts, cause: Cause) -> Decision {
    let pool_id = facts.pool.id.clone();
    let provider_id = facts.pool.definition.provider_id.clone();
    let watch = Stopwatch::start();
    let deciding = AssertUnwindSafe(async {
        let (store, name) = (&engine.store, "provision_launch_configs");
        let read = move |tx: &mut Tx<'_>| fleet::add_launch_configs(tx, facts);
        let facts = match cause {
            Cause::WakeUp => store.scan(name, read).await?,
            Cause::Round => store.survey(name, read).await?,
        };
        fleet::decide(engine, facts).await
    });
    let result = match deciding.catch_unwind().await {
        Ok(decided) => decided.map_err(|problem| problem.to_string()),
        Err(_) => Err("the decision panicked".to_owned()),
    };
    let took = watch.elapsed();
    if engine.taskcluster_records {
        let record = Record {
            kind: "worker-pool-provisioned",
            version: 2,
            severity: Severity::Info,
            fields: json!({
                "workerPoolId": pool_id.as_str(),
                "providerId": provider_id.as_str(),
                "duration": took.as_secs_f64() * 1_000.0,
            }),
        };
        record.write();
    }
    if engine.taskcluster_names {
        let labels = [
            ("workerPoolId", pool_id.to_string()),
            ("providerId", provider_id.to_string()),
        ];
        metrics::histogram!(POOL_PROVISION_SECONDS, &labels).record(took.as_secs_f64());
    }
    Decision { pool_id, result }
}

/// A summary of decisions.
#[derive(Default)]
pub(super) struct Done {
    pools: u64,
    launches: u64,
    advised: u64,
    n_failed: u64,
    first_failure: Option<(PoolId, String)>,
}

impl Done {
    /// Carries out a decision in a task of its own.
    pub(super) fn add(&mut self, engine: &Arc<Engine>, decision: Decision) {
        match decision.result {
            Ok(None) => {}
            Ok(Some(decided)) => {
                self.pools += 1;
                self.launches += decided.launches.len() as u64;
                self.advised += decided.plan.advice.len() as u64;
                log_plan(&decided);
                fleet::start_launches(engine, &decided.pool, decided.launches);
            }
            Err(problem) => {
                let id = decision.pool_id;
                tracing::error!(pool.id = %id, "cannot decide on {id}: {problem}");
                self.failed(id, problem);
            }
        }
    }

    pub(super) fn failed(&mut self, id: PoolId, problem: String) {
        self.n_failed += 1;
        self.first_failure.get_or_insert((id, problem));
    }

    /// A single failed pool makes the activation fail, so that the failure is visible.
    pub(super) fn summary(self) -> ActivationResult {
        match (self.n_failed, self.first_failure) {
            (0, _) | (_, None) => Ok(summary(&[
                ("pools", self.pools),
                ("launches", self.launches),
                ("advised", self.advised),
            ])),
            (1, Some((id, problem))) => Err(format!("cannot decide on {id}: {problem}").into()),
            (count, Some((id, problem))) => {
                Err(format!("cannot decide on {count} pools; on {id}: {problem}").into())
            }
        }
    }
}

fn log_plan(decided: &CommittedPlan) {
    let id = &decided.pool.id;
    let launches = decided.launches.iter();
    let machines: u32 = launches.map(|planned| planned.launch.machines).sum();
    if let Some(alarm) = &decided.plan.alarm {
        tracing::warn!(pool.id = %id, "{id}: {alarm}");
    }
    tracing::info!(pool.id = %id, plan.number = decided.number, plan.machines = machines,
        plan.advised = decided.plan.advice.len(),
        "plan {} for {id}: {}", decided.number, decided.plan.reasons.join("; "));
}
