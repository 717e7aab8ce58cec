//! The next step, drawn by the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::facts::Facts;
use domain::id::{PoolId, WorkerKey};
use domain::plan::Plan;
use domain::time::Timestamp;
use engine::fleet::{self, ReplayError};
use server::background::driver::BackgroundTask;
use server::background::{
    EventPublisher, Housekeeping, Learner, Provision, ProvisionRounds, QueueClaims, QueueDeadlines,
    QueueHousekeeping, QueueReleases, Scan,
};
use store::StoreError;

use crate::clouds::Mutant;
use crate::people::POOLS;
use crate::run::Kind;
use crate::weather::LONGEST_ROUND_MS;
use crate::world::{Process, World};

/// Two processes see all that three could.
const MAX_PROCESSES: usize = 2;
/// With wrong clocks, two right ones stand beside a wrong one.
const MAX_PROCESSES_WITH_WRONG_CLOCKS: usize = 3;

impl Process {
    /// Activates a task once. Its errors are expected when its process dies or a cloud fails.
    pub(crate) async fn run(&self, mut task: impl BackgroundTask) {
        if !self.rests() {
            let _ = task.activate().await;
        }
    }

    pub(crate) async fn end(&self) {
        // A task never overlaps itself (I13): the driver sees to it, and here this.
        if let Ok(mut endings) = self.endings.try_lock()
            && !self.rests()
        {
            for ending in endings.iter_mut() {
                let _ = ending.activate().await;
            }
        }
    }

    /// Decides on the woken pools; or on none, if all wake-ups are lost.
    pub(crate) async fn provision(&self, rings: bool) {
        if !rings {
            self.app.engine.wakeups.take_pools();
        }
        self.run(Provision::new(Arc::clone(&self.app.engine))).await;
    }

    pub(crate) async fn round(&self) {
        self.run(ProvisionRounds(Arc::clone(&self.app.engine)))
            .await;
    }

    pub(crate) async fn learn(&self) {
        let learner = Learner::new(Arc::clone(&self.app.engine), LONGEST_ROUND_MS);
        self.run(learner).await;
    }

    pub(crate) async fn scan(&self) {
        for scan in Scan::each(&self.app.engine) {
            self.run(scan).await;
        }
    }

    pub(crate) async fn publish(&self) {
        self.run(EventPublisher(Arc::clone(&self.app))).await;
    }

    pub(crate) async fn mind_the_queue(&self) {
        self.run(QueueClaims(Arc::clone(&self.app.engine))).await;
        self.run(QueueDeadlines(Arc::clone(&self.app.engine))).await;
        self.run(QueueReleases(Arc::clone(&self.app.engine))).await;
    }

    pub(crate) async fn keep_house(&self) {
        self.run(Housekeeping::new(Arc::clone(&self.app))).await;
        self.run(QueueHousekeeping::new(Arc::clone(&self.app.engine)))
            .await;
    }
}

impl World {
    pub(crate) async fn step(self: &Arc<Self>) {
        self.bury_the_dead().await;
        let Some(process) = self.any_process() else {
            return;
        };
        let number = process.number;
        match self.chance.below(105) {
            0..=9 => self.create_tasks().await,
            10..=24 => self.provision_in(&process).await,
            25..=31 => self.make_round_in(&process).await,
            32..=41 => {
                self.note(format!("process {number} scans"));
                self.lets(&process, |process| async move { process.scan().await })
                    .await;
            }
            42..=46 => {
                self.note(format!("process {number} ends"));
                self.lets(&process, |process| async move { process.end().await })
                    .await;
            }
            47..=49 => {
                self.lets(&process, |process| async move { process.publish().await })
                    .await;
            }
            50..=52 => {
                let (mutant, max_runs) = (self.mutant, self.charged_runs());
                self.lets(&process, |process| async move {
                    process.mind_the_queue().await;
                    process.charge(mutant, max_runs).await;
                })
                .await;
            }
            53 => {
                self.lets(
                    &process,
                    |process| async move { process.keep_house().await },
                )
                .await;
            }
            54..=69 => self.workers_act().await,
            70..=77 => self.time_passes().await,
            78..=80 => self.edit_pool().await,
            81 => self.quarantine().await,
            82 => self.add_foreign_machine(),
            83 => self.register_wrongly().await,
            84 => self.cancel_task().await,
            85 | 86 => self.arrange_a_death(&process),
            87 | 104 => self.arrange_a_freeze(&process).await,
            88..=89 => self.add_another_process().await,
            // Their actions run in the process and in the harness; neither may freeze.
            90..=92 | 97..=98 if process.life.may_freeze() => {}
            90..=92 | 97..=99 if process.rests() => {}
            90..=92 => self.decide_late(&process).await,
            93..=95 | 100.. => self.change_the_weather(),
            96 => self.a_machine_dies(),
            97..=98 => self.preview_one(&process).await,
            99 => self.answer_again(&process),
        }
        self.let_things_happen().await;
    }

    async fn provision_in(self: &Arc<Self>, process: &Arc<Process>) {
        self.note(format!("process {} provisions", process.number));
        let rings = self.rings;
        self.lets(
            process,
            |process| async move { process.provision(rings).await },
        )
        .await;
    }

    async fn make_round_in(self: &Arc<Self>, process: &Arc<Process>) {
        self.note(format!("process {} makes its round", process.number));
        let learns = self.learns();
        self.lets(process, |process| async move {
            if learns {
                process.learn().await;
            }
            process.round().await;
        })
        .await;
    }

    /// While a process waits for a cloud.
    pub(crate) async fn do_meanwhile(self: &Arc<Self>, others: &[Arc<Process>]) {
        let other = self.chance.pick(others);
        match (other, self.chance.below(5)) {
            (Some(other), 0 | 1) => {
                self.note(format!(
                    "meanwhile process {} makes its round",
                    other.number
                ));
                self.lets(other, |other| async move { other.round().await })
                    .await;
            }
            (Some(other), 2) => {
                self.note(format!("meanwhile process {} scans", other.number));
                self.lets(other, |other| async move { other.scan().await })
                    .await;
            }
            (Some(other), 3) => {
                self.note(format!("meanwhile process {} ends", other.number));
                self.lets(other, |other| async move { other.end().await })
                    .await;
            }
            (Some(_), _) | (None, _) => {
                self.note("meanwhile workers act");
                self.workers_act().await;
            }
        }
    }

    /// The process dies soon: between two transactions, or before or after a call to a cloud.
    fn arrange_a_death(&self, process: &Process) {
        if self.chance.percent(50) {
            let writes = self.chance.below(5) as u64;
            self.note(format!(
                "process {} dies after {writes} writes",
                process.number
            ));
            process.life.die_after_writes(writes);
        } else {
            let points = self.chance.between(0, 4);
            self.note(format!(
                "process {} dies after {points} points",
                process.number
            ));
            process.life.die_at_point(points);
        }
    }

    async fn add_another_process(self: &Arc<Self>) {
        let limit = match self.kind {
            Kind::Usual | Kind::ShortOfMoney => MAX_PROCESSES,
            Kind::WrongClocks => MAX_PROCESSES_WITH_WRONG_CLOCKS,
        };
        if self.processes().len() < limit {
            self.add_process().await;
        }
    }

    fn add_foreign_machine(&self) {
        let place = self.chance.below(self.clouds.len());
        let pool = self.chance.pick(&POOLS).expect("there are some");
        let token = self.fresh_token();
        let key = WorkerKey {
            pool_id: pool.parse().unwrap(),
            group: "r1".parse().unwrap(),
            id: format!("foreign-{token}").parse().unwrap(),
        };
        self.note(format!("{key} of somebody else appears"));
        self.clouds[place].add_foreign(key.clone());
        self.state().foreign.push((place, key));
    }

    fn a_machine_dies(&self) {
        let place = self.chance.below(self.clouds.len());
        let machines = self.clouds[place].machines();
        let ours: Vec<_> = machines
            .iter()
            .filter(|machine| machine.token.is_some())
            .collect();
        if let Some(machine) = self.chance.pick(&ours) {
            self.note(format!("the machine of {} dies", machine.key));
            self.clouds[place].kill(&machine.key);
        }
    }

    pub(crate) async fn facts(&self, process: &Process, pool: &str) -> Option<Facts> {
        let (id, now): (PoolId, _) = (pool.parse().unwrap(), self.now());
        let mut horizon = process.app.engine.horizon(now);
        let defaults = process.app.engine.strategies;
        if self.mutant == Some(Mutant::CountsSignsAhead) {
            horizon.until = Timestamp::from_millis(i64::MAX);
        }
        let read = process.app.engine.store.read("facts", move |tx| {
            let Some(pool) = store::pools::get(tx, &id)? else {
                return Ok(Vec::new());
            };
            let demand = BTreeMap::from([(id.clone(), store::demand::of(tx, &id, now)?)]);
            fleet::read_facts(tx, vec![pool], &demand, &horizon, defaults)
        });
        let read: Result<Vec<Facts>, StoreError> = read.await;
        read.ok()?.pop()
    }

    /// Reads the facts, lets others act, and only then decides.
    async fn decide_late(self: &Arc<Self>, process: &Arc<Process>) {
        let pool = *self.chance.pick(&POOLS).expect("there are some");
        let Some(facts) = self.facts(process, pool).await else {
            return;
        };
        self.note(format!("process {} has looked at {pool}", process.number));
        match self.chance.below(4) {
            0 => self.edit_pool().await,
            1 => self.workers_act().await,
            2 => process.scan().await,
            _ => {
                if let Some(other) = self.any_process() {
                    self.lets(&other, |other| async move { other.round().await })
                        .await;
                }
            }
        }
        if matches!(
            self.mutant,
            Some(Mutant::PlansOnOldFacts | Mutant::LaunchesUnwritten)
        ) {
            self.launch_without_a_turn(process, &facts).await;
            return;
        }
        self.note(format!("process {} decides about {pool}", process.number));
        if let Ok(Some(decided)) = fleet::decide(&process.app.engine, facts.clone()).await {
            let again = (decided.pool.clone(), decided.launches.clone());
            self.state().carried_out.push(again);
            fleet::start_launches(&process.app.engine, &decided.pool, decided.launches);
        }
    }

    /// Carried-out launches are repeated: the cloud hears and answers twice.
    fn answer_again(&self, process: &Process) {
        let again = self.chance.pick(&self.state().carried_out).cloned();
        if let Some((pool, launches)) = again {
            self.note(format!("process {} carries out again", process.number));
            fleet::start_launches(&process.app.engine, &pool, launches);
        }
    }

    async fn preview_one(self: &Arc<Self>, process: &Arc<Process>) {
        let pool = self.chance.pick(&POOLS).expect("there are some");
        self.preview(process, pool).await;
    }

    pub(crate) async fn preview_all(self: &Arc<Self>) {
        let process = self.any_process();
        let is_free = |process: &Arc<Process>| !process.life.may_freeze() && !process.rests();
        let Some(process) = process.filter(is_free) else {
            return;
        };
        for pool in POOLS {
            self.preview(&process, pool).await;
        }
    }

    /// I12: a preview changes nothing, and equals the decision. I8: it counts the right workers as
    /// supply.
    async fn preview(self: &Arc<Self>, process: &Arc<Process>, pool: &str) {
        let Some(facts) = self.facts(process, pool).await else {
            return;
        };
        let place = process.random.place();
        let Ok(previewed) = fleet::preview(&process.app.engine, facts.clone()).await else {
            return;
        };
        let changed = self.facts(process, pool).await;
        if changed.is_some_and(|changed| format!("{changed:?}") != format!("{facts:?}")) {
            self.problem(format!("I12: looking ahead at {pool} changed something"));
        }
        process.random.wind_back(place);
        let Ok(decided) = fleet::decide(&process.app.engine, facts.clone()).await else {
            return;
        };
        let planned = previewed.as_ref().map(|(_, plan)| plan);
        match &decided {
            Some(decided) if planned != Some(&decided.plan) => {
                self.problem(format!(
                    "I12: of {pool} was foreseen {planned:?}, and not {:?}",
                    decided.plan
                ));
            }
            // An alarm alone is raised once an hour, not with each plan.
            None if planned.is_some_and(acts) && !process.life.is_over() => {
                self.problem(format!(
                    "I12: of {pool} was foreseen {planned:?}, and nothing came"
                ));
            }
            Some(_) | None => {}
        }
        if let Some(decided) = decided {
            self.check_replay(
                process,
                decided.pool.id.clone(),
                decided.number,
                &decided.plan,
            )
            .await;
            fleet::start_launches(&process.app.engine, &decided.pool, decided.launches);
        }
        if let Some((snapshot, _)) = previewed {
            self.check_supply(process, &snapshot).await;
        }
    }

    /// The stored input of a plan makes the same plan again.
    async fn check_replay(&self, process: &Process, pool: PoolId, number: i64, plan: &Plan) {
        let place = pool.clone();
        let read = process.app.engine.store.read("replay", move |tx| {
            Ok::<_, StoreError>(fleet::replay(tx, &pool, number))
        });
        match read.await {
            Ok(Ok(Some(again))) if again == *plan => {}
            // The process was stopped.
            Err(_) | Ok(Err(ReplayError::Store(_))) => {}
            Ok(other) => self.problem(format!(
                "plan {number} of {place} is {plan:?}, and {other:?} when it is made again"
            )),
        }
    }
}

/// Whether a plan launches workers or advises them.
fn acts(plan: &Plan) -> bool {
    !plan.awards.is_empty() || !plan.advice.is_empty()
}
