//! The state that workflows share, and the method by which they write a change.

use std::sync::Arc;

use access::seal::Keyring;
use cloud::Providers;
use contract::Schemas;
use domain::plan::StrategyDefaults;
use domain::supply::Horizon;
use domain::time::{Clock, SECOND_MS, Timestamp};
use store::{Store, StoreError, Tx};

use crate::artifacts::Artifacts;
use crate::availability::Availability;
use crate::change::{Change, PendingWakeups};
use crate::configurations::{CompilationCache, PayloadSchemas};
use crate::demand::DemandSource;
use crate::fleet::{LaunchAnswers, LaunchTracker};
use crate::issuer::WorkerIssuer;
use crate::life_spans::LifeObserver;
use crate::phase_measures::PhaseMeasures;
use crate::provider_tests::ProviderTests;
use crate::queue::Queue;
use crate::random::Random;
use crate::strategy_services::StrategyServices;
use crate::taskcluster_records;
use crate::wakeups::Wakeups;

/// One for the process: the store, the clock, the providers and the state in memory.
pub struct Engine {
    /// Where clients reach us, without a trailing slash.
    pub root_url: String,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Random>,
    pub providers: Providers,
    /// The strategies of pools whose config names none.
    pub strategies: StrategyDefaults,
    pub strategy_services: StrategyServices,
    pub queue: Queue,
    pub wakeups: Wakeups,
    /// Reports how many tasks are pending.
    pub demand_source: DemandSource,
    pub launch_tracker: LaunchTracker,
    /// Conformance runs of providers.
    pub provider_tests: ProviderTests,
    /// Registrations that arrived before the provider answered their launch wait here.
    pub launch_answers: LaunchAnswers,
    pub phase_measures: PhaseMeasures,
    pub availability: Availability,
    pub artifacts: Artifacts,
    pub schemas: Schemas,
    pub keyring: Arc<Keyring>,
    /// Signs the credentials of workers.
    pub issuer: WorkerIssuer,
    /// Compiled worker configurations.
    pub compilations: CompilationCache,
    pub payload_schemas: PayloadSchemas,
    /// A claim lasts this long; the worker reclaims the run before that.
    pub claim_seconds: u32,
    /// A worker's further error reports are only counted.
    pub error_reports_per_hour: u32,
    /// Whether metrics have the labels that Taskcluster's have, and all of its names.
    pub taskcluster_names: bool,
    /// Takes spans for traces, if they are asked for.
    pub life_observer: Option<Arc<dyn LifeObserver>>,
    /// Whether to write log records in the form of Taskcluster's services.
    pub taskcluster_records: bool,
}

impl Engine {
    /// The moments from which on activity of workers counts.
    pub fn horizon(&self, now: Timestamp) -> Horizon {
        let embedded = !self.demand_source.is_outside();
        Horizon {
            hears_claims: self.demand_source.hears_claims(),
            ..Horizon::new(now, embedded.then(|| self.availability.since(now)))
        }
    }

    /// Whether the time stepped so recently that workers may not have claimed their runs again
    /// since. Their machines may know another time, and the step may be undone, so nothing ends
    /// because of the time meanwhile.
    pub fn is_settling(&self) -> bool {
        self.clock.even_ms() < i64::from(self.claim_seconds) * SECOND_MS
    }

    /// Writes one change; afterwards its events are published and its wake-ups sent.
    ///
    /// After a conflict with another transaction, `f` runs again from the start.
    pub fn change<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        now: Timestamp,
        f: impl FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send {
        self.follow_up(self.store.write_shared(name, self.attempt(now, f)))
    }

    /// Like `change`, for a change that can take longer than a few milliseconds. No other waits for
    /// its commit.
    pub fn change_alone<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        now: Timestamp,
        f: impl FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send {
        self.follow_up(self.store.write(name, self.attempt(now, f)))
    }

    /// Like `change`; the transaction also survives a power cut.
    pub fn change_durably<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        now: Timestamp,
        f: impl FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send {
        self.follow_up(self.store.write_durably(name, self.attempt(now, f)))
    }

    /// Runs a change once in its transaction.
    fn attempt<T, E>(
        &self,
        now: Timestamp,
        mut f: impl FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
    ) -> impl FnMut(&mut Tx<'_>) -> Result<(T, PendingWakeups), E> + Send + 'static {
        let random = Arc::clone(&self.random);
        move |tx| {
            // Changes that share a commit share the transaction.
            tx.take_audited();
            let mut change = Change::new(tx, now, &random);
            let result = f(&mut change)?;
            let audited = change.tx.take_audited();
            let mut wakeups = change.into_wakeups();
            wakeups
                .records
                .extend(audited.iter().map(taskcluster_records::of_audit));
            Ok((result, wakeups))
        }
    }

    async fn follow_up<T, E>(
        self: &Arc<Self>,
        writing: impl Future<Output = Result<(T, PendingWakeups), E>>,
    ) -> Result<T, E> {
        let written = writing.await;
        self.wakeups.publish.notify_one();
        let (result, wakeups) = written?;
        self.send_wakeups(wakeups);
        Ok(result)
    }

    /// Called after the commit: the loops that are woken read the committed state.
    fn send_wakeups(self: &Arc<Self>, wakeups: PendingWakeups) {
        self.phase_measures.record(wakeups.phases);
        if let Some(observer) = &self.life_observer {
            for span in wakeups.spans {
                observer.observe(span);
            }
        }
        if self.taskcluster_records {
            for record in &wakeups.records {
                record.write();
            }
        }
        for queue in &wakeups.queues {
            self.queue.dispatcher.wake(self, queue);
        }
        if !wakeups.dismissals.is_empty() {
            self.queue.dispatcher.dismiss(&wakeups.dismissals);
        }
        for pool in &wakeups.pools {
            self.wakeups.wake_pool(pool);
        }
        for provider in &wakeups.endings {
            self.wakeups.ending(provider).notify_one();
        }
        self.queue.releases.add(wakeups.releases);
    }
}
