//! The clouds as one process sees them: they fail and show old states, the process dies between a
//! call and its answer, and others act meanwhile.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use cloud::{
    CloudError, FakeCloud, IdentityClaim, LaunchError, LaunchOrder, LaunchOutcome, LaunchedMachine,
    MachineEnd, Machines, OwnedPage, Provider, Region, Sighting, Verification, VerifyError,
};
use contract::Invalid;
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::{BidRequest, Bids};
use domain::time::Timestamp;
use domain::worker::Worker;
use serde_json::{Value, json};
use store::Store;

use crate::world::World;

const NO_ANSWER: &str = "no answer within 30 s";
/// Never.
const NEVER: i64 = i64::MAX;

/// The life of one process.
pub(crate) struct Life {
    store: OnceLock<Store>,
    /// How many more times it comes to a point before or after a call to a cloud.
    points: AtomicI64,
    /// It freezes there instead of dying, or before one of its next transactions.
    may_freeze: AtomicBool,
}

/// A possible mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Launches with another token than the stored one.
    IgnoresTokens,
    /// Accepts every proof.
    BelievesEverybody,
    /// Treats a machine that it does not see yet as lost.
    TakesTheUnseenForGone,
    /// Ends everything that it sees.
    EndsForeignMachines,
    /// The harness launches on old facts without taking its turn.
    PlansOnOldFacts,
    /// Loses an end: it reports the machine as ended, but the machine still runs.
    ForgetsToEnd,
    /// Treats machines of a region that does not answer as lost.
    TakesTheSilentForGone,
    /// Lists none of our machines.
    ListsNothing,
    /// The harness makes the planner forget refusals.
    ForgetsRefusals,
    /// The harness keeps from the queue the workers beyond those that it serves at once.
    ServesOneBatch,
    /// The harness launches a decision from before the process froze, although it was withdrawn
    /// meanwhile.
    LaunchesAfterThawing,
    /// The harness counts signs of workers from before the clocks were set back.
    CountsSignsAhead,
    /// The harness launches workers that could not be stored.
    LaunchesUnwritten,
    /// The harness charges a second of a machine twice.
    ChargesASecondTwice,
    /// The harness charges a second of a machine to nobody.
    ChargesASecondToNobody,
    /// The harness takes the runs of a part of a machine's time for all of them.
    TakesPartsForAll,
    /// Processes use the time of day of their machines.
    UsesItsOwnClock,
    /// Processes work although they do not know the time.
    ActsInDoubt,
    /// Processes end claims at once after a step of the time.
    EndsAfterAStep,
    /// The harness makes budgets forget the machines under them.
    ForgetsMachines,
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
            may_freeze: AtomicBool::new(false),
        })
    }

    pub(crate) fn begins(&self, store: &Store) {
        let is_first = self.store.set(store.clone()).is_ok();
        assert!(is_first, "a process begins once");
    }

    /// Dies at this point, counted before and after calls to clouds.
    pub(crate) fn die_at_point(&self, points: i64) {
        self.points.store(points, Ordering::SeqCst);
    }

    /// Dies after this many further transactions.
    pub(crate) fn die_after_writes(&self, writes: u64) {
        self.store().stop_after(writes);
    }

    /// Freezes at this point, counted before and after calls to clouds.
    pub(crate) fn freeze_at_point(&self, points: i64) {
        self.may_freeze.store(true, Ordering::SeqCst);
        self.points.store(points, Ordering::SeqCst);
    }

    /// Freezes before one of its transactions, after this many that write.
    pub(crate) fn freeze_after_writes(&self, writes: u64) {
        self.may_freeze.store(true, Ordering::SeqCst);
        self.store().freeze_after(writes);
    }

    /// Continues where it was, and does not freeze again.
    pub(crate) fn thaw(&self) {
        if self.may_freeze.swap(false, Ordering::SeqCst) {
            self.points.store(NEVER, Ordering::SeqCst);
            self.store().thaw();
        }
    }

    pub(crate) fn may_freeze(&self) -> bool {
        self.may_freeze.load(Ordering::SeqCst)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.store().is_frozen()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.store().is_stopped()
    }

    fn store(&self) -> &Store {
        self.store.get().expect("it has begun")
    }

    /// Passes such a point. Returns whether the process is still alive.
    async fn pass(&self) -> bool {
        let before = self.points.load(Ordering::SeqCst);
        if before != NEVER {
            self.points.store(before - 1, Ordering::SeqCst);
            if before <= 0 && self.may_freeze() {
                self.points.store(NEVER, Ordering::SeqCst);
                self.store().freeze_after(0);
            } else if before <= 0 {
                self.store().stop_after(0);
            }
        }
        self.store().await_thaw().await;
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

    /// Before a call: the process may die, others may act, the cloud may fail.
    async fn before(&self) -> Result<(), CloudError> {
        let world = self.world();
        if !self.life.pass().await {
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
        if !self.life.pass().await {
            return Err(dead());
        }
        self.world().meanwhile(&self.life).await;
        if self.life.is_over() {
            Err(dead())
        } else {
            Ok(())
        }
    }

    fn is_hung(&self, region: Option<&WorkerGroup>) -> bool {
        region.is_some_and(|region| self.world().is_hung(self.place, region))
    }

    fn fate(&self) -> LaunchOutcome {
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
            return LaunchOutcome::Made;
        }
        let refusing = world.state().refusing[self.place];
        if let Some(cause) = refusing {
            return LaunchOutcome::Refused(cause);
        }
        match world.chance.below(20) {
            0 | 1 => LaunchOutcome::AnswerLost,
            2 | 3 => LaunchOutcome::CallLost,
            4 => LaunchOutcome::Partial(1),
            5 | 6 => LaunchOutcome::Refused(*world.chance.pick(&CAUSES).expect("there are some")),
            7 => LaunchOutcome::NeverUp,
            8 => LaunchOutcome::Dying(world.chance.between(1_000, 3_600_000)),
            _ => LaunchOutcome::Made,
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

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        if self.is_mutant(Mutant::BelievesEverybody) {
            return Ok(Verification {
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

    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, now: Timestamp) -> Bids {
        self.cloud.bids(config, request, now)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        if let Err(problem) = self.before().await {
            return Err(match problem {
                CloudError::Throttled(problem) => LaunchError::Refused {
                    cause: Cause::Throttled,
                    error: problem,
                },
                CloudError::Unavailable(problem) => LaunchError::Unknown(problem),
                CloudError::Credentials(problem) | CloudError::Refused(problem) => {
                    LaunchError::Refused {
                        cause: Cause::Credentials,
                        error: problem,
                    }
                }
            });
        }
        let is_hung = self.is_hung(self.cloud.group(order.launch_config).as_ref());
        let is_lost = is_hung && self.world().chance.percent(50);
        self.cloud.next_launches([if is_lost {
            LaunchOutcome::CallLost
        } else {
            self.fate()
        }]);
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
            Ok(()) if is_hung => Err(LaunchError::Unknown(NO_ANSWER.to_owned())),
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
        if self.is_mutant(Mutant::TakesTheSilentForGone) {
            for (key, sighting) in &mut seen {
                if self.is_hung(Some(&key.group)) {
                    *sighting = Sighting::Ended(MachineEnd::default());
                }
            }
        } else {
            seen.retain(|(key, _)| !self.is_hung(Some(&key.group)));
        }
        if self.is_mutant(Mutant::TakesTheUnseenForGone) {
            for (_, sighting) in &mut seen {
                if *sighting == Sighting::NotFound {
                    *sighting = Sighting::Ended(MachineEnd::default());
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
        let group = match region {
            Region::Group(group) => Some(group),
            Region::Everything => None,
        };
        if self.is_mutant(Mutant::TakesTheSilentForGone) && self.is_hung(group) {
            return Ok(OwnedPage::only(Vec::new()));
        }
        let mut owned = self.cloud.owned_page(region, after).await?;
        if self.is_mutant(Mutant::ListsNothing) {
            owned.machines.clear();
        }
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
        if self.is_hung(Some(&worker.key.group)) {
            return Err(CloudError::Unavailable(NO_ANSWER.to_owned()));
        }
        if !self.is_mutant(Mutant::ForgetsToEnd) {
            self.cloud.end(worker).await?;
        }
        self.after().await
    }
}
