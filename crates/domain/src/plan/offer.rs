//! Offers: the limits and the usable machines of a launch config.

use serde_json::Value;

use super::{Award, Bid, CanaryOffer, Health, Offer, Tries};
use crate::id::{OfferingId, ProviderId};
use crate::launch_config::LaunchConfig;
use crate::time::Timestamp;

impl Offer {
    /// Reads the numbers in the `workerManager` part of a launch config. Invalid numbers count as
    /// not set, since the config was checked when it was written.
    pub fn of(
        config: &LaunchConfig,
        provider_id: &ProviderId,
        live: u64,
        health: Health,
        bid: Result<Bid, String>,
    ) -> Self {
        let steering = config.configuration.get("workerManager");
        let stated = |name: &str| steering.and_then(|steering| steering.get(name));
        let of_bid = bid.as_ref().ok().and_then(|bid| bid.capacity_each);
        let capacity_each = stated("capacityPerInstance")
            .or_else(|| config.configuration.get("capacityPerInstance"))
            .and_then(Value::as_u64)
            .and_then(|units| u32::try_from(units).ok());
        Self {
            launch_config_id: config.id.clone(),
            provider_id: provider_id.clone(),
            bid_number: 0,
            capacity_each: of_bid.or(capacity_each).unwrap_or(1).max(1),
            initial_weight: stated("initialWeight")
                .and_then(Value::as_f64)
                .unwrap_or(1.0),
            max_capacity: stated("maxCapacity").and_then(Value::as_u64),
            live,
            held: 0,
            starting: 0,
            late: 0,
            health,
            tries: Tries::default(),
            memory: None,
            canary: CanaryOffer::of(config),
            bid,
        }
    }

    /// The offering of its machines, if the provider has made a bid.
    pub fn offering(&self) -> Option<OfferingId> {
        let bid = self.bid.as_ref().ok()?;
        Some(OfferingId::new(&self.provider_id, &bid.place))
    }

    /// Dollars for an hour of a machine of utility 1 that registers for sure, if the price is
    /// known.
    pub(super) fn price_of_utility(&self) -> Option<f64> {
        let bid = self.bid.as_ref().ok()?;
        let price = bid.price? / bid.utility / bid.reliability.unwrap_or(1.0);
        // A price of nothing is still more than no machine.
        price.is_finite().then(|| price.max(f64::MIN_POSITIVE))
    }

    /// Whether the award starts machines of this offer.
    pub(super) fn is_awarded(&self, award: &Award) -> bool {
        self.launch_config_id == award.launch_config_id && self.bid_number == award.bid_number
    }

    /// The same offer, with the times of its launches.
    pub fn tried(self, tries: Tries) -> Self {
        Self { tries, ..self }
    }

    /// Its location and type, for people.
    pub(super) fn name(&self) -> String {
        match &self.bid {
            Ok(bid) if !bid.place.is_empty() => {
                format!("{} ({})", bid.place, self.launch_config_id)
            }
            Ok(_) | Err(_) => self.launch_config_id.to_string(),
        }
    }

    /// Units that its launch config may add.
    pub(super) fn room(&self, pool_max: u64) -> u64 {
        let max = self.max_capacity.unwrap_or(pool_max);
        max.saturating_sub(self.live)
    }

    /// How many machines it can give within its own limits; or why none.
    pub(super) fn machines(&self, pool_max: u64, now: Timestamp) -> Result<u64, String> {
        if !(self.initial_weight > 0.0 && self.initial_weight.is_finite()) {
            return Err("its initialWeight is 0".to_owned());
        }
        let available = match &self.bid {
            Ok(bid) => {
                bid.check(now)?;
                bid.available.unwrap_or(u64::MAX)
            }
            Err(why) => return Err(why.clone()),
        };
        if available == 0 {
            return Err("no machine is available now".to_owned());
        }
        let left = self.room(pool_max) / u64::from(self.capacity_each.max(1));
        if left == 0 {
            let (each, live) = (self.capacity_each, self.live);
            let max = self.max_capacity.unwrap_or(pool_max);
            return Err(format!(
                "full: {live} of {max} units exist, a machine has {each}"
            ));
        }
        Ok(left.min(available))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Version;

    fn now() -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn of(configuration: Value) -> Offer {
        let config = LaunchConfig {
            pool_id: "a/b".parse().unwrap(),
            id: "lc".parse().unwrap(),
            archived: false,
            position: 0,
            configuration: configuration.as_object().unwrap().clone(),
            created: Timestamp::from_millis(0),
            last_modified: Timestamp::from_millis(0),
            version: Version::FIRST,
        };
        let provider = "cloud".parse().unwrap();
        let bid = Ok(Bid::plain(String::new()));
        Offer::of(&config, &provider, 3, Health::default(), bid)
    }

    #[test]
    fn a_launch_config_is_steered_by_its_own_part() {
        let offer = of(json!({"capacityPerInstance": 9, "workerManager":
            {"capacityPerInstance": 2, "initialWeight": 0.5, "maxCapacity": 7}}));
        let numbers = (
            offer.capacity_each,
            offer.initial_weight,
            offer.max_capacity,
        );
        assert_eq!(numbers, (2, 0.5, Some(7)));
        assert_eq!((offer.live, offer.machines(100, now())), (3, Ok(2)));
    }

    #[test]
    fn the_old_place_of_the_capacity_is_still_read() {
        assert_eq!(of(json!({"capacityPerInstance": 9})).capacity_each, 9);
        let zero = json!({"capacityPerInstance": 9, "workerManager": {"capacityPerInstance": 0}});
        assert_eq!(of(zero).capacity_each, 1);
        let offer = of(json!({"workerManager": "none"}));
        let numbers = (
            offer.capacity_each,
            offer.initial_weight,
            offer.max_capacity,
        );
        assert_eq!(numbers, (1, 1.0, None));
    }

    #[test]
    fn each_limit_of_its_own_keeps_an_offer_from_being_used() {
        let with = |change: fn(&mut Offer)| {
            let mut offer = of(json!({}));
            change(&mut offer);
            offer
                .machines(10, now())
                .map_err(|why| why.chars().take(22).collect::<String>())
        };
        assert_eq!(with(|_| ()), Ok(7));
        assert_eq!(with(|o| o.max_capacity = Some(4)), Ok(1));
        assert_eq!(with(|o| o.capacity_each = 4), Ok(1));
        let refused = |text: &str| Err(text.to_owned());
        assert_eq!(
            with(|o| o.max_capacity = Some(0)),
            refused("full: 3 of 0 units exi")
        );
        assert_eq!(
            with(|o| o.capacity_each = 8),
            refused("full: 3 of 10 units ex")
        );
        assert_eq!(
            with(|o| o.initial_weight = 0.0),
            refused("its initialWeight is 0")
        );
        assert_eq!(
            with(|o| o.initial_weight = f64::NAN),
            refused("its initialWeight is 0")
        );
        assert_eq!(
            with(|o| o.bid = Err("throttled".to_owned())),
            refused("throttled")
        );
        let sold_out: fn(&mut Offer) = |o| {
            o.bid.as_mut().unwrap().available = Some(0);
        };
        assert_eq!(with(sold_out), refused("no machine is availabl"));
        let expired: fn(&mut Offer) = |o| o.bid.as_mut().unwrap().expires = Some(now());
        assert_eq!(with(expired), refused("its bid expired at 197"));
    }
}
