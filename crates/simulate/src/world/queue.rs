//! The task queues of the simulated world: first in, first out, for each pool.

use super::World;
use super::events::Event;
use crate::fleet::AnnouncedTasks;
use crate::history::TaskRecord;
use crate::planner::{Observation, View};

/// An idle worker that may stay asks again after this time at the earliest.
const LEAST_IDLE_MS: i64 = 1_000;

impl World<'_> {
    pub(super) fn create_task(&mut self, task: usize) {
        let pool = self.tasks[task].pool;
        let rank = self.tasks[task].rank;
        let pending = &mut self.fleet.pools[pool].pending;
        let n_before = pending.partition_point(|other| self.tasks[*other].rank <= rank);
        pending.insert(n_before, task);
        self.observe(&Observation::Arrived { pool });
        self.dispatch(pool);
        self.wake(pool);
    }

    /// A task whose machine was taken back waits again, before others of its rank.
    pub(super) fn wait_again(&mut self, task: usize) {
        let TaskRecord { pool, rank, .. } = self.tasks[task];
        let pending = &mut self.fleet.pools[pool].pending;
        let n_before = pending.partition_point(|other| self.tasks[*other].rank < rank);
        pending.insert(n_before, task);
    }

    /// Gives waiting tasks to idle workers.
    pub(super) fn dispatch(&mut self, pool: usize) {
        while !self.fleet.pools[pool].pending.is_empty()
            && let Some(worker) = self.fleet.take_idle(pool)
            && let Some(task) = self.fleet.pools[pool].pending.pop_front()
        {
            self.start_task(worker, task);
            if self.fleet.has_room(worker) {
                self.fleet.await_tasks(worker);
            }
        }
    }

    fn start_task(&mut self, worker: usize, task: usize) {
        let record = &mut self.tasks[task];
        record.n_runs += 1;
        record.first_start_ms.get_or_insert(self.at_ms);
        let finish = Event::Finish {
            worker,
            task,
            run: record.n_runs,
        };
        self.events.add(self.at_ms + record.duration_ms, finish);
        let pool = record.pool;
        self.announce(task, pool);
        self.fleet.pools[pool].claims.insert(task, self.at_ms);
        let claimant = &mut self.fleet.workers[worker];
        claimant.tasks.push(task);
        claimant.last_start_ms = Some(self.at_ms);
        claimant.idle_count += 1;
        self.observe(&Observation::Started { worker, task });
    }

    pub(super) fn finish_task(&mut self, worker: usize, task: usize, run: u32) {
        let claimant = &mut self.fleet.workers[worker];
        let Some(place) = claimant.tasks.iter().position(|own| *own == task) else {
            return;
        };
        let record = &mut self.tasks[task];
        if record.n_runs != run {
            return;
        }
        let duration_ms = record.duration_ms;
        record.end_ms = Some(self.at_ms);
        claimant.tasks.swap_remove(place);
        claimant.useful_ms += duration_ms;
        self.fleet.pools[claimant.pool].claims.remove(&task);
        self.n_unresolved -= 1;
        self.observe(&Observation::Finished {
            worker,
            duration_ms,
        });
        self.create_followers(task);
        self.serve(worker);
    }

    /// The followers of a task that starts are announced to their pools.
    fn announce(&mut self, task: usize, run_by: usize) {
        for follower in self.followers.get(&task).into_iter().flatten() {
            let pool = &mut self.fleet.pools[self.tasks[*follower].pool];
            let announced = pool.announced.entry(task).or_insert(AnnouncedTasks {
                since_ms: self.at_ms,
                run_by,
                count: 0,
            });
            announced.count += 1;
        }
    }

    /// The run of a task has ended or was lost.
    pub(super) fn forget_announced(&mut self, task: usize) {
        for follower in self.followers.get(&task).into_iter().flatten() {
            let pool = self.tasks[*follower].pool;
            self.fleet.pools[pool].announced.remove(&task);
        }
    }

    fn create_followers(&mut self, task: usize) {
        self.forget_announced(task);
        for follower in self.followers.remove(&task).unwrap_or_default() {
            self.tasks[follower].created_ms = self.at_ms;
            self.create_task(follower);
        }
    }

    /// Gives a worker the next tasks of its pool, or lets it wait or stop.
    pub(super) fn serve(&mut self, index: usize) {
        let worker = &self.fleet.workers[index];
        let pool = worker.pool;
        if worker.asked_to_stop && worker.tasks.is_empty() {
            return self.stop(index);
        }
        while self.fleet.has_room(index)
            && let Some(task) = self.fleet.pools[pool].pending.pop_front()
        {
            self.start_task(index, task);
        }
        if !self.fleet.has_room(index) {
            return;
        }
        self.fleet.await_tasks(index);
        let worker = &mut self.fleet.workers[index];
        if worker.tasks.is_empty() {
            worker.idle_since_ms = self.at_ms;
            let count = worker.idle_count;
            self.await_idle_time(index, count);
        }
    }

    /// A worker has been idle for the idle time: it asks whether it should stop.
    pub(super) fn end_idle_time(&mut self, index: usize, count: u32) {
        let worker = &self.fleet.workers[index];
        if !worker.is_idle() || worker.idle_count != count {
            return;
        }
        let is_asked = worker.asked_to_stop;
        let view = View::new(self.at_ms, &self.fleet, self.scenario);
        if is_asked || self.planner.should_stop(&view, index) {
            self.stop(index);
        } else {
            self.await_idle_time(index, count);
        }
    }

    fn await_idle_time(&mut self, worker: usize, count: u32) {
        let timing = &self.scenario.timing;
        let interval_ms = timing.reactions.map_or(timing.idle_ms, |it| it.ask_ms);
        let asks_ms = self.at_ms + interval_ms.max(LEAST_IDLE_MS);
        self.events.add(asks_ms, Event::IdleTime { worker, count });
    }
}
