//! Prices that the operator has configured: those of the provider's section, which its file of
//! prices overrides.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use domain::id::ProviderId;
use domain::plan::check_price;

use crate::price_file::{Market, PriceFile};

/// Dollars per hour and machine.
pub(crate) struct ConfiguredPrices {
    /// By `<type>`, `<region>/<type>` or `<zone>/<type>`.
    on_demand: BTreeMap<String, f64>,
    spot: BTreeMap<String, f64>,
    file: Option<Arc<PriceFile>>,
}

/// A price in a provider's section is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}.{kind:?} is {why}")]
pub struct BadPrice {
    key: &'static str,
    kind: String,
    why: String,
}

/// Checks the prices under this key of a provider's section.
pub(crate) fn check_prices(
    key: &'static str,
    prices: &BTreeMap<String, f64>,
) -> Result<(), BadPrice> {
    for (kind, price) in prices {
        check_price(*price).map_err(|why| BadPrice {
            key,
            kind: kind.clone(),
            why,
        })?;
    }
    Ok(())
}

impl ConfiguredPrices {
    pub(crate) fn new(
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

    /// Reads the file again if it has changed.
    pub(crate) async fn reread(&self, id: &ProviderId) {
        if let Some(file) = &self.file {
            file.reread(id).await;
        }
    }

    /// Why the content of the file does not count.
    pub(crate) fn error(&self) -> Option<String> {
        self.file.as_ref()?.error()
    }

    /// The price of a type in a region, or in one of its zones. The file goes before the section,
    /// and the more exact entry before the other.
    pub(crate) fn price(
        &self,
        region: &str,
        zone: Option<&str>,
        kind: &str,
        market: Market,
    ) -> Option<f64> {
        let overridden = self.overridden(region, zone, kind, market);
        overridden.or_else(|| {
            let listed = match market {
                Market::Spot => &self.spot,
                Market::OnDemand => &self.on_demand,
            };
            let within = |place: &str| listed.get(&format!("{place}/{kind}"));
            let exact = zone.and_then(within).or_else(|| within(region));
            exact.or_else(|| listed.get(kind)).copied()
        })
    }

    /// The price in the file alone.
    pub(crate) fn overridden(
        &self,
        region: &str,
        zone: Option<&str>,
        kind: &str,
        market: Market,
    ) -> Option<f64> {
        let overrides = self.file.as_ref()?.overrides();
        overrides.price(region, zone, kind, market)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let pairs = pairs.iter().map(|(key, price)| ((*key).to_owned(), *price));
        pairs.collect()
    }

    #[test]
    fn the_most_exact_price_of_the_market_counts() {
        let on_demand = table(&[("f2", 0.03), ("us/f2", 0.02), ("us-a/f2", 0.01)]);
        let prices = ConfiguredPrices::new(on_demand, table(&[("f2", 0.005)]), None);
        let price = |region, zone, market| prices.price(region, zone, "f2", market);
        assert_eq!(price("us", Some("us-a"), Market::OnDemand), Some(0.01));
        assert_eq!(price("us", Some("us-b"), Market::OnDemand), Some(0.02));
        assert_eq!(price("us", None, Market::OnDemand), Some(0.02));
        assert_eq!(price("eu", Some("eu-a"), Market::OnDemand), Some(0.03));
        assert_eq!(price("us", Some("us-a"), Market::Spot), Some(0.005));
        assert_eq!(prices.price("us", None, "f8", Market::OnDemand), None);
        assert_eq!(prices.error(), None);
    }

    #[tokio::test]
    async fn the_file_goes_before_the_section() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[[prices]]\ntype = \"f2\"\nzone = \"us-a\"\nprice = 0.5\n\
            [[prices]]\ntype = \"f8\"\nregion = \"us\"\nprice = 0.1\n";
        std::fs::write(file.path(), text).unwrap();
        let section = table(&[("f2", 0.03), ("us/f8", 9.0)]);
        let path = Some(file.path().to_owned());
        let prices = ConfiguredPrices::new(section, BTreeMap::new(), path);
        prices.reread(&"cloud".parse().unwrap()).await;
        assert_eq!(prices.error(), None);
        let price = |zone, kind| prices.price("us", Some(zone), kind, Market::OnDemand);
        assert_eq!(price("us-a", "f2"), Some(0.5));
        assert_eq!(price("us-b", "f2"), Some(0.03));
        assert_eq!(price("us-b", "f8"), Some(0.1));
        std::fs::write(file.path(), "[[prices]]\ntype = 7\n").unwrap();
        prices.reread(&"cloud".parse().unwrap()).await;
        assert!(prices.error().unwrap().contains("7 is not a name"));
    }

    #[test]
    fn a_price_that_is_none_is_named_in_the_error() {
        assert_eq!(check_prices("prices", &table(&[("a", 0.0)])), Ok(()));
        let refused = check_prices("spot_prices", &table(&[("a", 1.0), ("b", -1.0)]));
        let error = refused.unwrap_err().to_string();
        assert!(
            error.starts_with("spot_prices.\"b\" is a price of"),
            "{error}"
        );
    }
}
