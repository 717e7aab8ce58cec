//! The published events: for each worker one event per change, in order, none lost and none
//! invented (I18).

use domain::worker::WorkerState;

use crate::checks::key_in;
use crate::picture::{Picture, events_after};
use crate::world::World;

/// The possible order of events.
const ORDER: [&str; 4] = [
    "worker-requested",
    "worker-running",
    "worker-removed",
    "worker-stopped",
];

impl World {
    /// Reads the events that were published since the last time.
    pub(crate) async fn check_events(&self, after: &Picture) {
        let place = self.state().place;
        for event in events_after(&self.observer, place).await {
            let mut state = self.state();
            if event.position <= state.place {
                drop(state);
                self.problem(format!("I18: place {} was given twice", event.position));
                continue;
            }
            state.place = event.position;
            let name = event
                .topic
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let Some(stage) = ORDER.iter().position(|known| *known == name) else {
                continue;
            };
            let Some(key) = key_in(&event.payload) else {
                drop(state);
                self.problem(format!("I18: an event of no worker: {}", event.payload));
                continue;
            };
            let told = state.told.entry(key.clone()).or_default();
            let is_next = match told.last() {
                None => stage == 0,
                Some(last) => *last < stage,
            };
            told.push(stage);
            drop(state);
            if !is_next {
                self.problem(format!(
                    "I18: {name} of {key} comes too late, twice or too early"
                ));
            }
        }
        self.state().rows.extend(after.workers.clone());
        if after.n_waiting_events == 0 {
            self.compare_told();
        }
    }

    /// When all events are published, they match the changes.
    fn compare_told(&self) {
        let state = self.state();
        let mut wrong = Vec::new();
        for (key, worker) in &state.rows {
            let told = state.told.get(key).map_or(&[][..], Vec::as_slice);
            let has = |name: &str| told.iter().any(|stage| ORDER[*stage] == name);
            let right = has("worker-requested")
                && has("worker-running") == worker.terms.registered_at.is_some()
                && has("worker-stopped") == (worker.state == WorkerState::Stopped)
                && (worker.state != WorkerState::Stopping || has("worker-removed"))
                && (worker.state > WorkerState::Running || !has("worker-removed"));
            if !right {
                wrong.push(format!(
                    "I18: {key} is {}, and told was {told:?}",
                    worker.state
                ));
            }
        }
        let invented = state
            .told
            .keys()
            .filter(|key| !state.rows.contains_key(key));
        wrong.extend(invented.map(|key| format!("I18: {key} was told of and never was")));
        drop(state);
        for problem in wrong {
            self.problem(problem);
        }
    }
}
