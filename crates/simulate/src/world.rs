//! Runs the events of a scenario.
//!
//! It asks a planner at each tick and scan.

mod cloud;
mod events;
mod queue;

use std::collections::BTreeMap;

use domain::worker::WorkerState;

use crate::fleet::{Bill, Fleet};
use crate::history::{History, LaunchAttempts, TaskRecord};
use crate::offering::Period;
use crate::planner::{Decision, Observation, Planner, View};
use crate::scenario::Scenario;
use cloud::Cloud;
use events::{Event, EventQueue};

/// A tick plans at most this often: again after each plan of which launches were refused.
const MAX_ROUNDS: usize = 20;
/// Whether a simulation goes on is asked after this many events.
const EVENTS_BETWEEN_QUESTIONS: u32 = 64;

/// A simulation under way.
struct World<'a> {
    scenario: &'a Scenario,
    planner: &'a mut dyn Planner,
    seed: u64,
    at_ms: i64,
    events: EventQueue,
    /// The index of the next task that will be created.
    next_arrival: usize,
    n_unresolved: usize,
    /// The followers of each task that has any.
    followers: BTreeMap<usize, Vec<usize>>,
    fleet: Fleet,
    tasks: Vec<TaskRecord>,
    /// The hidden state of each offering.
    clouds: Vec<Cloud>,
    attempts: LaunchAttempts,
    n_interrupted: u64,
    wakes: Vec<Wake>,
}

/// Whether a pool is about to be planned, and when it may be planned next.
#[derive(Clone, Copy, Debug, Default)]
struct Wake {
    is_due: bool,
    not_before_ms: i64,
}

/// Simulates a scenario. The same scenario, planner and seed give the same history.
pub fn simulate(scenario: &Scenario, planner: &mut dyn Planner, seed: u64) -> History {
    let mut world = World::new(scenario, planner, seed);
    world.run_while(&|| true);
    world.close()
}

/// The same, as long as `goes_on` says so. `None`: it was stopped.
pub(crate) fn simulate_while(
    scenario: &Scenario,
    planner: &mut dyn Planner,
    seed: u64,
    goes_on: &dyn Fn() -> bool,
) -> Option<History> {
    let mut world = World::new(scenario, planner, seed);
    world.run_while(goes_on).then(|| world.close())
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, planner: &'a mut dyn Planner, seed: u64) -> Self {
        let mut events = EventQueue::default();
        events.add(0, Event::Tick);
        events.add(scenario.timing.scan_ms / 2, Event::Scan);
        for (offering, given) in scenario.offerings.iter().enumerate() {
            for (number, storm) in given.storms.iter().enumerate() {
                events.add(storm.at_ms, Event::Storm { offering, number });
            }
        }
        let tasks = scenario.arrivals.iter().map(TaskRecord::new);
        let following = scenario.followers.iter().map(TaskRecord::following);
        let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, follower) in scenario.followers.iter().enumerate() {
            let task = scenario.arrivals.len() + number;
            followers.entry(follower.after).or_default().push(task);
        }
        Self {
            seed,
            at_ms: 0,
            events,
            next_arrival: 0,
            n_unresolved: scenario.arrivals.len() + scenario.followers.len(),
            followers,
            fleet: Fleet::new(scenario),
            tasks: tasks.chain(following).collect(),
            clouds: vec![Cloud::default(); scenario.offerings.len()],
            attempts: LaunchAttempts::new(scenario.offerings.len()),
            n_interrupted: 0,
            wakes: vec![Wake::default(); scenario.pools.len()],
            planner,
            scenario,
        }
    }

    /// The end, if tasks are left.
    fn end_ms(&self) -> i64 {
        let last_ms = self.scenario.arrivals.last().map_or(0, |last| last.at_ms);
        last_ms.saturating_add(self.scenario.timing.drain_ms)
    }

    /// Returns whether it came to its end.
    fn run_while(&mut self, goes_on: &dyn Fn() -> bool) -> bool {
        let end_ms = self.end_ms();
        let mut n_events = 0_u32;
        while self.n_unresolved > 0 || self.has_machines() {
            n_events = n_events.wrapping_add(1);
            if n_events.is_multiple_of(EVENTS_BETWEEN_QUESTIONS) && !goes_on() {
                return false;
            }
            let Some(event) = self.next_event(end_ms) else {
                break;
            };
            self.run(event);
        }
        true
    }

    fn has_machines(&self) -> bool {
        self.fleet.pools.iter().any(|pool| !pool.live.is_empty())
    }

    /// The next event up to a moment. Of events at the same time, arrivals are first.
    fn next_event(&mut self, end_ms: i64) -> Option<Event> {
        let arrival = self.scenario.arrivals.get(self.next_arrival);
        let arrival_ms = arrival.map(|arrival| arrival.at_ms);
        let (at_ms, event) = match (arrival_ms, self.events.next_ms()) {
            (Some(at_ms), next_ms) if next_ms.is_none_or(|next_ms| at_ms <= next_ms) => {
                let task = self.next_arrival;
                self.next_arrival += 1;
                (at_ms, Event::Arrival { task })
            }
            _ => self.events.take()?,
        };
        if at_ms > end_ms {
            return None;
        }
        self.at_ms = at_ms;
        Some(event)
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Arrival { task } => self.create_task(task),
            Event::Finish { worker, task, run } => self.finish_task(worker, task, run),
            Event::IdleTime { worker, count } => self.end_idle_time(worker, count),
            Event::Registration { worker } => self.register(worker),
            Event::LateFailure { worker } => self.fail_late(worker),
            Event::RegistrationLimit { worker } => self.give_up(worker),
            Event::Interruption { worker } => self.interrupt(worker),
            Event::Storm { offering, number } => self.begin_storm(offering, number),
            Event::End { worker } => self.end(worker),
            Event::Tick => self.tick(),
            Event::Scan => self.scan(),
            Event::Wake { pool } => self.plan_woken(pool),
        }
    }

    /// Plans a pool as soon as it may be planned.
    fn wake(&mut self, pool: usize) {
        let wake = &mut self.wakes[pool];
        if self.scenario.timing.reactions.is_none() || wake.is_due {
            return;
        }
        wake.is_due = true;
        let at_ms = wake.not_before_ms.max(self.at_ms);
        self.events.add(at_ms, Event::Wake { pool });
    }

    fn plan_woken(&mut self, pool: usize) {
        self.wakes[pool].is_due = false;
        if self.at_ms < self.wakes[pool].not_before_ms {
            return self.wake(pool);
        }
        let n_before = self.fleet.workers.len();
        for _ in 0..MAX_ROUNDS {
            let mut decision = Decision::default();
            let view = View::new(self.at_ms, &self.fleet, self.scenario);
            self.planner.plan_pool(&view, pool, &mut decision);
            if !self.carry_out(&decision) {
                break;
            }
        }
        let pause_ms = self.scenario.timing.reactions.map_or(0, |it| {
            match self.fleet.workers.len() == n_before {
                true => it.plan_ms,
                false => it.launch_ms,
            }
        });
        self.wakes[pool].not_before_ms = self.at_ms + pause_ms;
    }

    fn tick(&mut self) {
        for round in 0..MAX_ROUNDS {
            let mut decision = Decision::default();
            let view = View::new(self.at_ms, &self.fleet, self.scenario);
            self.planner.plan(&view, round, &mut decision);
            if !self.carry_out(&decision) {
                break;
            }
        }
        let next_ms = self.at_ms + self.scenario.timing.tick_ms;
        self.events.add(next_ms, Event::Tick);
    }

    fn scan(&mut self) {
        let mut decision = Decision::default();
        let view = View::new(self.at_ms, &self.fleet, self.scenario);
        self.planner.scan(&view, &mut decision);
        self.carry_out(&decision);
        let next_ms = self.at_ms + self.scenario.timing.scan_ms;
        self.events.add(next_ms, Event::Scan);
    }

    /// Returns whether a launch was refused.
    fn carry_out(&mut self, decision: &Decision) -> bool {
        for advice in &decision.advice {
            self.advise(advice.worker, advice.stop);
        }
        let mut is_refused = false;
        for order in &decision.launches {
            is_refused |= self.launch(*order);
        }
        is_refused
    }

    fn advise(&mut self, index: usize, stop: bool) {
        let worker = &self.fleet.workers[index];
        match worker.state {
            WorkerState::Requested if stop => self.give_up(index),
            WorkerState::Running
                if stop && worker.tasks.is_empty() && !worker.stops_when_it_asks =>
            {
                self.stop(index);
            }
            WorkerState::Running if worker.asked_to_stop != stop => {
                let is_waiting = worker.stops_when_it_asks;
                self.fleet.change(index, WorkerState::Running, stop);
                if !stop && !is_waiting && self.fleet.has_room(index) {
                    self.serve(index);
                }
            }
            WorkerState::Requested
            | WorkerState::Running
            | WorkerState::Stopping
            | WorkerState::Stopped => {}
        }
    }

    fn observe(&mut self, observation: &Observation) {
        let view = View::new(self.at_ms, &self.fleet, self.scenario);
        self.planner.observe(&view, observation);
    }

    /// Begins to stop a machine.
    fn stop(&mut self, index: usize) {
        self.fleet.change(index, WorkerState::Stopping, false);
        self.charge(index, self.scenario.timing.paid_stop_ms);
        let end_ms = self.at_ms + self.scenario.timing.stop_ms;
        self.events.add(end_ms, Event::End { worker: index });
        self.wake(self.fleet.workers[index].pool);
    }

    fn end(&mut self, index: usize) {
        self.remove(index);
        self.observe(&Observation::Ended { worker: index });
        self.wake(self.fleet.workers[index].pool);
    }

    /// Removes a machine from the fleet and from the quota.
    fn remove(&mut self, index: usize) {
        self.fleet.change(index, WorkerState::Stopped, false);
        self.clouds[self.fleet.workers[index].offering].n_machines -= 1;
    }

    /// Writes the bill of a machine that is paid for a while longer.
    fn charge(&mut self, index: usize, further_ms: i64) {
        let worker = &mut self.fleet.workers[index];
        let until_ms = self.at_ms + further_ms;
        let least_ms = worker.launched_ms + self.scenario.timing.least_paid_ms;
        let paid = Period {
            from_ms: worker.launched_ms,
            to_ms: until_ms.max(least_ms),
        };
        let price = &self.scenario.offerings[worker.offering].price;
        worker.ended_ms = Some(self.at_ms);
        worker.bill = Some(Bill {
            until_ms,
            dollars: price.cost(paid),
        });
    }

    /// Ends the simulation. Machines that still exist are paid for until now.
    fn close(mut self) -> History {
        let end_ms = self.end_ms();
        for index in 0..self.fleet.workers.len() {
            if self.fleet.workers[index].ended_ms.is_none() {
                self.charge(index, 0);
            }
        }
        // Followers of tasks that did not end do not exist.
        self.tasks.retain(|task| task.created_ms < i64::MAX);
        History {
            end_ms,
            tasks: self.tasks,
            workers: self.fleet.workers,
            attempts: self.attempts,
            n_interrupted: self.n_interrupted,
        }
    }
}
