//! The clouds of the simulated world: launches, boots, failures and interruptions.

use domain::launch::Cause;
use domain::worker::WorkerState;

use super::World;
use super::events::Event;
use crate::draws::Draws;
use crate::fleet::SimulatedWorker;
use crate::planner::{LaunchOrder, Observation};
use crate::units::to_ms;

/// A machine that fails after its launch fails within this many seconds.
const LATE_FAILURE_SECONDS: (f64, f64) = (30.0, 90.0);
/// A storm takes its machines within this time.
const STORM_SECONDS: f64 = 150.0;

/// The hidden state of an offering.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cloud {
    /// How many machines count against the quota.
    pub(super) n_machines: u64,
    /// How many machines were ever made.
    n_made: u64,
}

impl World<'_> {
    /// Returns whether the launch was refused, at least in part.
    pub(super) fn launch(&mut self, order: LaunchOrder) -> bool {
        let pool = &self.scenario.pools[order.pool];
        let offering = pool.launch_configs[order.config].offering;
        let first = self.fleet.workers.len();
        let mut refusal = None;
        for _ in 0..order.machines {
            refusal = self.refusal(offering);
            if refusal.is_some() {
                break;
            }
            self.make_machine(order, offering);
        }
        let made = first..self.fleet.workers.len();
        let is_down = self.scenario.offerings[offering].is_down(self.at_ms);
        let works = !made.is_empty() && !is_down;
        let n_refused = order.machines as usize - made.len();
        self.attempts
            .note(self.at_ms, works.then_some(offering), n_refused);
        self.observe(&Observation::Answered {
            pool: order.pool,
            config: order.config,
            machines: order.machines,
            made,
            refusal,
        });
        self.wake(order.pool);
        refusal.is_some()
    }

    /// Why an offering makes no machine now.
    fn refusal(&self, offering: usize) -> Option<Cause> {
        let given = &self.scenario.offerings[offering];
        let n_machines = self.clouds[offering].n_machines;
        if given.quota.is_some_and(|quota| n_machines >= quota) {
            Some(Cause::Quota)
        } else if given.is_down(self.at_ms) && !given.fails_late {
            Some(Cause::Capacity)
        } else {
            None
        }
    }

    fn make_machine(&mut self, order: LaunchOrder, offering: usize) {
        let given = &self.scenario.offerings[offering];
        let pool = &self.scenario.pools[order.pool];
        let cloud = &mut self.clouds[offering];
        let number = cloud.n_made;
        cloud.n_made += 1;
        cloud.n_machines += 1;
        let worker = self.fleet.add(SimulatedWorker {
            pool: order.pool,
            config: order.config,
            offering,
            capacity: pool.launch_configs[order.config].capacity,
            state: WorkerState::Requested,
            asked_to_stop: false,
            stops_when_it_asks: self.scenario.timing.reactions.is_some(),
            launched_ms: self.at_ms,
            registered_ms: None,
            idle_since_ms: self.at_ms,
            ended_ms: None,
            bill: None,
            tasks: Vec::new(),
            last_start_ms: None,
            useful_ms: 0,
            idle_count: 0,
            number,
        });
        let mut draws = self.draws_of(worker, "boot");
        if given.is_down(self.at_ms) {
            let (least, most) = LATE_FAILURE_SECONDS;
            let fails_ms = self.at_ms + to_ms(draws.between(least, most));
            self.events.add(fails_ms, Event::LateFailure { worker });
            return;
        }
        let fails = given.failing_boots > 0.0 && draws.fraction() < given.failing_boots;
        if !fails && !given.makes_broken_machines(self.at_ms) {
            let seconds = given.draw_boot(&mut draws);
            let registers_ms = self.at_ms + to_ms(seconds);
            self.events
                .add(registers_ms, Event::Registration { worker });
        }
        let limit_ms = pool.launch_configs[order.config].registration_ms;
        let limit_ms = limit_ms.unwrap_or(self.scenario.timing.registration_ms);
        let limit_ms = self.at_ms.saturating_add(limit_ms);
        let limit = Event::RegistrationLimit { worker };
        self.events.add(limit_ms, limit);
    }

    /// The random generator of the n-th machine of an offering. It does not depend on the pool.
    fn draws_of(&self, worker: usize, purpose: &str) -> Draws {
        let worker = &self.fleet.workers[worker];
        let numbers = [worker.offering as u64, worker.number];
        Draws::new(self.seed, purpose, &numbers)
    }

    pub(super) fn register(&mut self, index: usize) {
        if self.fleet.workers[index].state != WorkerState::Requested {
            return;
        }
        self.fleet.change(index, WorkerState::Running, false);
        let worker = &mut self.fleet.workers[index];
        worker.registered_ms = Some(self.at_ms);
        worker.idle_since_ms = self.at_ms;
        let hazard = self.scenario.offerings[worker.offering].interruptions_per_hour;
        if hazard > 0.0 {
            let hours = self.draws_of(index, "life").exponential(hazard);
            let at_ms = self.at_ms + to_ms(hours * 3_600.0);
            self.events
                .add(at_ms, Event::Interruption { worker: index });
        }
        self.observe(&Observation::Registered { worker: index });
        self.serve(index);
        self.wake(self.fleet.workers[index].pool);
    }

    /// The machine costs nothing.
    pub(super) fn fail_late(&mut self, index: usize) {
        let worker = &mut self.fleet.workers[index];
        if worker.state != WorkerState::Requested {
            return;
        }
        worker.ended_ms = Some(self.at_ms);
        self.remove(index);
        self.observe(&Observation::FailedLater { worker: index });
    }

    /// Stops a machine that has not registered.
    pub(super) fn give_up(&mut self, index: usize) {
        if self.fleet.workers[index].state == WorkerState::Requested {
            self.stop(index);
            self.observe(&Observation::NeverRegistered { worker: index });
        }
    }

    /// Takes a machine back. Its tasks return to the head of the queue.
    pub(super) fn interrupt(&mut self, index: usize) {
        let worker = &mut self.fleet.workers[index];
        match worker.state {
            WorkerState::Requested | WorkerState::Running => {}
            WorkerState::Stopping | WorkerState::Stopped => return,
        }
        let pool = &mut self.fleet.pools[worker.pool];
        let lost: Vec<usize> = worker.tasks.drain(..).collect();
        for task in &lost {
            pool.claims.remove(task);
        }
        let (pool, was_asked_to_stop) = (worker.pool, worker.asked_to_stop);
        for task in lost {
            self.wait_again(task);
            self.forget_announced(task);
        }
        self.n_interrupted += 1;
        self.charge(index, 0);
        self.remove(index);
        self.observe(&Observation::Interrupted {
            worker: index,
            was_asked_to_stop,
        });
        self.dispatch(pool);
        self.wake(pool);
    }

    pub(super) fn begin_storm(&mut self, offering: usize, number: usize) {
        let share = self.scenario.offerings[offering].storms[number].share;
        let purpose = format!("storm {number}");
        let live = self.fleet.pools.iter().flat_map(|pool| &pool.live);
        let of_offering = live.filter(|index| {
            let worker = &self.fleet.workers[**index];
            worker.offering == offering
                && matches!(worker.state, WorkerState::Requested | WorkerState::Running)
        });
        let mut taken = Vec::new();
        for index in of_offering {
            let mut draws = self.draws_of(*index, &purpose);
            if draws.fraction() < share {
                let delay_ms = to_ms(draws.fraction() * STORM_SECONDS);
                taken.push((self.at_ms + delay_ms, *index));
            }
        }
        for (at_ms, worker) in taken {
            self.events.add(at_ms, Event::Interruption { worker });
        }
    }
}
