//! One change: the transaction that writes it, its moment, new ids, and who is woken once it is committed.
//!
//! Workflows take a `Change`, and neither `Engine` nor a clock, so that what they need and what follows from them can
//! be seen from their parameters.

use std::collections::BTreeSet;

use domain::event::{Event, EventBody};
use domain::id::{PoolId, ProviderId, TaskId};
use domain::time::Timestamp;
use store::{StoreError, Tx};

use crate::random::Random;

pub struct Change<'a, 'tx> {
    pub tx: &'a mut Tx<'tx>,
    pub now: Timestamp,
    ids: &'a Random,
    wakeups: PendingWakeups,
}

/// Who is woken once the change can be seen. A lost wake-up only delays.
#[derive(Debug, Default)]
pub struct PendingWakeups {
    /// Pools to plan.
    pub(super) pools: BTreeSet<PoolId>,
    /// Queues whose waiting workers may get tasks.
    pub(super) queues: BTreeSet<PoolId>,
    /// Tasks with dependents that may be free by now.
    pub(super) releases: Vec<TaskId>,
    /// Providers with machines to end.
    pub(super) endings: BTreeSet<ProviderId>,
}

impl<'a, 'tx> Change<'a, 'tx> {
    pub fn new(tx: &'a mut Tx<'tx>, now: Timestamp, ids: &'a Random) -> Self {
        Self {
            tx,
            now,
            ids,
            wakeups: PendingWakeups::default(),
        }
    }

    /// 22 characters that name something new.
    pub fn new_id(&self) -> String {
        self.ids.slugid()
    }

    /// Writes events that clients and other processes hear of after the commit.
    pub fn announce(
        &mut self,
        bodies: impl IntoIterator<Item = EventBody>,
    ) -> Result<(), StoreError> {
        for body in bodies {
            let event = Event {
                id: self.new_id(),
                created: self.now,
                body,
            };
            store::outbox::push(self.tx, &event)?;
        }
        Ok(())
    }

    /// The demand, the config or the workers of this pool have changed.
    pub fn wake_pool(&mut self, pool: &PoolId) {
        self.wakeups.pools.insert(pool.clone());
    }

    /// There may be work in this queue: for the workers that wait for it, and for new ones.
    pub fn wake_queue(&mut self, queue: &PoolId) {
        self.wakeups.queues.insert(queue.clone());
        self.wakeups.pools.insert(queue.clone());
    }

    /// A worker of this provider has been told to go: its machine can be ended.
    pub fn wake_ending(&mut self, provider: &ProviderId) {
        self.wakeups.endings.insert(provider.clone());
    }

    /// Has the dependents of this task looked at again after the commit, by whatever process.
    pub fn release_later(&mut self, task: &TaskId) -> Result<(), StoreError> {
        store::dependencies::request_recheck(self.tx, task, self.now)?;
        self.wakeups.releases.push(task.clone());
        Ok(())
    }

    pub fn into_wakeups(self) -> PendingWakeups {
        self.wakeups
    }
}
