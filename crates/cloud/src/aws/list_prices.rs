//! On-demand list prices of common instance types: Linux, shared tenancy, as of January 2025.
//!
//! In dollars per hour. Within a family the price is proportional to the size, so one number per
//! family is enough. This is precise enough to compare launch configs. Operators who need exact
//! prices set `on_demand_prices`.

/// Regions with these prices. In other regions the price is unknown.
const REGIONS: [&str; 3] = ["us-east-1", "us-east-2", "us-west-2"];

/// Each family with the price of its `large` size, and how many times `large` its `metal` size is
/// (0: the family has no `metal`).
const FAMILIES: [(&str, f64, u32); 38] = [
    ("t2", 0.0928, 0),
    ("t3", 0.0832, 0),
    ("t3a", 0.0752, 0),
    ("t4g", 0.0672, 0),
    ("m4", 0.10, 0),
    ("m5", 0.096, 48),
    ("m5a", 0.086, 0),
    ("m5ad", 0.103, 0),
    ("m5d", 0.113, 48),
    ("m5n", 0.119, 48),
    ("m6a", 0.0864, 96),
    ("m6g", 0.077, 32),
    ("m6gd", 0.0904, 32),
    ("m6i", 0.096, 64),
    ("m6id", 0.11865, 64),
    ("m7a", 0.11592, 0),
    ("m7g", 0.0816, 32),
    ("m7i", 0.1008, 0),
    ("m7i-flex", 0.09576, 0),
    ("c5", 0.085, 48),
    ("c5a", 0.077, 0),
    ("c5d", 0.096, 48),
    ("c5n", 0.108, 36),
    ("c6a", 0.0765, 96),
    ("c6g", 0.068, 32),
    ("c6i", 0.085, 64),
    ("c7a", 0.10264, 0),
    ("c7g", 0.0725, 32),
    ("c7i", 0.08925, 0),
    ("r5", 0.126, 48),
    ("r5a", 0.113, 0),
    ("r5d", 0.144, 48),
    ("r6a", 0.1134, 96),
    ("r6g", 0.1008, 32),
    ("r6i", 0.126, 64),
    ("r7g", 0.1071, 32),
    ("r7i", 0.1323, 0),
    ("i3en", 0.226, 48),
];

pub(crate) fn list_price(region: &str, kind: &str) -> Option<f64> {
    if !REGIONS.contains(&region) {
        return None;
    }
    let (family, size) = kind.split_once('.')?;
    let (_, large, metal) = FAMILIES.iter().find(|(name, _, _)| *name == family)?;
    let price = large * times_large(size, *metal)?;
    // List prices have five decimals.
    Some((price * 1e5).round() / 1e5)
}

/// How many times `large` a size is.
fn times_large(size: &str, metal: u32) -> Option<f64> {
    match size {
        "nano" => Some(1.0 / 16.0),
        "micro" => Some(1.0 / 8.0),
        "small" => Some(1.0 / 4.0),
        "medium" => Some(1.0 / 2.0),
        "large" => Some(1.0),
        "xlarge" => Some(2.0),
        "metal" => (metal > 0).then(|| f64::from(metal)),
        _ => {
            let metal = size
                .strip_prefix("metal-")
                .and_then(|rest| rest.strip_suffix("xl"));
            let times = metal.or_else(|| size.strip_suffix("xlarge"))?;
            let times: u8 = times.parse().ok()?;
            Some(2.0 * f64::from(times))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_a_family_cost_in_proportion() {
        for (kind, price) in [
            ("t3.nano", 0.0052),
            ("t3.medium", 0.0416),
            ("m5.large", 0.096),
            ("m5.24xlarge", 4.608),
            ("m5d.metal", 5.424),
            ("c5.9xlarge", 1.53),
            ("c7i.metal-24xl", 4.284),
            ("m4.2xlarge", 0.4),
        ] {
            assert_eq!(list_price("us-east-1", kind), Some(price), "{kind}");
        }
    }

    #[test]
    fn a_type_outside_the_table_has_no_price() {
        for (region, kind) in [
            ("eu-west-1", "m5.large"),
            ("us-east-1", "m5"),
            ("us-east-1", "zz.large"),
            ("us-east-1", "m5.-1xlarge"),
            ("us-east-1", "m5.999xlarge"),
            ("us-east-1", "t3.metal"),
            ("us-east-1", "m5.éxlarge"),
        ] {
            assert_eq!(list_price(region, kind), None, "{region} {kind}");
        }
    }
}
