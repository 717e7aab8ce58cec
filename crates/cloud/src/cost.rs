//! The price of a provider without a market: the setting `cost_per_hour`.

use domain::plan::check_price;
use serde::de::{Deserialize, Deserializer, Error};

/// Dollars per hour and machine; free unless the operator sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostPerHour(f64);

impl CostPerHour {
    pub(crate) fn price(self) -> Option<f64> {
        Some(self.0)
    }
}

impl<'de> Deserialize<'de> for CostPerHour {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let cost = f64::deserialize(deserializer)?;
        check_price(cost).map_err(|why| D::Error::custom(format!("cost_per_hour is {why}")))?;
        Ok(Self(cost))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(cost: Value) -> Result<CostPerHour, String> {
        serde_json::from_value(cost).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cost_is_a_price_and_free_by_default() {
        assert_eq!(CostPerHour::default().price(), Some(0.0));
        assert_eq!(read(json!(0.25)).unwrap().price(), Some(0.25));
        assert_eq!(read(json!(3)).unwrap().price(), Some(3.0));
        assert_eq!(
            read(json!(-1)).unwrap_err(),
            "cost_per_hour is a price of $-1 an hour, which is negative"
        );
        assert_eq!(
            read(json!(2e6)).unwrap_err(),
            "cost_per_hour is a price of $2000000 an hour, which is above $1000000"
        );
        assert!(
            read(json!("free"))
                .unwrap_err()
                .contains("invalid type: string")
        );
    }
}
