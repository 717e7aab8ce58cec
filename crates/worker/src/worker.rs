//! The main loop of a worker: ask for advice, claim tasks and run them, until it should stop.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Advice, Claim, Claims, Done, LaunchConfigState, Outcome, Reason};
use crate::client::{Call, CallError, Client, NoClient};
use crate::folders::{Folders, UnusableFolder};
use crate::guardian::Guardian;
use crate::identity::{Identity, Kind, Proof};
use crate::instance::{self, Instance};
use crate::machine::{Backoff, Machine, pause};
use crate::registration::{RegisteredWorker, RegistrationError};
use crate::run::{RunContext, run};
use crate::settings::{BadSettings, Settings};
use crate::stop::{Stop, Stops};
use ExitReason::{Expected, Failed, Replaced};

/// A worker without work that could reach no server for this long stops.
const MAX_SILENCE: Duration = Duration::from_secs(10 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// The queue's limit for one claim.
const MAX_CLAIMS: u32 = 32;
const SHORTEST_POLL: Duration = Duration::from_secs(1);
/// When the worker stops waiting for work, the queue may have assigned tasks already: their
/// response arrives within this time.
const LAST_CLAIM_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for the final calls.
const FINAL_CALL_LIMIT: Duration = Duration::from_secs(5);

/// A worker before its start.
pub struct Worker {
    pub identity: Identity,
    pub machine: Machine,
    pub stops: Stops,
    /// Time that running tasks have after the first request to stop.
    pub drain_grace: Duration,
    /// The cloud's machine, which tells when the cloud will stop it.
    pub instance: Option<Instance>,
}

/// Why a worker could not work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    RootUrl(#[from] NoClient),
    #[error(transparent)]
    NotRegistered(#[from] RegistrationError),
    #[error("the worker configuration of the pool is invalid")]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    Folder(#[from] UnusableFolder),
    #[error("cannot start the guardian of the tasks")]
    Guardian(#[source] std::io::Error),
    #[error("the worker exited: {0}")]
    Unwanted(String),
}

/// Why a worker exits.
enum ExitReason {
    /// An expected exit.
    Expected(String),
    /// An exit because of an error.
    Failed(String),
    /// The worker has another launch config now: it registers again, and goes on.
    Replaced { next_id: String, reason: String },
}

/// An event in the main loop.
enum WorkerEvent {
    Claimed(Vec<Claim>),
    Ended(Result<(), JoinError>),
    Leave(ExitReason),
}

/// A future that runs beside others.
type Activity<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Protects this process's memory and environment from other processes of its user, among them
/// tasks. For programs that are only a worker or a server.
pub fn keep_to_itself() {
    if let Err(problem) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(
            "cannot protect the memory of this process from tasks of its user: {problem}"
        );
    }
}

impl Worker {
    /// Works until the worker is not needed, is asked to stop, or cannot continue.
    pub async fn run(self) -> Result<(), WorkerError> {
        let client = Arc::new(Client::new(
            &self.identity.root_url,
            Arc::new(self.machine),
        )?);
        let name = self.identity.id.to_string();
        let folders = Folders::prepare(&self.identity.work_dir)?;
        let guardian = Guardian::start().map_err(WorkerError::Guardian)?;
        let site = Arc::new(RunContext {
            identity: Arc::new(self.identity),
            client,
            folders,
            guardian,
            stops: Stops::default(),
        });
        let notices = instance::watch(self.instance, name, self.stops.clone());
        tokio::select! {
            outcome = work_with_each_config(&site, &self.stops, self.drain_grace) => outcome,
            never = notices => match never {},
        }
    }
}

/// Registers and works. When another launch config replaces that of the worker, it does so again.
async fn work_with_each_config(
    site: &Arc<RunContext>,
    stops: &Stops,
    drain_grace: Duration,
) -> Result<(), WorkerError> {
    let mut given_id = None;
    loop {
        let (identity, client) = (Arc::clone(&site.identity), Arc::clone(&site.client));
        let registered = tokio::select! {
            entered = RegisteredWorker::start(identity, client) => entered?,
            () = stops.reaches(Stop::Drain) => return Ok(()),
        };
        let (identity, client) = (&site.identity, &site.client);
        let config = &registered.standing().worker_config;
        let settings = match Settings::read(config, identity.capacity, identity.kind) {
            Ok(settings) => settings,
            Err(problem) => {
                report_problem(identity, client, &registered, &problem).await;
                remove_worker(identity, client, &registered).await;
                return Err(problem.into());
            }
        };
        let work_loop = WorkLoop {
            site: Arc::clone(site),
            registered: Arc::new(registered),
            settings,
            stops: stops.clone(),
            drain_grace,
            given_id,
            leaving: CancellationToken::new(),
        };
        given_id = match work_loop.work().await? {
            // The relay registers its hosts: the next process asks it.
            Some(_) if matches!(site.identity.proof, Proof::Relay(_)) => return Ok(()),
            Some(next_id) => Some(next_id),
            None => return Ok(()),
        };
    }
}

/// A registered worker that works.
struct WorkLoop {
    site: Arc<RunContext>,
    registered: Arc<RegisteredWorker>,
    settings: Settings,
    stops: Stops,
    drain_grace: Duration,
    /// The launch config for which it registered again. It does not do so twice in a row for the
    /// same one.
    given_id: Option<String>,
    /// When cancelled, nothing more is claimed.
    leaving: CancellationToken,
}

impl WorkLoop {
    /// Works until the worker exits, or until another launch config replaces its own: then its id.
    async fn work(self) -> Result<Option<String>, WorkerError> {
        let (mut runs, mut claiming) = (JoinSet::new(), None);
        let leave = self.work_until_exit(&mut runs, &mut claiming).await;
        let identity = &self.site.identity;
        match &leave {
            Expected(reason) | Failed(reason) => {
                tracing::info!("worker {identity} exits: {reason}")
            }
            Replaced { reason, .. } => {
                tracing::info!("worker {identity} will register again: {reason}");
            }
        }
        tokio::select! {
            () = self.finish_and_give_back(&leave, &mut runs, claiming) => {}
            never = self.stay_meanwhile(&leave) => match never {},
        }
        if let Replaced { next_id, .. } = leave {
            // Otherwise it would continue its registration, with the old configuration.
            self.registered.forget();
            return Ok(Some(next_id));
        }
        remove_worker(&self.site.identity, &self.site.client, &self.registered).await;
        match leave {
            Expected(_) | Replaced { .. } => Ok(None),
            Failed(reason) => Err(WorkerError::Unwanted(reason)),
        }
    }

    /// Claims and runs tasks. Those that still run at the end are left running.
    async fn work_until_exit(
        &self,
        runs: &mut JoinSet<()>,
        claiming: &mut Option<Activity<WorkerEvent>>,
    ) -> ExitReason {
        let mut idling = self.idle();
        let mut staying = self.stay();
        loop {
            let n_running = u32::try_from(runs.len()).unwrap_or(u32::MAX);
            let n_free = self.settings.capacity.saturating_sub(n_running);
            if claiming.is_none() && n_free > 0 {
                *claiming = Some(self.claim(n_free));
            }
            let news = tokio::select! {
                biased;
                () = self.stops.reaches(Stop::Drain) => {
                    WorkerEvent::Leave(Expected("it was asked to stop".to_owned()))
                }
                Some(ended) = runs.join_next() => WorkerEvent::Ended(ended),
                news = first_of(claiming) => {
                    *claiming = None;
                    news
                }
                leave = &mut staying => WorkerEvent::Leave(leave),
                leave = &mut idling, if runs.is_empty() => WorkerEvent::Leave(leave),
            };
            match news {
                WorkerEvent::Leave(leave) => return leave,
                WorkerEvent::Claimed(claims) => self.take_up(claims, runs),
                WorkerEvent::Ended(ended) => {
                    log_panic(ended);
                    idling = self.idle();
                }
            }
        }
    }

    fn take_up(&self, claims: Vec<Claim>, runs: &mut JoinSet<()>) {
        for claim in claims {
            runs.spawn(run(Arc::clone(&self.site), claim));
        }
    }

    /// Waits for work, unless the fleet does not need this worker.
    fn claim(&self, n_tasks: u32) -> Activity<WorkerEvent> {
        let (site, registered) = (Arc::clone(&self.site), Arc::clone(&self.registered));
        let (leaving, given_id) = (self.leaving.clone(), self.given_id.clone());
        Box::pin(async move {
            let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
            let mut n_tasks = n_tasks.min(MAX_CLAIMS);
            let mut is_logged = false;
            while !leaving.is_cancelled() {
                // A failed request for advice is no reason to exit.
                if let Ok(advice) = advice(&site, &registered).await
                    && advice.terminate
                {
                    let reason = format!("the server asked it to stop: {}", advice.reason);
                    return WorkerEvent::Leave(Expected(reason));
                }
                if let Some(leave) = archived(&site, &registered, given_id.as_deref()).await {
                    return WorkerEvent::Leave(leave);
                }
                if leaving.is_cancelled() {
                    break;
                }
                let credentials = registered.credentials();
                let call = api::claim_work(&site.identity, n_tasks);
                let start = Instant::now();
                let problem = match site.client.send::<Claims>(&call, Some(&credentials)).await {
                    Ok(claims) => {
                        let claims = claims.read();
                        // If the server does not hold the call open, wait before the next one.
                        if claims.is_empty() && !leaving.is_cancelled() {
                            pause(SHORTEST_POLL.saturating_sub(start.elapsed())).await;
                        }
                        return WorkerEvent::Claimed(claims);
                    }
                    Err(problem) => problem,
                };
                if let CallError::BadReply { .. } = problem {
                    tracing::error!(
                        "cannot read the claimed tasks, which are lost until their claims expire; will claim fewer: {problem}"
                    );
                    n_tasks = (n_tasks / 2).max(1);
                } else if !is_logged {
                    tracing::warn!("cannot claim work, will try again: {problem}");
                    is_logged = true;
                }
                let far = Instant::now() + 2 * LONGEST_RETRY;
                backoff.wait(&site.client.machine, far).await;
            }
            WorkerEvent::Claimed(Vec::new())
        })
    }

    /// Asks after each idle time-out whether a worker without work is needed.
    fn idle(&self) -> Activity<ExitReason> {
        let Some(timeout) = self.settings.idle_timeout else {
            return Box::pin(std::future::pending());
        };
        let (site, registered) = (Arc::clone(&self.site), Arc::clone(&self.registered));
        Box::pin(async move {
            loop {
                pause(timeout).await;
                let seconds = timeout.as_secs();
                match advice(&site, &registered).await {
                    Ok(advice) if advice.terminate => {
                        let reason = advice.reason;
                        return Expected(format!(
                            "it had no work for {seconds} s, and the server asked it to stop: {reason}"
                        ));
                    }
                    Ok(advice) => {
                        tracing::debug!("no work for {seconds} s, but it stays: {}", advice.reason);
                    }
                    Err(problem) if site.client.silence() >= MAX_SILENCE => {
                        return Failed(format!(
                            "it had no work and no response from the server for {} s: {problem}",
                            MAX_SILENCE.as_secs()
                        ));
                    }
                    Err(problem) => tracing::debug!("cannot ask whether to stay: {problem}"),
                }
            }
        })
    }

    fn stay(&self) -> Activity<ExitReason> {
        let registered = Arc::clone(&self.registered);
        Box::pin(async move { Failed(registered.stay().await) })
    }

    /// Handles tasks that the queue assigned last, and waits for the running ones.
    async fn finish_and_give_back(
        &self,
        leave: &ExitReason,
        runs: &mut JoinSet<()>,
        mut claiming: Option<Activity<WorkerEvent>>,
    ) {
        self.leaving.cancel();
        if let (Expected(_) | Replaced { .. }, Stop::No) = (leave, self.stops.now()) {
            // It was not needed before, but now it is.
            self.take_up(last_claims(claiming.take()).await, runs);
        }
        let giving_back = async { give_back(&self.site.client, last_claims(claiming).await).await };
        tokio::join!(self.finish(runs), giving_back);
    }

    /// The last tasks may outlast the registration, and artifacts are reported with its
    /// credentials.
    async fn stay_meanwhile(&self, leave: &ExitReason) -> Infallible {
        if let Expected(_) | Replaced { .. } = leave {
            let problem = self.registered.stay().await;
            tracing::warn!("the last tasks continue, but {problem}");
        }
        std::future::pending().await
    }

    /// Waits for the running tasks; after a request to stop, only during the grace period.
    async fn finish(&self, runs: &mut JoinSet<()>) {
        let pressing = async {
            self.stops.reaches(Stop::Drain).await;
            tokio::select! {
                () = pause(self.drain_grace) => {}
                () = self.stops.reaches(Stop::Now) => {}
            }
            self.site.stops.ask(Stop::Drain);
            self.stops.reaches(Stop::Now).await;
            self.site.stops.ask(Stop::Now);
            std::future::pending::<Infallible>().await
        };
        let finishing = async {
            while let Some(ended) = runs.join_next().await {
                log_panic(ended);
            }
        };
        tokio::select! {
            () = finishing => {}
            never = pressing => match never {},
        }
    }
}

/// The claims of the call that was in progress.
async fn last_claims(claiming: Option<Activity<WorkerEvent>>) -> Vec<Claim> {
    let Some(claiming) = claiming else {
        return Vec::new();
    };
    match tokio::time::timeout(LAST_CLAIM_LIMIT, claiming).await {
        Ok(WorkerEvent::Claimed(claims)) => claims,
        Ok(WorkerEvent::Ended(_) | WorkerEvent::Leave(_)) | Err(_) => Vec::new(),
    }
}

/// Gives claims back, so that another worker gets them at once instead of when they expire.
async fn give_back(client: &Client, claims: Vec<Claim>) {
    let limit = Instant::now() + FINAL_CALL_LIMIT;
    for Claim { run, lease, .. } in claims {
        let call = api::report(&run, Outcome::Exception(Reason::WorkerShutdown));
        let told = client.retried::<Done>(&call, Some(&lease.credentials), limit);
        match told.await {
            Ok(_) => tracing::info!("{run}: given back, because the worker exits"),
            Err(problem) => tracing::warn!("cannot give back {run}: {problem}"),
        }
    }
}

/// A launched worker removes itself, which also frees tasks that it may have claimed while it
/// stopped.
async fn remove_worker(identity: &Identity, client: &Client, registered: &RegisteredWorker) {
    match identity.kind {
        Kind::Static => return,
        Kind::Launched => registered.forget(),
    }
    let call = api::remove_worker(identity);
    if let Err(problem) = make_final_call(&call, client, registered).await {
        tracing::warn!("cannot remove this worker from the server: {problem}");
    }
}

async fn report_problem(
    identity: &Identity,
    client: &Client,
    registered: &RegisteredWorker,
    problem: &BadSettings,
) {
    let title = "The worker cannot use its configuration";
    let call = api::report_error(identity, title, &problem.to_string());
    if let Err(problem) = make_final_call(&call, client, registered).await {
        tracing::warn!("cannot report the error to the server: {problem}");
    }
}

/// Makes a call with the time limit of the final calls.
async fn make_final_call(
    call: &Call,
    client: &Client,
    registered: &RegisteredWorker,
) -> Result<(), CallError> {
    let credentials = registered.credentials();
    let said = client.retried::<Done>(call, Some(&credentials), Instant::now() + FINAL_CALL_LIMIT);
    match tokio::time::timeout(2 * FINAL_CALL_LIMIT, said).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Ok(()),
    }
}

async fn advice(site: &RunContext, registered: &RegisteredWorker) -> Result<Advice, CallError> {
    let call = api::should_terminate(&site.identity);
    let credentials = registered.credentials();
    site.client.send(&call, Some(&credentials)).await
}

/// Whether the launch config of a static worker is archived: it exits, or registers again if
/// another one replaces it. Launched workers are asked to stop for this reason, too, so they need
/// not ask. A failed request is no reason to exit.
async fn archived(
    site: &RunContext,
    registered: &RegisteredWorker,
    given_id: Option<&str>,
) -> Option<ExitReason> {
    match site.identity.kind {
        Kind::Launched => return None,
        Kind::Static => {}
    }
    let call = api::launch_config(&site.identity);
    let credentials = registered.credentials();
    let answer = site
        .client
        .send::<LaunchConfigState>(&call, Some(&credentials));
    let answer = answer.await.ok().filter(LaunchConfigState::is_archived)?;
    match answer.next_launch_config_id {
        Some(next_id) if given_id == Some(next_id.as_str()) => None,
        Some(next_id) => Some(Replaced {
            next_id,
            reason: answer.reason,
        }),
        None => {
            // The next process registers, and so gets the configuration that is in force then.
            registered.forget();
            let reason = answer.reason;
            Some(Expected(format!("its launch config is archived: {reason}")))
        }
    }
}

/// Waits for the future, if it exists.
async fn first_of<T>(activity: &mut Option<Activity<T>>) -> T {
    match activity {
        Some(activity) => activity.await,
        None => std::future::pending().await,
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(problem) = ended {
        tracing::error!("a run of a task panicked: {problem}");
    }
}
