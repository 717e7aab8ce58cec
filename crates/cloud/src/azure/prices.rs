//! Prices of machines on Azure, from the configuration and the operator's file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use domain::plan::Bid;

use super::launch_config::AzureLaunch;
use crate::price_file::{Market, PriceFile};

pub(super) struct Prices {
    on_demand: BTreeMap<String, f64>,
    spot: BTreeMap<String, f64>,
    file: Option<Arc<PriceFile>>,
}

impl Prices {
    pub(super) fn new(
        on_demand: BTreeMap<String, f64>,
        spot: BTreeMap<String, f64>,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            on_demand,
            spot,
            file: file.map(|path| Arc::new(PriceFile::new(path))),
        }
    }

    pub(super) fn file(&self) -> Option<&Arc<PriceFile>> {
        self.file.as_ref()
    }

    /// The bid for one machine of this launch config.
    pub(super) fn bid(&self, location: &str, launch: AzureLaunch<'_>) -> Bid {
        let (size, is_spot) = (launch.size(), launch.is_spot());
        let place = format!(
            "{location} {} {}",
            size.unwrap_or("of the template's size"),
            if is_spot { "spot" } else { "on-demand" }
        );
        Bid {
            price: size.and_then(|size| self.price(location, size, launch)),
            ..Bid::plain(place)
        }
    }

    /// A spot machine without a known price costs at most its own limit.
    fn price(&self, location: &str, size: &str, launch: AzureLaunch<'_>) -> Option<f64> {
        let (market, prices) = match launch.is_spot() {
            true => (Market::Spot, &self.spot),
            false => (Market::OnDemand, &self.on_demand),
        };
        let file = self.file.as_ref();
        let file = file.and_then(|file| file.overrides().price(location, None, size, market));
        let of_location = || prices.get(&format!("{location}/{size}")).copied();
        let of_size = || prices.get(size).copied();
        let limit = || launch.max_price().filter(|_| launch.is_spot());
        file.or_else(of_location).or_else(of_size).or_else(limit)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::values::now;
    use domain::Version;
    use domain::launch_config::LaunchConfig;

    fn config(content: &Value) -> LaunchConfig {
        LaunchConfig {
            pool_id: "a/b".parse().unwrap(),
            id: "lc-1".parse().unwrap(),
            archived: false,
            position: 0,
            configuration: content.as_object().unwrap().clone(),
            created: now(),
            last_modified: now(),
            version: Version::FIRST,
        }
    }

    fn bid(prices: &Prices, content: &Value) -> Bid {
        let config = config(content);
        prices.bid("westus", AzureLaunch::of(&config))
    }

    #[tokio::test]
    async fn the_file_goes_before_the_location_and_that_before_the_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let text = "[[prices]]\ntype = \"F8\"\nregion = \"westus\"\nprice = 0.1\n";
        std::fs::write(&path, text).unwrap();
        let table = |pairs: &[(&str, f64)]| {
            let pairs = pairs.iter().map(|(key, price)| ((*key).to_owned(), *price));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let on_demand = table(&[("F8", 9.0), ("F4", 0.4), ("westus/F4", 0.3), ("F2", 0.2)]);
        let prices = Prices::new(on_demand, table(&[("F2", 0.05)]), Some(path));
        prices
            .file()
            .unwrap()
            .reread(&"azure".parse().unwrap())
            .await;
        let price = |size: &str| {
            let content = json!({"hardwareProfile": {"vmSize": size}});
            bid(&prices, &content).price
        };
        assert_eq!(price("F8"), Some(0.1));
        assert_eq!(price("F4"), Some(0.3));
        assert_eq!(price("F2"), Some(0.2));
        assert_eq!(price("D2"), None);
        let spot = |size: &str| {
            let content = json!({"hardwareProfile": {"vmSize": size}, "priority": "Spot",
                "billingProfile": {"maxPrice": 0.07}});
            bid(&prices, &content).price
        };
        assert_eq!(spot("F2"), Some(0.05));
        assert_eq!(spot("D2"), Some(0.07));
    }

    #[test]
    fn a_bid_names_the_place_and_the_size() {
        let prices = Prices::new(BTreeMap::new(), BTreeMap::new(), None);
        let content = json!({"hardwareProfile": {"vmSize": "F2"}, "priority": "Spot"});
        assert_eq!(bid(&prices, &content).place, "westus F2 spot");
        let template = json!({"armDeployment": {}});
        let place = bid(&prices, &template).place;
        assert_eq!(place, "westus of the template's size on-demand");
    }
}
