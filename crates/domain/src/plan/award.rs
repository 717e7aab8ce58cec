//! The launches of an award.

use super::Award;

/// One launch asks for at most this many machines; a larger award becomes several launches.
pub const MAX_LAUNCHED: u32 = 50;

impl Award {
    /// The number of machines of each of its launches.
    pub fn launches(&self) -> impl Iterator<Item = u32> + use<> {
        let machines = self.machines;
        let starts = (0..machines).step_by(MAX_LAUNCHED as usize);
        starts.map(move |start| MAX_LAUNCHED.min(machines - start))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn an_award_becomes_launches_of_bounded_size() {
        let most = usize::try_from(MAX_LAUNCHED).unwrap();
        for size in sizes_around("domain::plan::award::MAX_LAUNCHED", most) {
            let award = Award {
                launch_config_id: "lc".parse().unwrap(),
                bid_number: 0,
                provider_id: None,
                machines: u32::try_from(size).unwrap(),
                capacity_each: 1,
                max_price: None,
                price: None,
                data: Map::new(),
            };
            let launches: Vec<u32> = award.launches().collect();
            assert_eq!(launches.len(), size.div_ceil(most));
            let sum = launches
                .iter()
                .map(|launch| *launch as usize)
                .sum::<usize>();
            assert_eq!(sum, size);
            let is_bounded = |launch: &u32| (1..=MAX_LAUNCHED).contains(launch);
            assert!(launches.iter().all(is_bounded));
        }
    }
}
