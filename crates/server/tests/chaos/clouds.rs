//! The clouds as one process sees them: they fail, they lie about the recent past, the process dies between a call
//! and its answer, and others do something meanwhile.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use cloud::{
    BidRequest, CloudError, FakeCloud, Fate, IdentityClaim, LaunchError, LaunchOrder, Launched,
    Machines, NotVerified, OwnedPage, Provider, Region, Sighting, Verified,
};
use contract::Invalid;
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::worker::{Worker, WorkerState};
use serde_json::{Value, json};
use store::Store;

use crate::world::World;

/// Never.
const NEVER: i64 = i64::MAX;

/// One process, as far as living and dying goes.
pub(crate) struct Life {
    store: OnceLock<Store>,
    /// How many more times it comes to a point before or after a call to a cloud.
    points: AtomicI64,
}

/// Something that we could have got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Launches with another token than the one that was written down.
    IgnoresTokens,
    /// Believes everybody.
    BelievesEverybody,
    /// Takes a machine that it does not see yet for one that is gone.
    TakesTheUnseenForGone,
    /// Ends everything that it sees.
    EndsForeignMachines,
    /// The harness launches on old facts without taking its turn.
    PlansOnOldFacts,
    /// Loses an end: it says that the machine is gone, and it is not.
    ForgetsToEnd,
}

pub(crate) struct Handle {
    pub(crate) cloud: Arc<FakeCloud>,
    pub(crate) life: Arc<Life>,
    pub(crate) world: Weak<World>,
    pub(crate) max_machines: Option<u64>,
    pub(crate) place: usize,
}

impl Life {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            store: OnceLock::new(),
            points: AtomicI64::new(NEVER),
        })
    }

    pub(crate) fn begins(&self, store: &Store) {
        let is_first = self.store.set(store.clone()).is_ok();
        assert!(is_first, "a process begins once");
    }

    /// Dies at the so many-th point before or after a call to a cloud.
    pub(crate) fn die_at_point(&self, points: i64) {
        self.points.store(points, Ordering::SeqCst);
    }

    /// Dies after so many further transactions.
    pub(crate) fn die_after_writes(&self, writes: u64) {
        self.store().stop_after(writes);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.store().is_stopped()
    }

    fn store(&self) -> &Store {
        self.store.get().expect("it has begun")
    }

    /// Comes to such a point; whether it is still alive then.
    fn pass(&self) -> bool {
        let before = self.points.load(Ordering::SeqCst);
        if before != NEVER {
            self.points.store(before - 1, Ordering::SeqCst);
            if before <= 0 {
                self.store().stop_after(0);
            }
        }
        !self.is_over()
    }
}

fn dead() -> CloudError {
    CloudError::Unavailable("the process is dead".to_owned())
}

impl Handle {
    fn world(&self) -> Arc<World> {
        self.world.upgrade().expect("the world outlives its clouds")
    }

    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.world().mutant == Some(mutant)
    }

    /// Before a call: the process may die, others may do something, the cloud may not work.
    async fn before(&self) -> Result<(), CloudError> {
        let world = self.world();
        if !self.life.pass() {
            return Err(dead());
        }
        world.meanwhile(&self.life).await;
        if world.is_down(self.place) {
            return Err(CloudError::Unavailable("it is down".to_owned()));
        }
        if world.makes_trouble() && world.chance.percent(6) {
            let problems = [
                CloudError::Throttled("too fast".to_owned()),
                CloudError::Unavailable("no answer".to_owned()),
                CloudError::Credentials("who are you".to_owned()),
                CloudError::Refused("no".to_owned()),
            ];
            return Err(world
                .chance
                .pick(&problems)
                .expect("there are some")
                .clone());
        }
        Ok(())
    }

    /// After it, before the answer is read.
    async fn after(&self) -> Result<(), CloudError> {
        if !self.life.pass() {
            return Err(dead());
        }
        self.world().meanwhile(&self.life).await;
        match self.life.is_over() {
            true => Err(dead()),
            false => Ok(()),
        }
    }

    fn fate(&self) -> Fate {
        const CAUSES: [Cause; 6] = [
            Cause::Capacity,
            Cause::Quota,
            Cause::Configuration,
            Cause::Throttled,
            Cause::Credentials,
            Cause::Unavailable,
        ];
        let world = self.world();
        if !world.makes_trouble() {
            return Fate::Made;
        }
        match world.chance.below(20) {
            0 | 1 => Fate::AnswerLost,
            2 | 3 => Fate::CallLost,
            4 => Fate::Partial(1),
            5 | 6 => Fate::Refused(*world.chance.pick(&CAUSES).expect("there are some")),
            7 => Fate::NeverUp,
            8 => Fate::Dying(world.chance.between(1_000, 3_600_000)),
            _ => Fate::Made,
        }
    }
}

#[async_trait]
impl Provider for Handle {
    fn kind(&self) -> &'static str {
        "fake"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.cloud.validate(config)
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
        if self.is_mutant(Mutant::BelievesEverybody) {
            return Ok(Verified {
                state: WorkerState::Running,
                lasts_ms: 3_600_000,
                worker_config: json!({}),
            });
        }
        self.cloud.verify(claim).await
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
}

#[async_trait]
impl Machines for Handle {
    fn max_machines(&self) -> Option<u64> {
        self.max_machines
    }

    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        self.cloud.bids(ask)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        if let Err(problem) = self.before().await {
            return Err(match problem {
                CloudError::Throttled(problem) => LaunchError::Refused {
                    cause: Cause::Throttled,
                    problem,
                },
                CloudError::Unavailable(problem) => LaunchError::Unknown(problem),
                CloudError::Credentials(problem) | CloudError::Refused(problem) => {
                    LaunchError::Refused {
                        cause: Cause::Credentials,
                        problem,
                    }
                }
            });
        }
        self.cloud.next_launches([self.fate()]);
        let answer = if self.is_mutant(Mutant::IgnoresTokens) {
            let token: LaunchToken = self.world().fresh_token();
            let order = LaunchOrder {
                token: &token,
                ..*order
            };
            self.cloud.launch(&order).await
        } else {
            self.cloud.launch(order).await
        };
        match self.after().await {
            Ok(()) => answer,
            Err(problem) => Err(LaunchError::Unknown(problem.to_string())),
        }
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        self.before().await?;
        let mut seen = self.cloud.look(workers).await?;
        let world = self.world();
        if world.makes_trouble() && world.chance.percent(5) {
            seen.truncate(world.chance.below(seen.len() + 1));
        }
        if self.is_mutant(Mutant::TakesTheUnseenForGone) {
            for (_, sighting) in &mut seen {
                if *sighting == Sighting::NotFound {
                    *sighting = Sighting::Gone(None);
                }
            }
        }
        self.after().await?;
        Ok(seen)
    }

    fn look_batch(&self) -> usize {
        2
    }

    fn regions(&self) -> Vec<Region> {
        self.cloud.regions()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        self.cloud.region_of(group)
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.before().await?;
        if self.is_mutant(Mutant::EndsForeignMachines) {
            for key in self.world().foreign_machines(self.place) {
                self.cloud.kill(&key);
            }
        }
        let mut owned = self.cloud.owned_page(region, after).await?;
        // Some clouds list no states, and a few of the machines must be looked at.
        if self.world().makes_trouble() && self.world().chance.percent(50) {
            for one in &mut owned.machines {
                one.sighting = None;
            }
        }
        self.after().await?;
        Ok(owned)
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        self.cloud.group(launch_config)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        self.before().await?;
        if !self.is_mutant(Mutant::ForgetsToEnd) {
            self.cloud.end(worker).await?;
        }
        self.after().await
    }
}
