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

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch config: initial weight, own maximum, capacity, errors.
    type Given = (f64, f64, f64, f64);

    /// The weights in the order of the launch configs, rounded to four decimals; 0 if it is not in
    /// the urn.
    fn weights(given: &[Given], n_errors: f64) -> Vec<f64> {
        let configs = given.iter().enumerate().map(|(config, it)| ConfigWeight {
            config,
            weight: it.0,
            max_capacity: it.1,
            capacity: it.2,
            n_errors: it.3,
            remaining: 0.0,
        });
        let mut weights = vec![0.0; given.len()];
        for config in weigh(configs.collect(), n_errors) {
            weights[config.config] = (config.weight * 10_000.0).round() / 10_000.0;
        }
        weights
    }

    #[test]
    fn launch_configs_weigh_what_worker_manager_computes() {
        let all = |capacity, errors| (1.0, 100.0, capacity, errors);
        assert_eq!(weights(&[all(0.0, 0.0); 2], 0.0), [1.0, 1.0]);
        let zero = (0.0, 100.0, 0.0, 0.0);
        assert_eq!(weights(&[all(0.0, 0.0), zero], 0.0), [1.0, 0.0]);
        let small = |capacity| (1.0, 15.0, capacity, 0.0);
        assert_eq!(weights(&[small(10.0), small(5.0)], 0.0), [0.3333, 0.6667]);
        assert_eq!(weights(&[all(10.0, 0.0), all(5.0, 0.0)], 0.0), [0.9, 0.95]);
        // One error is a black-out for an hour, if no other launch config has errors.
        let healthy = all(0.0, 0.0);
        assert_eq!(
            weights(&[all(0.0, 1.0), healthy, healthy], 1.0),
            [0.0, 1.0, 1.0]
        );
        let two = [all(0.0, 6.0), all(0.0, 4.0), healthy];
        assert_eq!(weights(&two, 10.0), [0.4, 0.6, 1.0]);
        let half = [all(50.0, 5.0), all(50.0, 5.0), all(50.0, 0.0)];
        assert_eq!(weights(&half, 10.0), [0.0, 0.0, 0.5]);
        // The first of those without weight gets all.
        let bad = [all(60.0, 5.0), all(60.0, 5.0)];
        assert_eq!(weights(&bad, 10.0), [0.01, 0.0]);
        assert_eq!(weights(&[all(60.0, 50.0)], 100.0), [0.01]);
        let full = |capacity| (1.0, 10.0, capacity, 0.0);
        let configs = [full(10.0), full(5.0), full(10.0)];
        assert_eq!(weights(&configs, 0.0), [0.0, 0.5, 0.0]);
        // Errors that no launch config had dilute the others.
        assert_eq!(weights(&[all(0.0, 1.0), healthy], 10.0), [0.9, 1.0]);
        let low = |capacity| (0.3, 100.0, capacity, 0.0);
        assert_eq!(weights(&[low(35.0), low(0.0)], 0.0), [0.0, 0.3]);
        assert_eq!(
            weights(&[(5.0, 100.0, 0.0, 10.0), healthy], 10.0),
            [4.0, 1.0]
        );
    }

    #[test]
    fn a_point_selects_the_launch_config_with_the_lowest_weights_first() {
        let configs = [1.0, 0.5, 0.1].map(|weight| (weight, 100.0, 0.0, 0.0));
        let configs = configs.iter().enumerate().map(|(config, it)| ConfigWeight {
            config,
            weight: it.0,
            max_capacity: it.1,
            capacity: 0.0,
            n_errors: 0.0,
            remaining: 0.0,
        });
        let urn = weigh(configs.collect(), 0.0);
        let drawn = [0.0, 0.0624, 0.0625, 0.374, 0.376, 1.0];
        let drawn = drawn.map(|point| urn[place(&urn, point * 1.6)].config);
        assert_eq!(drawn, [2, 2, 1, 1, 0, 0]);
    }
}
