//! The workers of a simulated pool about which a plan may decide.

use domain::facts::RunningWorker;
use domain::id::WorkerKey;
use domain::worker::WorkerState;

use super::PlannedPool;
use crate::fleet::SimulatedWorker;
use crate::planner::View;

impl PlannedPool {
    /// The workers about which a plan may decide: those that are idle for long enough, and those
    /// that were asked to stop; and all of them if other pools need the quota.
    pub(super) fn candidates(&self, view: &View<'_>, index: usize) -> Vec<RunningWorker> {
        let worker = |index: usize| &view.fleet.workers[index];
        let is_running = |index: &usize| worker(*index).state == WorkerState::Running;
        let row = |index: usize| self.running_worker(view, index, worker(index));
        let memory = self.facts.memory.as_ref();
        if memory.is_some_and(|memory| !memory.rivals.is_empty()) {
            let live = view.fleet.pools[index].live.iter().copied();
            return live.filter(is_running).filter_map(row).collect();
        }
        let idle = view.fleet.idle_workers(index);
        let is_held = |index: &usize| {
            let hold_ms = self.idle_hold_ms(worker(*index).config);
            view.at_ms - worker(*index).idle_since_ms >= hold_ms
        };
        // The holds of launch configs may differ, so a held worker may come after another.
        let least_ms = self.least_hold_ms;
        let idle = idle
            .take_while(|index| view.at_ms - worker(*index).idle_since_ms >= least_ms)
            .filter(is_held)
            .filter(|index| !worker(*index).asked_to_stop);
        let asked = self.asked.keys().copied().filter(is_running);
        idle.chain(asked).filter_map(row).collect()
    }

    fn running_worker(
        &self,
        view: &View<'_>,
        index: usize,
        worker: &SimulatedWorker,
    ) -> Option<RunningWorker> {
        let since_start = |at_ms: i64| view.now().plus_millis(at_ms - view.at_ms);
        let ended = (worker.last_start_ms.is_some()).then(|| since_start(worker.idle_since_ms));
        let pool_id = self.facts.pool.id.clone();
        let group = self.groups[worker.config].clone();
        let id = index.to_string().parse().ok()?;
        Some(RunningWorker {
            key: WorkerKey { pool_id, group, id },
            provider_id: self.provider_id.clone(),
            launch_config_id: Some(self.config_ids[worker.config].clone()),
            offering: None,
            capacity: worker.capacity,
            created: since_start(worker.launched_ms),
            registered: worker.registered_ms.map(since_start),
            idle_hold_ms: Some(self.idle_hold_ms(worker.config)),
            price: self.prices.get(&index).copied(),
            advice: self.asked.get(&index).cloned(),
            last_asked: Some(view.now()),
            last_task_ended: ended,
            quarantined_since: None,
            claimed: worker.tasks.len() as u64,
        })
    }
}
