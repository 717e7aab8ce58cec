//! Measures the phases of machines, for a limited number of launch configs.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use domain::id::LaunchConfigId;
use domain::phases::Phase;
use domain::worker::Worker;

use crate::measures::{PHASE_SECONDS, seconds};

/// Launch configs in regions that have metrics of their own in this process. The others share
/// one with the label `others`, so that edits of launch configs do not fill the memory.
pub const MAX_SERIES: usize = 200;
const OTHERS: &str = "others";

/// A machine has made a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhaseSample {
    place: Place,
    phase: Phase,
    took_ms: i64,
}

/// Pool, launch config, provider and region.
type Place = [String; 4];

/// The places with metrics of their own.
#[derive(Debug, Default)]
pub struct PhaseMeasures(Mutex<BTreeSet<Place>>);

impl PhaseSample {
    pub(crate) fn new(worker: &Worker, id: &LaunchConfigId, phase: Phase, took_ms: i64) -> Self {
        let (key, provider) = (&worker.key, &worker.provider_id);
        Self {
            place: [
                key.pool_id.to_string(),
                id.to_string(),
                provider.to_string(),
                key.group.to_string(),
            ],
            phase,
            took_ms,
        }
    }
}

impl PhaseMeasures {
    pub(crate) fn record(&self, samples: Vec<PhaseSample>) {
        for sample in samples {
            let [pool, config, provider, region] = self.labels_of(sample.place);
            let labels = [
                ("workerPoolId", pool),
                ("launchConfigId", config),
                ("providerId", provider),
                ("region", region),
                ("phase", sample.phase.to_string()),
            ];
            metrics::histogram!(PHASE_SECONDS, &labels).record(seconds(sample.took_ms));
        }
    }

    /// The place itself, as long as there is room for its labels.
    fn labels_of(&self, place: Place) -> Place {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.contains(&place) {
            return place;
        }
        if places.len() >= MAX_SERIES {
            return [(); 4].map(|()| OTHERS.to_owned());
        }
        places.insert(place.clone());
        place
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn only_so_many_launch_configs_have_labels_of_their_own() {
        for n_places in sizes_around("engine::phase_measures::MAX_SERIES", MAX_SERIES) {
            let measures = PhaseMeasures::default();
            let place = |number: usize| {
                let config = format!("lc-{number}");
                ["a/b".to_owned(), config, "aws".to_owned(), "r".to_owned()]
            };
            for number in 0..n_places {
                measures.labels_of(place(number));
            }
            let own = |number: &usize| measures.labels_of(place(*number)) == place(*number);
            assert_eq!((0..n_places).filter(own).count(), n_places.min(MAX_SERIES));
            let others = measures.labels_of(place(n_places.max(MAX_SERIES)));
            assert_eq!(others[1] == OTHERS, n_places >= MAX_SERIES);
        }
    }
}
