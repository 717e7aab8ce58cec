//! The weights of launch configs in worker-manager's choice.

/// A launch config in the urn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigWeight {
    pub(super) config: usize,
    /// At first its initial weight, then its weight.
    pub(super) weight: f64,
    pub(super) max_capacity: f64,
    /// Its units, with those that stop.
    pub(super) capacity: f64,
    pub(super) n_errors: f64,
    /// How many further units it gives.
    pub(super) remaining: f64,
}

/// Weighs launch configs, and removes those without weight. Those with the lowest weight are first.
pub(super) fn weigh(mut configs: Vec<ConfigWeight>, n_errors: f64) -> Vec<ConfigWeight> {
    for config in &mut configs {
        config.remaining = config.max_capacity;
        if config.capacity > 0.0 && config.max_capacity > 0.0 {
            config.weight -= config.capacity / config.max_capacity;
            config.remaining = (config.max_capacity - config.capacity).max(0.0);
        }
        if config.n_errors > 0.0 {
            config.weight -= config.n_errors / n_errors;
        }
    }
    for index in 0..configs.len() {
        let config = &configs[index];
        if config.remaining > 0.0 && config.weight <= 0.0 {
            let mut others = configs.iter().enumerate();
            let is_only = !others.any(|(other, config)| {
                other != index && config.remaining > 0.0 && config.weight > 0.0
            });
            configs[index].weight = if is_only { 0.01 } else { 0.0 };
        }
    }
    configs.retain(|config| config.weight > 0.0);
    configs.sort_by(|a, b| a.weight.total_cmp(&b.weight));
    configs
}

/// The place in the urn of a point between 0 and the sum of all weights.
pub(super) fn place(urn: &[ConfigWeight], point: f64) -> usize {
    let mut sum = 0.0;
    let place = urn.iter().position(|config| {
        sum += config.weight;
        point < sum
    });
    place.unwrap_or(urn.len().saturating_sub(1))
}
