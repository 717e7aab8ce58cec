//! Builds the app from a configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use access::authenticate::Policy;
use access::seal::Keyring;
use api_client::with_causes;
use backplane::{DemandError, QueueAccess, TaskclusterQueue};
use cloud::{Provider, ProviderUnavailable, Providers, StrategyClient, StrategyContext};
use contract::Schemas;
use domain::Version;
use domain::access::{ClientRecord, token_purpose};
use domain::id::{ClientId, ProviderId};
use domain::time::{Clock, DAY_MS, Timestamp};
use domain::worker_credentials::ISSUER_SCOPES;
use engine::Engine;
use engine::artifacts::Artifacts;
use engine::availability::Availability;
use engine::configurations::{CompilationCache, PayloadSchemas};
use engine::database_clock::DatabaseClock;
use engine::demand::DemandSource;
use engine::fleet::{LaunchAnswers, LaunchTracker};
use engine::issuer::WorkerIssuer;
use engine::life_spans::LifeObserver;
use engine::phase_measures::PhaseMeasures;
use engine::provider_tests::ProviderTests;
use engine::queue::Queue;
use engine::random::Random;
use engine::strategy_services::StrategyServices;
use engine::wakeups::Wakeups;
use images::LiveBuilds;
use rand::SeedableRng;
use rand::rngs::StdRng;
use store::{Store, StoreError, Tx};
use tokio::time::timeout;

use crate::app::App;
use crate::authentication::{Authenticator, EmbeddedAuthenticator, RemoteAuthenticator};
use crate::background::BROKER_READER;
use crate::config::{Config, ConfigError, ConfiguredSecrets, LogFormat, OutsideQueue};
use crate::configured_providers::build_providers;
use crate::events::{CatchUp, EventStream};
use crate::health::HealthMonitor;
use crate::hosts::Hosts;
use crate::limits::{BodyBudget, OpenCalls, RefusalLog};
use crate::notify::{self, Channel, ChannelsError};
use crate::openid::{OpenId, OpenIdSetUpError};
use crate::pool_replies::PoolReplies;
use crate::telemetry::{Telemetry, Traces, TracesError};
use crate::tree::SharedTree;
use tls::{TlsAcceptor, TlsError};

/// Our own client that issues the workers' credentials.
pub const ISSUER: &str = "static/taskcluster/worker-manager";
/// Our own client that issues the credentials of tasks' runs; a task may have any scope.
pub const QUEUE_ISSUER: &str = "static/taskcluster/queue";
/// Static clients expire in the very distant future.
const STATIC_LIFE_MS: i64 = 1_000 * 365 * DAY_MS;
const STATIC_PREFIX: &str = "static/";
/// Static clients are read in pages of this size.
const PAGE: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the configuration is not valid")]
    Config(#[from] ConfigError),
    #[error("the database is not usable")]
    Store(#[from] StoreError),
    #[error("cannot create the HTTP client for the auth service")]
    Http(#[from] reqwest::Error),
    #[error("the certificate of `tls` is not usable")]
    Tls(#[from] TlsError),
    #[error("a strategy service cannot be used: {0}")]
    Strategy(String),
    #[error("notices of errors cannot be sent")]
    Notices(#[from] ChannelsError),
    #[error("the collector of traces cannot be used")]
    Traces(#[from] TracesError),
    #[error("people cannot sign in at the provider of page.openid")]
    OpenId(#[from] OpenIdSetUpError),
    #[error("cannot use another deployment's queue")]
    Queue(#[from] DemandError),
    #[error("{0:?} is not a client id")]
    ClientId(String),
    #[error("cannot decrypt the access token of {0}: is its key still in keys.file?")]
    Sealed(ClientId),
}

/// A client from the configuration.
struct ConfiguredClient {
    id: ClientId,
    /// `None`: the token may be any, and an existing one is kept.
    token: Option<Secret>,
    scopes: Vec<String>,
    description: String,
}

/// Time for the providers' first set-up before the first request is answered. Slower ones are tried
/// again in the background.
const FIRST_SET_UP: Duration = Duration::from_secs(5);

/// Pause between two attempts to reach the database at the start.
const DATABASE_RETRY: Duration = Duration::from_secs(1);

/// Opens the database, reads its time, migrates it, and builds the app, with additional providers.
pub async fn start(
    config: Config,
    clock: Arc<DatabaseClock>,
    random: Random,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
) -> Result<Arc<App>, StartError> {
    config.check()?;
    let (parts, telemetry) = (Parts::of(&config)?, Telemetry::of_process());
    close_artifacts(&config);
    let store = Store::open(&config.database.options())?;
    let reading = store.read("database_clock", store::probe::clock);
    clock.measure::<StoreError>(reading).await?;
    assemble(config, parts, store, telemetry, clock, random, further).await
}

/// Waits while the database is away: after a power cut, all machines start at once. Other problems
/// are those of the start.
pub async fn await_database(config: &Config) {
    let options = store::Options {
        connections: 1,
        ..config.database.options()
    };
    if options.url.starts_with("sqlite:") {
        return;
    }
    let Ok(store) = Store::open(&options) else {
        return;
    };
    while let Err(error) = store.ping().await
        && error.is_away()
    {
        let text = with_causes(&error);
        tracing::warn!(error = %text, "waiting for the database: {text}");
        let _ = timeout(DATABASE_RETRY, std::future::pending::<()>()).await;
    }
    store.close().await;
}

/// The folder of artifacts in that of the data is ours, whatever its mode was. Each file in it is
/// private, too.
fn close_artifacts(config: &Config) {
    let ours = config.artifacts.folder.is_none();
    let folder = config.artifact_folder().filter(|_| ours);
    if let Some(Err(error)) = folder.as_deref().map(permissions::close) {
        tracing::warn!("cannot close the folder of artifacts to other users: {error}");
    }
}

/// As `start`, with additional providers and with metrics of its own: for tests.
pub async fn start_with(
    config: Config,
    clock: Arc<dyn Clock>,
    random: Random,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
) -> Result<Arc<App>, StartError> {
    config.check()?;
    let (parts, telemetry) = (Parts::of(&config)?, Telemetry::default());
    let store = Store::open(&config.database.options())?;
    assemble(config, parts, store, telemetry, clock, random, further).await
}

/// As `start_with`, on an open database: for simulations.
pub async fn start_on(
    store: Store,
    config: Config,
    clock: Arc<dyn Clock>,
    random: Random,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
) -> Result<Arc<App>, StartError> {
    let (parts, telemetry) = (Parts::of(&config)?, Telemetry::default());
    assemble(config, parts, store, telemetry, clock, random, further).await
}

/// The parts that are built from the configuration alone, before a database is opened.
struct Parts {
    notices: Vec<Arc<dyn Channel>>,
    keyring: Arc<Keyring>,
    openid: Option<Arc<OpenId>>,
    secrets: ConfiguredSecrets,
    traces: Option<Arc<Traces>>,
}

impl Parts {
    fn of(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            notices: notify::channels(config)?,
            keyring: Arc::new(config.keyring()?),
            openid: open_provider(config)?,
            secrets: ConfiguredSecrets::read(config)?,
            traces: Traces::of(&config.traces)?.map(Arc::new),
        })
    }
}

/// The provider at which people sign in to the pages. It is asked for nothing yet.
fn open_provider(config: &Config) -> Result<Option<Arc<OpenId>>, OpenIdSetUpError> {
    let settings = config.page.openid.as_deref();
    settings.map(|it| OpenId::new(it).map(Arc::new)).transpose()
}

async fn assemble(
    config: Config,
    Parts {
        notices,
        keyring,
        openid,
        secrets,
        traces,
    }: Parts,
    store: Store,
    telemetry: Telemetry,
    clock: Arc<dyn Clock>,
    random: Random,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
) -> Result<Arc<App>, StartError> {
    let now = clock.now();
    for applied in store.migrate(now.as_millis()).await? {
        tracing::info!("migrated the database: {applied}");
    }
    let (authenticator, issuer, queue_issuer) =
        open_authenticator(&config, &store, &keyring, &random, now).await?;
    let demand_source = open_demands(config.queue.taskcluster.as_ref(), &clock, &random)?;
    let schemas = Schemas::new();
    let strategy_services = build_strategy_services(&config, &keyring, &clock, schemas)?;
    let configured = build_providers(&config, &keyring, &clock, schemas);
    let providers = Providers::new(configured.into_iter().chain(further).collect());
    set_up(&store, &providers).await?;
    let events = open_events(&config, &store, random.slugid()).await?;
    let tls = config.tls.clone().map(TlsAcceptor::new).transpose()?;
    let failed_authentications = OpenCalls::new(config.server.open_calls_per_minute);
    let engine = Engine {
        root_url: config.root_url(),
        store,
        random: Arc::new(random),
        providers,
        strategies: config.planning.defaults(),
        strategy_services,
        queue: Queue::new(queue_issuer),
        wakeups: Wakeups::default(),
        demand_source,
        launch_tracker: LaunchTracker::default(),
        provider_tests: ProviderTests::default(),
        phase_measures: PhaseMeasures::default(),
        launch_answers: LaunchAnswers::default(),
        availability: Availability::new(now),
        artifacts: Artifacts::new(config.artifact_folder(), config.artifacts.limits()),
        schemas,
        keyring,
        issuer,
        compilations: CompilationCache::default(),
        payload_schemas: PayloadSchemas::default(),
        claim_seconds: config.queue.claim_seconds,
        taskcluster_records: config.log.format == LogFormat::Taskcluster,
        taskcluster_names: config.metrics.taskcluster_names,
        life_observer: traces.clone().map(|traces| traces as Arc<dyn LifeObserver>),
        error_reports_per_hour: config.worker_manager.max_error_reports_per_hour,
        clock,
    };
    Ok(Arc::new(App {
        hosts: Hosts::of(&config),
        refusals: RefusalLog::new(config.log.refusals_per_minute),
        body_budget: BodyBudget::new(config.server.body_memory_bytes),
        open_calls: OpenCalls::new(config.server.open_calls_per_minute),
        config,
        builder_keys: Arc::new(engine.keyring.of_builders()),
        engine: Arc::new(engine),
        secrets,
        authenticator,
        telemetry,
        traces,
        events,
        notices,
        openid,
        tls: tls.map(Arc::new),
        health: HealthMonitor::default(),
        failed_authentications,
        pool_replies: PoolReplies::default(),
        fleet_status: Arc::default(),
        what_ifs: Arc::default(),
        started: now,
        tree: SharedTree::default(),
        live_builds: LiveBuilds::default(),
    }))
}

/// Sets the providers up. Those that fail are tried again in the background.
async fn set_up(store: &Store, providers: &Providers) -> Result<(), StartError> {
    warn_of_missing_providers(store, providers).await?;
    for (id, problem) in providers.set_up_missing(FIRST_SET_UP).await.1 {
        tracing::warn!(provider.id = %id, "provider {id} failed to start: {problem}");
    }
    Ok(())
}

/// The queue: ours, or another deployment's.
fn open_demands(
    outside: Option<&OutsideQueue>,
    clock: &Arc<dyn Clock>,
    random: &Random,
) -> Result<DemandSource, StartError> {
    let Some(outside) = outside else {
        return Ok(DemandSource::Embedded);
    };
    let seed = random.with(|random| random.next_u64());
    let queue = TaskclusterQueue::new(QueueAccess {
        root_url: outside.root_url.clone(),
        client_id: outside.client_id.clone(),
        access_token: outside.token()?,
        clock: Arc::clone(clock),
        random: Box::new(StdRng::seed_from_u64(seed)),
    })?;
    let pulse = outside.pulse.as_ref();
    let pulse = pulse.map(|pulse| pulse.broker("queue.taskcluster.pulse"));
    Ok(DemandSource::Outside {
        queue,
        pulse: pulse.transpose()?,
    })
}

fn build_strategy_services(
    config: &Config,
    keyring: &Arc<Keyring>,
    clock: &Arc<dyn Clock>,
    schemas: Schemas,
) -> Result<StrategyServices, StartError> {
    let context = StrategyContext {
        schemas,
        keyring: Arc::clone(keyring),
        root_url: config.root_url(),
        clock: Arc::clone(clock),
    };
    let built = config.strategies.iter().map(|(name, settings)| {
        StrategyClient::new(name.clone(), settings.clone(), &context).map_err(StartError::Strategy)
    });
    Ok(StrategyServices::new(built.collect::<Result<_, _>>()?))
}

/// The authenticator, and the issuers of the credentials of workers and of tasks.
async fn open_authenticator(
    config: &Config,
    store: &Store,
    keyring: &Arc<Keyring>,
    random: &Random,
    now: Timestamp,
) -> Result<(Arc<dyn Authenticator>, WorkerIssuer, WorkerIssuer), StartError> {
    if let Some(outside) = &config.auth.taskcluster {
        let issuer = WorkerIssuer {
            client_id: outside.client_id.clone(),
            access_token: outside.token()?,
        };
        let authenticator = RemoteAuthenticator::new(outside.root_url.trim_end_matches('/'))?;
        return Ok((Arc::new(authenticator), issuer.clone(), issuer));
    }
    let [issuer, queue_issuer] = synchronise_clients(config, store, keyring, random, now).await?;
    let policy = Policy {
        accept_mac_over_path_only: config.auth.accept_mac_over_path_only,
    };
    let authenticator = EmbeddedAuthenticator::new(store.clone(), Arc::clone(keyring), policy);
    Ok((Arc::new(authenticator), issuer, queue_issuer))
}

/// Continues the stream of events; a new broker begins with the next event.
async fn open_events(
    config: &Config,
    store: &Store,
    process: String,
) -> Result<EventStream, StartError> {
    let amqp = config.events.amqp.as_ref();
    let broker = amqp.map(|amqp| amqp.broker("events.amqp")).transpose()?;
    if broker.is_some() {
        let opening = store.write("event_reader_open", |tx| {
            store::event_readers::open(tx, BROKER_READER)
        });
        opening.await?;
    }
    let head = store.read("event_head", store::events::head).await?;
    let catch_up = CatchUp::new(config.events.catch_up_pages_per_second);
    Ok(EventStream::new(process, broker, head, catch_up))
}

/// Pools of a missing provider get no workers, so they are reported at the start.
async fn warn_of_missing_providers(store: &Store, providers: &Providers) -> Result<(), StoreError> {
    let counted = store.scan("pools_by_provider", store::pools::count_by_provider);
    for (id, pools) in counted.await? {
        if matches!(providers.get(&id), Err(ProviderUnavailable::Unknown)) {
            let pools = match pools {
                1 => "1 worker pool has".to_owned(),
                pools => format!("{pools} worker pools have"),
            };
            tracing::warn!(provider.id = %id,
                "{pools} the provider {id}, which is not configured: add [providers.{id}], or \
                 change its pools");
        }
    }
    Ok(())
}

/// Makes the static clients of the store equal to the configuration's, and returns our own.
async fn synchronise_clients(
    config: &Config,
    store: &Store,
    keyring: &Arc<Keyring>,
    random: &Random,
    now: Timestamp,
) -> Result<[WorkerIssuer; 2], StartError> {
    let mut wanted = vec![
        ConfiguredClient {
            id: client_id(ISSUER)?,
            token: None,
            scopes: ISSUER_SCOPES.map(str::to_owned).to_vec(),
            description: "Issues the credentials of workers.".to_owned(),
        },
        ConfiguredClient {
            id: client_id(QUEUE_ISSUER)?,
            token: None,
            scopes: vec!["*".to_owned()],
            description: "Issues the credentials of tasks.".to_owned(),
        },
    ];
    for client in &config.auth.static_clients {
        wanted.push(ConfiguredClient {
            id: client_id(&client.client_id)?,
            token: Some(client.token()?),
            scopes: client.scopes.clone(),
            description: client.description.clone(),
        });
    }
    // Made beforehand, because a transaction may run more than once.
    let seal = |wanted: &ConfiguredClient| {
        let token = wanted.token.clone().unwrap_or_else(|| random.secret());
        let purpose = token_purpose(&wanted.id);
        random.with(|random| keyring.seal(&purpose, &token, random))
    };
    let fresh: Vec<String> = wanted.iter().map(seal).collect();
    let keyring = Arc::clone(keyring);
    let written = store.write("static_clients_synchronise", move |tx| {
        for (wanted, sealed) in wanted.iter().zip(&fresh) {
            synchronise(tx, &keyring, wanted, sealed, now)?;
        }
        remove_others(tx, &wanted)?;
        Ok::<_, StartError>([
            issuer(tx, &keyring, ISSUER)?,
            issuer(tx, &keyring, QUEUE_ISSUER)?,
        ])
    });
    written.await
}

/// One of our own clients, with its token.
fn issuer(tx: &mut Tx<'_>, keyring: &Keyring, id: &str) -> Result<WorkerIssuer, StartError> {
    let known = client_id(id)?;
    let record = store::clients::get(tx, &known)?;
    let opened = record.and_then(|record| {
        let purpose = token_purpose(&known);
        keyring.open(&purpose, &record.sealed_access_token).ok()
    });
    Ok(WorkerIssuer {
        client_id: id.to_owned(),
        access_token: opened.ok_or(StartError::Sealed(known))?,
    })
}

/// Writes only differences, so that a restart changes nothing.
fn synchronise(
    tx: &mut Tx<'_>,
    keyring: &Keyring,
    wanted: &ConfiguredClient,
    sealed: &str,
    now: Timestamp,
) -> Result<(), StartError> {
    let Some(mut known) = store::clients::get(tx, &wanted.id)? else {
        let is_new = store::clients::insert(tx, &record(wanted, sealed, now))?;
        return is_new.then_some(()).ok_or_else(|| tx.lost_race().into());
    };
    let opened = keyring.open(&token_purpose(&wanted.id), &known.sealed_access_token);
    let same_token = match (&wanted.token, opened.ok()) {
        (Some(wanted), Some(opened)) => *wanted == opened,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        // A new token would invalidate the credentials of every worker, so the start fails instead.
        (None, None) => return Err(StartError::Sealed(wanted.id.clone())),
    };
    if same_token
        && known.scopes == wanted.scopes
        && known.description == wanted.description
        && !known.disabled
    {
        return Ok(());
    }
    if !same_token {
        sealed.clone_into(&mut known.sealed_access_token);
        known.last_rotated = now;
    }
    known.scopes.clone_from(&wanted.scopes);
    known.description.clone_from(&wanted.description);
    known.disabled = false;
    known.last_modified = now;
    store::clients::update(tx, &known)?;
    Ok(())
}

fn record(wanted: &ConfiguredClient, sealed: &str, now: Timestamp) -> ClientRecord {
    ClientRecord {
        client_id: wanted.id.clone(),
        description: wanted.description.clone(),
        scopes: wanted.scopes.clone(),
        sealed_access_token: sealed.to_owned(),
        expires: now.plus_millis(STATIC_LIFE_MS),
        created: now,
        last_modified: now,
        last_date_used: now,
        last_rotated: now,
        delete_on_expiration: false,
        disabled: false,
        version: Version::FIRST,
    }
}

/// Deletes static clients that are no longer configured.
fn remove_others(tx: &mut Tx<'_>, wanted: &[ConfiguredClient]) -> Result<(), StoreError> {
    let wanted: BTreeSet<&ClientId> = wanted.iter().map(|wanted| &wanted.id).collect();
    let mut after: Option<ClientId> = None;
    loop {
        let clients = store::clients::list(tx, STATIC_PREFIX, after.as_ref(), PAGE)?;
        for known in &clients {
            if !wanted.contains(&known.client_id) {
                store::clients::delete(tx, &known.client_id)?;
            }
        }
        if clients.len() < PAGE as usize {
            return Ok(());
        }
        after = clients.into_iter().next_back().map(|last| last.client_id);
    }
}

fn client_id(text: &str) -> Result<ClientId, StartError> {
    text.parse()
        .map_err(|_| StartError::ClientId(text.to_owned()))
}
