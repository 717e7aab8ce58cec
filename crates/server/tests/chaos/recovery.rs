//! The end of a run: all failures are repaired, pending work is done, and then all workers stop.

use std::sync::Arc;

use domain::id::{LaunchConfigId, ProviderId};
use domain::plan::{Bid, Health, Offer};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::checks::{max_of, to_come};
use crate::people::POOLS;
use crate::picture::Picture;
use crate::weather::LONGEST_ROUND_MS;
use crate::world::World;

const MINUTE_MS: i64 = 60_000;
/// Time of a turn, except for the first turns.
pub(crate) const TURN_MS: i64 = 10 * MINUTE_MS;
/// While one cloud is down, the pools of the other must be done within this many turns (I9).
const TURNS_BESIDE_A_FAILURE: u32 = 40;
/// All pending work is done within this many turns (I10).
const TURNS_TO_FINISH: u32 = 60;
/// And all workers have stopped within this many turns (I3, I7, I11).
const TURNS_TO_GO: u32 = 80;
/// And the costs of all machines are settled within this many turns (I20).
const TURNS_TO_SETTLE: u32 = 5;

impl World {
    pub(crate) async fn recover(self: &Arc<Self>) {
        self.note("from here on nothing goes wrong any more");
        self.end_trouble();
        self.let_things_happen().await;
        self.bury_the_dead().await;
        self.remove_budgets().await;
        self.restore_pools().await;
        let workers = self.state().workers.clone();
        for worker in workers {
            if worker.credentials.is_some() {
                self.quarantine_for(&worker.key, -1).await;
            }
        }
        self.set_down(0, false);
        self.set_down(1, true);
        let late = self.turns_behind();
        self.until(
            "I9: pools beside a failing cloud wait",
            TURNS_BESIDE_A_FAILURE + late,
            |world, picture| world.is_done(picture, "one"),
        )
        .await;
        self.set_down(1, false);
        self.until("I10: tasks wait", TURNS_TO_FINISH, |world, picture| {
            world.is_done(picture, "one") && world.is_done(picture, "two")
        })
        .await;
        self.until("I11: something stays", TURNS_TO_GO, World::is_empty)
            .await;
        if self.state().problems.is_empty() {
            self.settle_costs(TURNS_TO_SETTLE).await;
        }
    }

    /// How many turns it takes until the clocks reach the time from which they were set back. A
    /// machine that was requested then and never starts is waited for as long.
    pub(crate) fn turns_behind(&self) -> u32 {
        let latest = self.state().latest.unwrap_or(self.now());
        self.turns_until(latest)
    }

    /// How many turns it takes until the clocks reach this moment, and one more.
    pub(crate) fn turns_until(&self, moment: Timestamp) -> u32 {
        let ahead_ms = moment.millis_since(self.now()).max(0);
        u32::try_from(ahead_ms / TURN_MS).unwrap() + 1
    }

    /// Repeats turns until this is true.
    async fn until(
        self: &Arc<Self>,
        what: &str,
        limit: u32,
        is_so: impl Fn(&World, &Picture) -> bool,
    ) {
        for turn in 0..limit {
            self.turn(turn).await;
            let state = self.state();
            if !state.problems.is_empty()
                || state.before.as_ref().is_some_and(|now| is_so(self, now))
            {
                return;
            }
        }
        let left = self.left();
        self.problem(format!("{what} after {limit} turns: {left}"));
    }

    pub(crate) async fn turn(self: &Arc<Self>, turn: u32) {
        self.bury_the_dead().await;
        self.listen_ms(if turn < 6 { MINUTE_MS } else { TURN_MS });
        self.workers_act().await;
        for process in self.processes() {
            if self.learns() {
                process.learn().await;
            }
            process.provision(self.rings).await;
            process.round().await;
            self.let_things_happen().await;
            if turn.is_multiple_of(2) {
                process.scan().await;
                process.end().await;
                process.mind_the_queue().await;
            }
            process.publish().await;
            process.charge(self.mutant, self.charged_runs()).await;
        }
        self.check().await;
    }

    /// Time passes in which every process decides on the fleet often enough: no process has a gap.
    pub(crate) fn listen_ms(&self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(LONGEST_ROUND_MS);
            self.advance_ms(step);
            for process in self.processes() {
                process.app.engine.availability.note_answer(self.now());
            }
            left -= step;
        }
    }

    /// No task is pending in the pools of this provider. Pools whose maximum may be used up in the
    /// other cloud do not count until that cloud can be listed.
    fn is_done(&self, picture: &Picture, provider: &str) -> bool {
        POOLS.iter().all(|pool| {
            let id = pool.parse().unwrap();
            let demand = picture.demand[&id];
            let Some(pool) = picture.pools.get(&id) else {
                return true;
            };
            !pool.provider_ids().any(|id| id.as_str() == provider)
                || (demand.pending == 0 && demand.claimed == 0)
                || (!self.is_up() && !has_room_beside(picture, pool))
        })
    }

    fn is_up(&self) -> bool {
        !self.is_down(0) && !self.is_down(1)
    }

    /// No machine, no launch that may make a machine, no worker that has not stopped, no
    /// unpublished event.
    fn is_empty(&self, picture: &Picture) -> bool {
        self.our_machines() == 0
            && picture.n_waiting_events == 0
            && picture
                .launches
                .values()
                .all(|launch| !launch.state.is_pending())
            && picture
                .workers
                .values()
                .all(|worker| worker.state == WorkerState::Stopped)
    }

    fn our_machines(&self) -> usize {
        let machines = self.clouds.iter().flat_map(|cloud| cloud.machines());
        machines.filter(|machine| machine.token.is_some()).count()
    }

    fn left(&self) -> String {
        let state = self.state();
        let Some(picture) = &state.before else {
            return "nothing is known".to_owned();
        };
        let workers = picture
            .workers
            .values()
            .filter(|worker| worker.state != WorkerState::Stopped);
        let workers: Vec<String> = workers
            .map(|worker| format!("{} {} {:?}", worker.key, worker.state, worker.terms))
            .collect();
        let launches = picture
            .launches
            .values()
            .filter(|launch| launch.state.is_pending());
        let launches: Vec<String> = launches.map(|launch| format!("{launch:?}")).collect();
        let known: Vec<String> = state
            .workers
            .iter()
            .map(|worker| {
                format!(
                    "{} silent {} claims {}",
                    worker.key,
                    worker.is_silent,
                    worker.claims.len()
                )
            })
            .collect();
        format!(
            "demand {:?}\nrows {workers:#?}\nlaunches {launches:#?}\n{} machines\nprograms {known:#?}\n{} events",
            picture.demand,
            self.our_machines(),
            picture.n_waiting_events,
        )
    }
}

/// Could a machine be launched beside those that the pool may have at a provider that it has left?
fn has_room_beside(picture: &Picture, pool: &Pool) -> bool {
    let max = max_of(&pool.definition.config);
    let configs = picture.configs.iter();
    let mut active = configs.filter(|config| config.pool_id == pool.id && !config.archived);
    active.any(|config| {
        let offer = Offer::of(
            config,
            config.provider_id(pool),
            0,
            Health::default(),
            Ok(Bid::plain(String::new())),
        );
        let each = u64::from(offer.capacity_each);
        let own_max = offer.max_capacity.unwrap_or(max);
        units_elsewhere(picture, pool, None) + each <= max
            && units_elsewhere(picture, pool, Some(&config.id)) + each <= own_max
    })
}

/// The units of a pool (or of one of its launch configs) that it has or may still get from
/// providers that it has left.
fn units_elsewhere(picture: &Picture, pool: &Pool, config: Option<&LaunchConfigId>) -> u64 {
    let is_elsewhere = |id: &ProviderId| !pool.has_provider(id);
    let workers = picture.workers_of(&pool.id).filter(|worker| {
        worker.state != WorkerState::Stopped
            && is_elsewhere(&worker.provider_id)
            && config.is_none_or(|config| worker.launch_config_id.as_ref() == Some(config))
    });
    let launches = picture.launches.values().filter(|launch| {
        launch.pool_id == pool.id
            && is_elsewhere(&launch.provider_id)
            && config.is_none_or(|config| launch.launch_config_id == *config)
    });
    workers
        .map(|worker| u64::from(worker.capacity))
        .sum::<u64>()
        + launches.map(to_come).sum::<u64>()
}
