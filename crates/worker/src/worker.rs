//! The loop of a worker: ask, claim, run, until it is not needed or told to stop.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Advice, Claim, Claims, Done, Outcome, Reason};
use crate::aws;
use crate::client::{Call, CallError, Client, NoClient};
use crate::folders::{Folders, UnusableFolder};
use crate::guardian::Guardian;
use crate::identity::{Identity, Kind};
use crate::machine::{Backoff, Machine, pause};
use crate::registration::{NotRegistered, Registered};
use crate::run::{Site, run};
use crate::settings::{BadSettings, Settings};
use crate::stop::{Stop, Stops};
use Leave::{Forced, InPeace};

/// A worker without work that could talk to nobody for so long is of no use to anybody.
const MAX_SILENCE: Duration = Duration::from_secs(10 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// The queue hands out no more at once.
const MAX_CLAIMS: u32 = 32;
const SHORTEST_POLL: Duration = Duration::from_secs(1);
/// When the worker goes while it waits for work, the queue may have handed some out already: an answer that is on its
/// way is here within this time.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// How long saying good-bye may be tried.
const FAREWELL: Duration = Duration::from_secs(5);

/// A worker that is about to begin.
pub struct Worker {
    pub identity: Identity,
    pub machine: Machine,
    pub stops: Stops,
    /// How long running tasks may go on after the first request to stop.
    pub drain_grace: Duration,
    /// Where a cloud announces that it takes the machine away.
    pub notices: Option<aws::Metadata>,
}

/// Why a worker could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    RootUrl(#[from] NoClient),
    #[error(transparent)]
    NotRegistered(#[from] NotRegistered),
    #[error("the pool's configuration does not suit this worker")]
    Settings(#[from] BadSettings),
    #[error(transparent)]
    Folder(#[from] UnusableFolder),
    #[error("cannot start the guardian of the tasks")]
    Guardian(#[source] std::io::Error),
    #[error("the worker went: {0}")]
    Unwanted(String),
}

/// Why a worker goes.
enum Leave {
    /// As it should.
    InPeace(String),
    /// Something is wrong.
    Forced(String),
}

/// What a worker learns while it works.
enum News {
    Claimed(Vec<Claim>),
    Ended(Result<(), JoinError>),
    Leave(Leave),
}

/// An activity that goes on while others do.
type Activity<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Keeps this process's memory and environment from others of its user, tasks among them. For programs
/// that are nothing but a worker or a server.
pub fn keep_to_itself() {
    if let Err(problem) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!("tasks of this user may look into the memory of this process: {problem}");
    }
}

impl Worker {
    /// Works until it is not needed, is told to stop, or cannot go on.
    pub async fn run(self) -> Result<(), WorkerError> {
        let client = Arc::new(Client::new(
            &self.identity.root_url,
            Arc::new(self.machine),
        )?);
        let folders = Folders::prepare(&self.identity.work_dir)?;
        let guardian = Guardian::start().map_err(WorkerError::Guardian)?;
        let identity = Arc::new(self.identity);
        let registered = tokio::select! {
            entered = Registered::enter(Arc::clone(&identity), Arc::clone(&client)) => entered?,
            () = self.stops.reaches(Stop::Drain) => return Ok(()),
        };
        let config = &registered.standing().worker_config;
        let settings = match Settings::read(config, identity.capacity, identity.kind) {
            Ok(settings) => settings,
            Err(problem) => {
                report_problem(&identity, &client, &registered, &problem).await;
                say_goodbye(&identity, &client, &registered).await;
                return Err(problem.into());
            }
        };
        let site = Site {
            identity,
            client,
            folders,
            guardian,
            stops: Stops::default(),
        };
        let notices = aws::watch(self.notices, self.stops.clone());
        let duty = Duty {
            site: Arc::new(site),
            registered: Arc::new(registered),
            settings,
            stops: self.stops,
            drain_grace: self.drain_grace,
            leaving: CancellationToken::new(),
        };
        tokio::select! {
            outcome = duty.work() => outcome,
            never = notices => match never {},
        }
    }
}

/// A registered worker at work.
struct Duty {
    site: Arc<Site>,
    registered: Arc<Registered>,
    settings: Settings,
    stops: Stops,
    drain_grace: Duration,
    /// From now on nothing is claimed.
    leaving: CancellationToken,
}

impl Duty {
    async fn work(self) -> Result<(), WorkerError> {
        let (mut runs, mut claiming) = (JoinSet::new(), None);
        let leave = self.until_it_is_time_to_go(&mut runs, &mut claiming).await;
        let (InPeace(reason) | Forced(reason)) = &leave;
        tracing::info!("worker {} goes: {reason}", self.site.identity);
        tokio::select! {
            () = self.wind_up(&leave, &mut runs, claiming) => {}
            never = self.stay_meanwhile(&leave) => match never {},
        }
        say_goodbye(&self.site.identity, &self.site.client, &self.registered).await;
        match leave {
            InPeace(_) => Ok(()),
            Forced(reason) => Err(WorkerError::Unwanted(reason)),
        }
    }

    /// Claims and runs tasks; those that run then are left running.
    async fn until_it_is_time_to_go(
        &self,
        runs: &mut JoinSet<()>,
        claiming: &mut Option<Activity<News>>,
    ) -> Leave {
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
                    News::Leave(InPeace("it was asked to stop".to_owned()))
                }
                Some(ended) = runs.join_next() => News::Ended(ended),
                news = first_of(claiming) => {
                    *claiming = None;
                    news
                }
                leave = &mut staying => News::Leave(leave),
                leave = &mut idling, if runs.is_empty() => News::Leave(leave),
            };
            match news {
                News::Leave(leave) => return leave,
                News::Claimed(claims) => self.take_up(claims, runs),
                News::Ended(ended) => {
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

    /// Waits for work, unless the fleet has no need of this worker.
    fn claim(&self, n_tasks: u32) -> Activity<News> {
        let (site, registered) = (Arc::clone(&self.site), Arc::clone(&self.registered));
        let leaving = self.leaving.clone();
        Box::pin(async move {
            let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
            let mut n_tasks = n_tasks.min(MAX_CLAIMS);
            let mut is_told = false;
            while !leaving.is_cancelled() {
                // No answer is no reason to go.
                if let Ok(advice) = advice(&site, &registered).await
                    && advice.terminate
                {
                    let reason = format!("it was told to: {}", advice.reason);
                    return News::Leave(InPeace(reason));
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
                        // Who does not hold the call open is not asked more often for that.
                        if claims.is_empty() && !leaving.is_cancelled() {
                            pause(SHORTEST_POLL.saturating_sub(start.elapsed())).await;
                        }
                        return News::Claimed(claims);
                    }
                    Err(problem) => problem,
                };
                if let CallError::BadReply { .. } = problem {
                    tracing::error!(
                        "what the queue handed out is lost until its claims expire, and less is asked for: {problem}"
                    );
                    n_tasks = (n_tasks / 2).max(1);
                } else if !is_told {
                    tracing::warn!("cannot claim work, and will try again: {problem}");
                    is_told = true;
                }
                let far = Instant::now() + 2 * LONGEST_RETRY;
                backoff.wait(&site.client.machine, far).await;
            }
            News::Claimed(Vec::new())
        })
    }

    /// Asks again and again, after as long as it is configured, whether a worker without work is needed.
    fn idle(&self) -> Activity<Leave> {
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
                        return InPeace(format!(
                            "it had no work for {seconds} s and was told to: {reason}"
                        ));
                    }
                    Ok(advice) => {
                        tracing::debug!("no work for {seconds} s, but it stays: {}", advice.reason);
                    }
                    Err(problem) if site.client.silence() >= MAX_SILENCE => {
                        return Forced(format!(
                            "it had no work and no answer for {} s: {problem}",
                            MAX_SILENCE.as_secs()
                        ));
                    }
                    Err(problem) => tracing::debug!("nobody says whether to stay: {problem}"),
                }
            }
        })
    }

    fn stay(&self) -> Activity<Leave> {
        let registered = Arc::clone(&self.registered);
        Box::pin(async move { Forced(registered.stay().await) })
    }

    /// Sees to what the queue handed out and waits for the running tasks.
    async fn wind_up(
        &self,
        leave: &Leave,
        runs: &mut JoinSet<()>,
        mut claiming: Option<Activity<News>>,
    ) {
        self.leaving.cancel();
        if let (InPeace(_), Stop::No) = (leave, self.stops.now()) {
            // It was not needed, and now it is.
            self.take_up(last_answer(claiming.take()).await, runs);
        }
        let giving_back = async { give_back(&self.site.client, last_answer(claiming).await).await };
        tokio::join!(self.finish(runs), giving_back);
    }

    /// The last tasks may outlast the registration, and what they leave behind is said in its name.
    async fn stay_meanwhile(&self, leave: &Leave) -> Infallible {
        if let InPeace(_) = leave {
            let problem = self.registered.stay().await;
            tracing::warn!("the last tasks go on, but {problem}");
        }
        std::future::pending().await
    }

    /// Waits for the running tasks. Once the worker was asked to stop, only for the grace.
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

/// What the call that was under way still brings.
async fn last_answer(claiming: Option<Activity<News>>) -> Vec<Claim> {
    let Some(claiming) = claiming else {
        return Vec::new();
    };
    match tokio::time::timeout(LAST_ANSWER, claiming).await {
        Ok(News::Claimed(claims)) => claims,
        Ok(News::Ended(_) | News::Leave(_)) | Err(_) => Vec::new(),
    }
}

/// Somebody else can have these at once, instead of when their claims expire.
async fn give_back(client: &Client, claims: Vec<Claim>) {
    let limit = Instant::now() + FAREWELL;
    for Claim { run, lease, .. } in claims {
        let call = api::report(&run, Outcome::Exception(Reason::WorkerShutdown));
        let told = client.retried::<Done>(&call, Some(&lease.credentials), limit);
        match told.await {
            Ok(_) => tracing::info!("{run}: given back, since the worker goes"),
            Err(problem) => tracing::warn!("{run} could not be given back: {problem}"),
        }
    }
}

/// What was started for the work at hand says that it is gone, which also frees what it may have
/// claimed while it was going.
async fn say_goodbye(identity: &Identity, client: &Client, registered: &Registered) {
    match identity.kind {
        Kind::Standing => return,
        Kind::Launched => registered.forget(),
    }
    let call = api::remove_worker(identity);
    if let Err(problem) = last_words(&call, client, registered).await {
        tracing::warn!("nobody knows yet that the worker is gone: {problem}");
    }
}

async fn report_problem(
    identity: &Identity,
    client: &Client,
    registered: &Registered,
    problem: &BadSettings,
) {
    let title = "The worker cannot use its configuration";
    let call = api::report_error(identity, title, &problem.to_string());
    if let Err(problem) = last_words(&call, client, registered).await {
        tracing::warn!("nobody knows yet what is wrong: {problem}");
    }
}

/// A call that is worth only so much time.
async fn last_words(
    call: &Call,
    client: &Client,
    registered: &Registered,
) -> Result<(), CallError> {
    let credentials = registered.credentials();
    let said = client.retried::<Done>(call, Some(&credentials), Instant::now() + FAREWELL);
    match tokio::time::timeout(2 * FAREWELL, said).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Ok(()),
    }
}

async fn advice(site: &Site, registered: &Registered) -> Result<Advice, CallError> {
    let call = api::should_terminate(&site.identity);
    let credentials = registered.credentials();
    site.client.send(&call, Some(&credentials)).await
}

/// What the activity brings, if there is one.
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
