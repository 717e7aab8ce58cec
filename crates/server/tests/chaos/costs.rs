//! Costs (I20): an observer computes what each machine cost from the bills of the clouds and from
//! the tasks alone. The accounts must agree to the millisecond and to the millionth.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::BilledMachine;
use domain::cost::{Amount, CostGrouping, CostKind, CostScope};
use domain::id::WorkerKey;
use domain::task::EndReason;
use domain::time::Timestamp;
use server::background::{Batches, Costs, Outcomes};
use store::meters::{self, DueMeter, DueMeters};
use store::{StoreError, cost_reports};

use crate::clouds::Mutant;
use crate::recovery::TURN_MS;
use crate::world::{CLOUDS, Process, World};

/// Later than any moment of a run.
const FOREVER: i64 = 4_000_000_000_000;
const MINUTE_MS: i64 = 60_000;
const SECOND_MS: i64 = 1_000;
const HOUR_MS: i128 = 3_600_000;
/// More due meters than a world has, and more runs.
const MANY: u32 = 10_000;

/// A run that has ended.
pub(crate) struct SeenRun {
    worker: WorkerKey,
    started: Timestamp,
    ended: Timestamp,
    reason: EndReason,
}

/// The cost of the machines of one launch config: in all, usefully, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    all: Amount,
    useful: Amount,
    lost: Amount,
}

/// Provider, pool and launch config.
type Account = (String, String, String);

/// In the other worlds, clouds forget ended machines after an hour, so nobody knows their ends.
pub(crate) fn keeps_bills(seed: u64) -> bool {
    seed % 4 != 3
}

impl Process {
    /// Charges machines that are due, at most so many runs at once.
    pub(crate) async fn charge(&self, mutant: Option<Mutant>, max_runs: u32) {
        if self.app.engine.demand_source.is_outside() {
            return;
        }
        self.run(Outcomes(Arc::clone(&self.app))).await;
        match mutant {
            Some(Mutant::ChargesASecondTwice) => self.charge_wrongly(-SECOND_MS).await,
            Some(Mutant::ChargesASecondToNobody) => self.charge_wrongly(SECOND_MS).await,
            Some(Mutant::TakesPartsForAll) => self.charge_as_if_all().await,
            Some(_) | None => {
                let batches = Batches { size: 3, most: 100 };
                let costs = Costs(Arc::clone(&self.app.engine));
                let _ = costs.in_batches(batches, max_runs).await;
            }
        }
    }

    /// A plausible mistake: the runs of a part of the time are taken for all runs.
    async fn charge_as_if_all(&self) {
        let now = self.app.engine.clock.now();
        let charged = self.app.engine.store.write("wrong_charge", move |tx| {
            let due = meters::list_due(tx, now, MANY, 1)?.meters;
            let charges = due.into_iter().map(|mut due| {
                (due.life.runs_since, due.life.runs_until) = (None, None);
                let charge = due.meter.charge(&due.life, now.plus_millis(-MINUTE_MS));
                (due, charge, now.plus_millis(MINUTE_MS))
            });
            meters::charge(tx, &charges.collect::<Vec<_>>())
        });
        // Its process may die.
        let _: Result<(), StoreError> = charged.await;
    }

    /// A plausible mistake: a meter moves to another moment than that up to which was charged.
    async fn charge_wrongly(&self, by_ms: i64) {
        let now = self.app.engine.clock.now();
        let charged = self.app.engine.store.write("wrong_charge", move |tx| {
            let due = meters::list_due(tx, now, MANY, MANY)?.meters;
            let charges = due.into_iter().map(|due| {
                let mut charge = due.meter.charge(&due.life, now.plus_millis(-MINUTE_MS));
                if !charge.is_settled && charge.charged > due.meter.charged {
                    charge.charged = charge.charged.plus_millis(by_ms);
                }
                (due, charge, now.plus_millis(MINUTE_MS))
            });
            meters::charge(tx, &charges.collect::<Vec<_>>())
        });
        // Its process may die.
        let _: Result<(), StoreError> = charged.await;
    }
}

impl World {
    /// In every second world, machines are charged in parts.
    pub(crate) fn charged_runs(&self) -> u32 {
        if self.seed.is_multiple_of(2) { MANY } else { 1 }
    }

    /// Records the runs that have ended: tasks expire.
    pub(crate) async fn see_runs(&self) {
        let ids = self.state().tasks.clone();
        let read = self.observer.read("ended_runs", move |tx| {
            let mut seen = BTreeMap::new();
            for id in &ids {
                let Some(task) = store::tasks::get(tx, &id.parse().unwrap())? else {
                    continue;
                };
                let pool_id = &task.definition.task_queue_id;
                for (number, run) in task.runs.iter().enumerate() {
                    let (Some(claim), Some(end)) = (&run.claim, run.end) else {
                        continue;
                    };
                    let worker = WorkerKey {
                        pool_id: pool_id.clone(),
                        group: claim.group.clone(),
                        id: claim.worker_id.clone(),
                    };
                    let run = SeenRun {
                        worker,
                        started: claim.started,
                        ended: end.at,
                        reason: end.reason,
                    };
                    seen.insert((id.clone(), number), run);
                }
            }
            Ok::<_, StoreError>(seen)
        });
        let seen = read.await.unwrap();
        self.state().runs.extend(seen);
    }

    /// All machines have ended: their costs are settled, and then compared with the bills.
    pub(crate) async fn settle_costs(self: &Arc<Self>, limit: u32) {
        let mut limit = limit + self.turns_behind();
        let mut turn = 1;
        while self.has_meters().await && self.state().problems.is_empty() {
            let left = self.meters().await;
            // A machine may end in any turn, or in the future if the clock of its cloud is ahead.
            // It is charged a minute later, which is in the next turn.
            let ends = left.iter().filter_map(|due| due.meter.ended);
            let charged = ends.map(|end| end.plus_millis(TURN_MS)).max();
            let charged = charged.filter(|moment| *moment > self.now());
            limit = limit.max(charged.map_or(0, |moment| turn + self.turns_until(moment)));
            if turn > limit {
                self.problem(format!(
                    "I20: costs are not settled after {limit} turns: {left:?}"
                ));
            }
            self.turn(turn * 10).await;
            turn += 1;
        }
        if keeps_bills(self.seed) && self.state().problems.is_empty() {
            self.check_costs().await;
        }
    }

    async fn has_meters(&self) -> bool {
        !self.meters().await.is_empty()
    }

    async fn meters(&self) -> Vec<DueMeter> {
        let forever = Timestamp::from_millis(FOREVER);
        let read = self.observer.read("meters", move |tx| {
            meters::list_due(tx, forever, MANY, MANY)
        });
        let left: Result<DueMeters, StoreError> = read.await;
        left.unwrap().meters
    }

    async fn check_costs(&self) {
        let (expected, stored) = (self.true_costs(), self.accounts().await);
        for account in expected.keys().chain(stored.keys()) {
            let (mut truth, mut known) = (
                expected.get(account).copied().unwrap_or_default(),
                stored.get(account).copied().unwrap_or_default(),
            );
            // Clouds and servers had different times.
            if self.state().latest.is_some() {
                truth.useful = known.useful;
                truth.lost = known.lost;
            }
            if truth != known {
                known.all.ms -= truth.all.ms;
                self.problem(format!(
                    "I20: {account:?} cost {truth:?}, and its account is {known:?} (all: difference)"
                ));
                return;
            }
        }
    }

    async fn accounts(&self) -> BTreeMap<Account, Sums> {
        let read = self.observer.read("accounts", |tx| {
            let mut accounts = BTreeMap::new();
            for (provider, _) in CLOUDS {
                let scope = CostScope::Provider(provider.parse().unwrap());
                let (by, since) = (CostGrouping::LaunchConfig, Timestamp::from_millis(0));
                let forever = Timestamp::from_millis(FOREVER);
                for line in cost_reports::lines(tx, by, &scope, since, forever)? {
                    let [pool, config] = line.names;
                    let sums: &mut Sums = accounts
                        .entry((provider.to_owned(), pool, config))
                        .or_default();
                    sums.all += line.uses.total();
                    sums.useful += line.uses.get(CostKind::Useful);
                    sums.lost += line.uses.get(CostKind::Lost);
                }
            }
            Ok::<_, StoreError>(accounts)
        });
        read.await.unwrap()
    }

    /// From the bills and the tasks. A machine that had ended before any scan saw it has no row, so
    /// nobody could charge it.
    fn true_costs(&self) -> BTreeMap<Account, Sums> {
        let mut costs: BTreeMap<Account, Sums> = BTreeMap::new();
        let state = self.state();
        for ((provider, _), cloud) in CLOUDS.iter().zip(&self.clouds) {
            for machine in cloud.bill() {
                let Some(config) = &machine.launch_config_id else {
                    continue;
                };
                if !state.rows.contains_key(&machine.key) {
                    continue;
                }
                let pool = machine.key.pool_id.to_string();
                let account = ((*provider).to_owned(), pool, config.to_string());
                let runs = state.runs.values();
                let runs: Vec<&SeenRun> = runs.filter(|run| run.worker == machine.key).collect();
                let sums = costs.entry(account).or_default();
                sums.all += measure(&machine, vec![life(&machine)]);
                let useful = measure(&machine, times(&runs, is_useful));
                let useful_or_lost =
                    measure(&machine, times(&runs, |end| is_useful(end) || is_lost(end)));
                sums.useful += useful;
                sums.lost += Amount {
                    ms: useful_or_lost.ms - useful.ms,
                    micros: useful_or_lost.micros - useful.micros,
                };
            }
        }
        costs
    }
}

fn is_useful(reason: EndReason) -> bool {
    matches!(reason, EndReason::Completed | EndReason::Failed)
}

fn is_lost(reason: EndReason) -> bool {
    matches!(reason, EndReason::ClaimExpired | EndReason::WorkerShutdown)
}

fn life(machine: &BilledMachine) -> (i64, i64) {
    let ended = machine.ended.map_or(FOREVER, Timestamp::as_millis);
    (machine.made.as_millis(), ended)
}

fn times(runs: &[&SeenRun], is_counted: impl Fn(EndReason) -> bool) -> Vec<(i64, i64)> {
    let counted = runs.iter().filter(|run| is_counted(run.reason));
    let times = counted.map(|run| (run.started.as_millis(), run.ended.as_millis()));
    times.collect()
}

/// The length of the union of these times within the life of the machine, and its cost.
fn measure(machine: &BilledMachine, mut times: Vec<(i64, i64)>) -> Amount {
    let (made, ended) = life(machine);
    let cost_up_to = |at: i64| {
        let price = i128::from(machine.price.unwrap_or(0));
        let micros = price * i128::from(at - made) / HOUR_MS;
        i64::try_from(micros).unwrap()
    };
    times.sort_unstable();
    let (mut sum, mut reached) = (Amount::default(), made);
    for (from, to) in times {
        let (from, to) = (from.max(reached), to.min(ended));
        if from < to {
            sum += Amount {
                ms: to - from,
                micros: cost_up_to(to) - cost_up_to(from),
            };
            reached = to;
        }
    }
    sum
}
