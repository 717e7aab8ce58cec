//! Conformance runs: questions to a provider, with one machine if the caller wants that.
//!
//! A run belongs to this process and goes on without its caller. Its machine has a token like that
//! of a launch and no row. So the run ends it; if the process is killed meanwhile, the scan does,
//! as it does with each machine of an unknown launch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::pause;
use async_trait::async_trait;
use cloud::{ConformanceFinding, ConformanceHost, ConformanceRun, Provider};
use domain::audit::AuditEntry;
use domain::id::{PoolId, ProviderId};
use domain::launch_config::LaunchConfig;
use domain::plan::remove_planning_keys;
use domain::pool::{Pool, PoolDefinition};
use domain::pool_resources::{PoolResources, ResourcesState};
use domain::provider_list::{PROVIDERS_KEY, split};
use domain::time::Timestamp;
use serde_json::{Map, Value, json};
use store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::WorkerError;
use crate::Engine;
use crate::provider_tests::{
    DoneGuard, NoRun, ProviderTestOrder, ProviderTestProgress, TestRun, TestedConfig,
};

/// The pool of a machine that is made for a launch config of the caller.
const MADE_UP_POOL: &str = "fleetwright/provider-test";
/// Time for looks at a machine before its end begins, and for looks at its end.
const LOOKS_LIMIT: Duration = Duration::from_secs(8 * 60);
/// The first wait between two looks, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Begins a run, or waits for it. Returns the answers so far.
pub async fn test_provider(
    engine: &Arc<Engine>,
    order: ProviderTestOrder,
    audit: AuditEntry,
) -> Result<ProviderTestProgress, WorkerError> {
    let id = &order.provider_id;
    let provider = engine.providers.configured_as(id);
    let provider =
        provider.ok_or_else(|| WorkerError::NotFound(format!("Provider {id} does not exist")))?;
    let known = engine.provider_tests.known(&order);
    let run = match known.map_err(|why| refuse(&order, &why))? {
        Some(run) => run,
        None => begin(engine, provider, &order, audit).await?,
    };
    let mut progress = run.progress.subscribe();
    let done = progress.wait_for(|it| it.is_done);
    let _late = tokio::time::timeout(order.wait, done).await;
    let progress = run.progress.borrow().clone();
    Ok(progress)
}

fn refuse(order: &ProviderTestOrder, why: &NoRun) -> WorkerError {
    let (provider_id, id) = (&order.provider_id, &order.id);
    match why {
        NoRun::Busy => WorkerError::Conflict(format!(
            "another test of provider {provider_id} runs: try again when it has ended"
        )),
        NoRun::Unknown => WorkerError::NotFound(format!(
            "This process does not know test {id} of provider {provider_id}: another one runs it, \
             or this one was restarted"
        )),
    }
}

async fn begin(
    engine: &Arc<Engine>,
    provider: &Arc<dyn Provider>,
    order: &ProviderTestOrder,
    audit: AuditEntry,
) -> Result<TestRun, WorkerError> {
    let now = engine.clock.now();
    let (pool, pool_data) = match &order.subject {
        None if order.launches => {
            return Err(WorkerError::Refused(
                "a machine needs a launch config: name a pool or give a launch config".to_owned(),
            ));
        }
        None => (None, Value::Null),
        Some(TestedConfig::LaunchConfig(content)) => (
            Some(made_up(&order.provider_id, content, now)?),
            Value::Null,
        ),
        Some(TestedConfig::Pool(pool_id)) => {
            let (pool, data) = stored(engine, pool_id, &order.provider_id).await?;
            (Some(pool), data)
        }
    };
    let written = engine.change("provider_test", now, move |change| {
        store::audit::insert(change.tx, &audit)
    });
    written.await?;
    let entered = engine.provider_tests.enter(order);
    let run = entered.map_err(|why| refuse(order, &why))?;
    let guard = DoneGuard(Arc::clone(&run.progress));
    let (engine, provider) = (Arc::clone(engine), Arc::clone(provider));
    let is_made_up = matches!(order.subject, Some(TestedConfig::LaunchConfig(_)));
    // Not the id of the run: the caller chooses that, and it could be the token of a launch, whose
    // machines would be taken for those of the run and be ended.
    let token = engine.random.slugid().parse();
    let token = token.ok().filter(|_| order.launches);
    let provider_id = order.provider_id.clone();
    let host = RunHost {
        engine: Arc::clone(&engine),
        progress: Arc::clone(&run.progress),
        until: Mutex::new(Instant::now() + LOOKS_LIMIT),
        next_wait: Mutex::new(FIRST_WAIT),
    };
    let asking = async move {
        // Those who wait are woken also after a panic.
        let _guard = guard;
        let run = ConformanceRun {
            provider_id: &provider_id,
            provider: provider.as_ref(),
            root_url: &host.engine.root_url,
            pool,
            is_made_up,
            pool_data,
            token,
        };
        run.ask(&host).await;
    };
    engine.launch_tracker.spawn(asking);
    Ok(run)
}

struct RunHost {
    engine: Arc<Engine>,
    progress: Arc<watch::Sender<ProviderTestProgress>>,
    until: Mutex<Instant>,
    next_wait: Mutex<Duration>,
}

#[async_trait]
impl ConformanceHost for RunHost {
    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    /// When the process stops, the machine is ended at once.
    async fn wait(&self) -> bool {
        let wait = {
            let mut next = self
                .next_wait
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let wait = *next;
            *next = (wait * 2).min(LONGEST_WAIT);
            wait
        };
        pause(wait).await;
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        Instant::now() < until && !self.engine.launch_tracker.is_finishing()
    }

    fn begin_end(&self) {
        let until = Instant::now() + LOOKS_LIMIT;
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn note(&self, finding: ConformanceFinding) {
        self.progress
            .send_modify(|progress| progress.findings.push(finding));
    }
}

/// A pool for a launch config of the caller.
fn made_up(
    provider_id: &ProviderId,
    content: &Map<String, Value>,
    now: Timestamp,
) -> Result<Pool, WorkerError> {
    let config = [
        ("minCapacity", json!(0)),
        ("maxCapacity", json!(1)),
        ("launchConfigs", json!([content])),
    ];
    let config = config.map(|(key, value)| (key.to_owned(), value));
    let definition = PoolDefinition {
        provider_id: provider_id.clone(),
        further_provider_ids: Vec::new(),
        description: "A machine for a test of the provider.".to_owned(),
        config: Map::from_iter(config),
        owner: "provider-test@example.com".to_owned(),
        email_on_error: false,
    };
    let id = MADE_UP_POOL.parse::<PoolId>();
    let id = id.map_err(|bad| WorkerError::Refused(bad.to_string()))?;
    Ok(Pool::new(id, definition, now))
}

/// A pool with its launch configs for this provider, and the data of its resources.
async fn stored(
    engine: &Engine,
    pool_id: &PoolId,
    provider_id: &ProviderId,
) -> Result<(Pool, Value), WorkerError> {
    let (id, provider) = (pool_id.clone(), provider_id.clone());
    let read = engine.store.read("provider_test_pool", move |tx| {
        let pool = store::pools::get(tx, &id)?;
        let configs = store::launch_configs::active_of(tx, std::slice::from_ref(&id))?;
        let resources = store::pool_resources::get(tx, &id, &provider)?;
        Ok::<_, StoreError>((pool, configs, resources))
    });
    let (pool, configs, resources) = read.await?;
    let pool =
        pool.ok_or_else(|| WorkerError::NotFound(format!("Worker pool {pool_id} does not exist")))?;
    if !pool.has_provider(provider_id) {
        let text = format!("worker pool {pool_id} does not have the provider {provider_id}");
        return Err(WorkerError::Refused(text));
    }
    let pool = with_launch_configs(pool, provider_id, configs)?;
    let is_ready = |it: &PoolResources| it.state == ResourcesState::Ready;
    let data = resources.filter(is_ready).map(|it| it.data);
    Ok((pool, data.unwrap_or(Value::Null)))
}

/// The pool as this provider is asked about it.
fn with_launch_configs(
    mut pool: Pool,
    provider_id: &ProviderId,
    configs: Vec<LaunchConfig>,
) -> Result<Pool, WorkerError> {
    let ids: Vec<ProviderId> = pool.provider_ids().cloned().collect();
    let launched = configs.into_iter().filter(|it| it.host_origin().is_none());
    let contents: Vec<_> = launched.map(|it| it.configuration).collect();
    let shares = split(&ids, &contents).map_err(|bad| WorkerError::Refused(bad.to_string()))?;
    let own = ids.iter().zip(shares).find(|(id, _)| *id == provider_id);
    let own = own.map(|(_, share)| share).unwrap_or_default();
    let own: Vec<Value> = own.into_iter().map(|(_, it)| Value::Object(it)).collect();
    let config = &mut pool.definition.config;
    config.remove(PROVIDERS_KEY);
    remove_planning_keys(config);
    config.insert("launchConfigs".to_owned(), Value::Array(own));
    Ok(pool)
}
