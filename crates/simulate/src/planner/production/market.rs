//! The memory of the offerings, which all pools of the strategy `balanced` share.

use std::collections::{BTreeMap, VecDeque};

use domain::id::ProviderId;
use domain::market::{OfferingId, OfferingMemory, OfferingNews, SURVIVAL_MS, Trouble};
use domain::worker::WorkerState;

use crate::planner::{Observation, View};
use crate::scenario::Scenario;
use crate::units::to_hours;

/// The memory of each offering, in the order of the offerings.
pub(super) struct Market {
    offerings: Vec<(OfferingId, OfferingMemory)>,
    /// Machines that may be refused late, oldest first.
    young: VecDeque<usize>,
    /// Until when the hours of running machines are counted.
    counted_ms: i64,
}

/// The best of the offerings that can be used now, or of all if none can.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BestOffer {
    pub(super) boot_ms: f64,
    /// Dollars per machine and hour.
    pub(super) price: f64,
}

impl Market {
    pub(super) fn new(scenario: &Scenario, provider_id: &ProviderId) -> Self {
        let offerings = scenario.offerings.iter().map(|offering| {
            let id = OfferingId::new(provider_id, &offering.name);
            let memory = OfferingMemory::new(&id);
            (id, memory)
        });
        Self {
            offerings: offerings.collect(),
            young: VecDeque::new(),
            counted_ms: 0,
        }
    }

    /// `offering`: that of the worker or of the launch.
    pub(super) fn observe(&mut self, view: &View<'_>, offering: usize, observation: &Observation) {
        match observation {
            Observation::Answered { made, refusal, .. } => {
                if !made.is_empty() {
                    self.tell(view, offering, OfferingNews::Accepted);
                    self.young.extend(made.clone());
                }
                if let Some(cause) = refusal {
                    let trouble = Trouble::from(*cause);
                    self.tell(view, offering, OfferingNews::Failed { trouble });
                }
            }
            Observation::Registered { worker } => {
                let launched_ms = view.fleet.workers[*worker].launched_ms;
                let after_ms = view.at_ms - launched_ms;
                self.tell(view, offering, OfferingNews::Registered { after_ms });
            }
            Observation::FailedLater { .. } => {
                let trouble = Trouble::Vanished;
                self.tell(view, offering, OfferingNews::Failed { trouble });
            }
            Observation::NeverRegistered { .. } => {
                let trouble = Trouble::Registration;
                self.tell(view, offering, OfferingNews::Failed { trouble });
            }
            // As the server judges the end of a machine.
            Observation::Interrupted {
                worker,
                was_asked_to_stop,
            } => {
                if view.fleet.workers[*worker].registered_ms.is_none() {
                    let trouble = Trouble::Vanished;
                    self.tell(view, offering, OfferingNews::Failed { trouble });
                } else if !was_asked_to_stop {
                    self.tell(view, offering, OfferingNews::Interrupted);
                }
            }
            Observation::Arrived { .. }
            | Observation::Started { .. }
            | Observation::Finished { .. }
            | Observation::Ended { .. } => {}
        }
    }

    /// A plan has decided a launch.
    pub(super) fn ask(&mut self, view: &View<'_>, offering: usize) {
        self.tell(view, offering, OfferingNews::Asked);
    }

    fn tell(&mut self, view: &View<'_>, offering: usize, news: OfferingNews) {
        self.offerings[offering].1.observe(news, view.now());
    }

    /// Counts the hours of running machines, and the machines that were not refused late.
    pub(super) fn pass_time(&mut self, view: &View<'_>) {
        let passed_ms = view.at_ms - self.counted_ms;
        self.counted_ms = view.at_ms;
        for (offering, n_running) in self.n_running(view).into_iter().enumerate() {
            if n_running > 0 && passed_ms > 0 {
                let hours = n_running as f64 * to_hours(passed_ms);
                self.tell(view, offering, OfferingNews::Ran { hours });
            }
        }
        while let Some(index) = self.young.front().copied() {
            let worker = &view.fleet.workers[index];
            if view.at_ms - worker.launched_ms < SURVIVAL_MS {
                break;
            }
            self.young.pop_front();
            if worker.state != WorkerState::Stopped {
                self.tell(view, worker.offering, OfferingNews::Survived);
            }
        }
    }

    fn n_running(&self, view: &View<'_>) -> Vec<u64> {
        let mut running = vec![0; self.offerings.len()];
        for (index, pool) in view.fleet.pools.iter().enumerate() {
            for (config, machines) in pool.machines.iter().enumerate() {
                running[view.offering(index, config)] += machines.running + machines.draining;
            }
        }
        running
    }

    /// The offerings whose quota is used up, by their indexes.
    pub(super) fn used_up_quotas(&self) -> Vec<(usize, &OfferingId)> {
        let offerings = self.offerings.iter().enumerate();
        let full = offerings.filter(|(_, (_, memory))| memory.lacks_quota());
        full.map(|(index, (id, _))| (index, id)).collect()
    }

    pub(super) fn best_offer(&self, view: &View<'_>) -> BestOffer {
        let is_usable = |memory: &OfferingMemory| memory.is_usable(view.now());
        let any_usable = self.offerings.iter().any(|(_, memory)| is_usable(memory));
        let mut best = BestOffer {
            boot_ms: f64::INFINITY,
            price: f64::INFINITY,
        };
        for (offering, (_, memory)) in self.offerings.iter().enumerate() {
            if is_usable(memory) || !any_usable {
                best.boot_ms = best.boot_ms.min(memory.boot_ms(None));
                best.price = best.price.min(view.price(offering));
            }
        }
        best
    }

    /// How long a machine may start before it is given up.
    pub(super) fn give_up_after_ms(&self, offering: usize, limit_ms: i64) -> f64 {
        self.offerings[offering]
            .1
            .give_up_after_ms(limit_ms as f64, None)
    }

    pub(super) fn memories(&self) -> BTreeMap<OfferingId, OfferingMemory> {
        self.offerings.iter().cloned().collect()
    }
}
