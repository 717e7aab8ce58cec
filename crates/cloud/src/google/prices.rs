//! Prices of Google's machines: list prices of the operator, and a file that overrides them.
//!
//! Google has no call that tells the price of a machine type.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use domain::plan::Bid;

use super::row::region_of;
use crate::price_file::{Market, PriceFile};

pub(super) struct Prices {
    standard: BTreeMap<String, f64>,
    spot: BTreeMap<String, f64>,
    file: Option<Arc<PriceFile>>,
}

impl Prices {
    pub(super) fn new(
        standard: BTreeMap<String, f64>,
        spot: BTreeMap<String, f64>,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            standard,
            spot,
            file: file.map(|path| Arc::new(PriceFile::new(path))),
        }
    }

    pub(super) fn file(&self) -> Option<&Arc<PriceFile>> {
        self.file.as_ref()
    }

    /// The bid for one machine of this type: its price, if it is known, and its place.
    pub(super) fn bid(&self, zone: &str, kind: &str, spot: bool) -> Bid {
        let market = if spot { "spot" } else { "on-demand" };
        Bid {
            price: self.price(zone, kind, spot),
            ..Bid::plain(format!("{zone} {kind} {market}"))
        }
    }

    fn price(&self, zone: &str, kind: &str, spot: bool) -> Option<f64> {
        let (listed, market) = if spot {
            (&self.spot, Market::Spot)
        } else {
            (&self.standard, Market::OnDemand)
        };
        let region = region_of(zone);
        let file = self.file.as_ref().map(|file| file.overrides());
        let overridden = file.and_then(|file| file.price(region, Some(zone), kind, market));
        overridden.or_else(|| {
            let keys = [
                format!("{zone}/{kind}"),
                format!("{region}/{kind}"),
                kind.to_owned(),
            ];
            keys.iter().find_map(|key| listed.get(key).copied())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_price_of_the_market_counts() {
        let of = |pairs: &[(&str, f64)]| {
            let owned = pairs.iter().map(|(key, price)| ((*key).to_owned(), *price));
            owned.collect::<BTreeMap<_, _>>()
        };
        let standard = of(&[
            ("e2-medium", 0.03),
            ("us-central1/e2-medium", 0.02),
            ("us-central1-a/e2-medium", 0.01),
        ]);
        let prices = Prices::new(standard, of(&[("e2-medium", 0.005)]), None);
        let price = |zone, spot| prices.price(zone, "e2-medium", spot);
        assert_eq!(price("us-central1-a", false), Some(0.01));
        assert_eq!(price("us-central1-b", false), Some(0.02));
        assert_eq!(price("europe-west1-b", false), Some(0.03));
        assert_eq!(price("us-central1-a", true), Some(0.005));
        assert_eq!(prices.price("us-central1-a", "n2", false), None);
        let bid = prices.bid("us-central1-a", "e2-medium", true);
        assert_eq!(bid.place, "us-central1-a e2-medium spot");
    }

    #[tokio::test]
    async fn the_file_overrides_the_section() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[[prices]]\ntype = \"e2-medium\"\nzone = \"us-central1-a\"\nprice = 0.5\n";
        std::fs::write(file.path(), text).unwrap();
        let standard = BTreeMap::from([("e2-medium".to_owned(), 0.03)]);
        let path = Some(file.path().to_owned());
        let prices = Prices::new(standard, BTreeMap::new(), path);
        let own = prices.file().unwrap();
        own.reread(&"google".parse().unwrap()).await;
        assert_eq!(own.error(), None);
        let price = |zone| prices.price(zone, "e2-medium", false);
        assert_eq!(price("us-central1-a"), Some(0.5));
        assert_eq!(price("us-central1-b"), Some(0.03));
    }
}
