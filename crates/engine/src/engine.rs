//! What the workflows share, and how they write a change.

use std::sync::Arc;

use access::seal::Keyring;
use cloud::Providers;
use contract::Schemas;
use domain::supply::Horizon;
use domain::time::{Clock, Timestamp};
use store::{Store, StoreError, Tx};

use crate::artifacts::Artifacts;
use crate::change::{Change, PendingWakeups};
use crate::configurations::{Compilations, PayloadSchemas};
use crate::demand::Demands;
use crate::fleet::{LaunchAnswers, Launching};
use crate::issuer::WorkerIssuer;
use crate::listening::Listening;
use crate::queue::Queue;
use crate::random::Random;
use crate::wake::Wake;

pub struct Engine {
    /// Where clients reach us, without a trailing slash.
    pub root_url: String,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Random>,
    pub providers: Providers,
    pub queue: Queue,
    pub wake: Wake,
    /// Where tasks wait.
    pub demands: Demands,
    pub launching: Launching,
    /// Where registrations wait that came before their launch was answered.
    pub launch_answers: LaunchAnswers,
    pub listening: Listening,
    pub artifacts: Artifacts,
    pub schemas: Schemas,
    pub keyring: Arc<Keyring>,
    /// Signs the credentials of workers.
    pub issuer: WorkerIssuer,
    /// What follows from the worker configurations.
    pub compilations: Compilations,
    pub payload_schemas: PayloadSchemas,
    /// A worker that has claimed a task says within this time that it is still at it.
    pub claim_seconds: u32,
}

impl Engine {
    /// From which moments on signs of workers count.
    pub fn horizon(&self, now: Timestamp) -> Horizon {
        let embedded = !self.demands.is_outside();
        Horizon::new(now, embedded.then(|| self.listening.since(now)))
    }

    /// Writes one change; afterwards its events are published and its wake-ups sent.
    ///
    /// Runs again from the start, with nothing left of the run before, when others were in the way.
    pub async fn change<T, E, F>(
        self: &Arc<Self>,
        name: &'static str,
        now: Timestamp,
        f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let written = self.store.write(name, self.attempt(now, f)).await;
        self.follow_up(written)
    }

    /// As `change`, and what was written survives a power cut.
    pub async fn change_durably<T, E, F>(
        self: &Arc<Self>,
        name: &'static str,
        now: Timestamp,
        f: F,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let written = self.store.write_durably(name, self.attempt(now, f)).await;
        self.follow_up(written)
    }

    /// One run of a change in its transaction.
    fn attempt<T, E, F>(
        &self,
        now: Timestamp,
        mut f: F,
    ) -> impl FnMut(&mut Tx<'_>) -> Result<(T, PendingWakeups), E> + Send + 'static
    where
        F: FnMut(&mut Change<'_, '_>) -> Result<T, E> + Send + 'static,
    {
        let random = Arc::clone(&self.random);
        move |tx| {
            let mut change = Change::new(tx, now, &random);
            let result = f(&mut change)?;
            Ok((result, change.into_wakeups()))
        }
    }

    fn follow_up<T, E>(self: &Arc<Self>, written: Result<(T, PendingWakeups), E>) -> Result<T, E> {
        self.wake.publish.notify_one();
        let (result, wakeups) = written?;
        self.send(wakeups);
        Ok(result)
    }

    /// Only after the commit: whoever is woken reads what is there.
    fn send(self: &Arc<Self>, wakeups: PendingWakeups) {
        for queue in &wakeups.queues {
            self.queue.broker.ring(self, queue);
        }
        for pool in &wakeups.pools {
            self.wake.pool(pool);
        }
        for provider in &wakeups.endings {
            self.wake.ending(provider).notify_one();
        }
        self.queue.releases.add(wakeups.releases);
    }
}
