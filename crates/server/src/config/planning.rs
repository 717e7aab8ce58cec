//! The section `[planning]`: the strategies of pools whose config names none.

use domain::plan::{StrategyDefaults, StrategyName};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Planning {
    /// The strategy of pools that name none. Default: `weighted`, so that an upgrade changes
    /// nothing.
    #[serde(deserialize_with = "own_strategy")]
    pub default_strategy: Option<StrategyName>,
    /// The shadow of pools that name none. Default: no shadow.
    #[serde(deserialize_with = "own_strategy")]
    pub default_shadow_strategy: Option<StrategyName>,
}

/// A strategy service is chosen by each pool, with its name and its fallback.
fn own_strategy<'de, D: Deserializer<'de>>(source: D) -> Result<Option<StrategyName>, D::Error> {
    let name = StrategyName::deserialize(source)?;
    if name == StrategyName::External {
        return Err(D::Error::custom(
            "\"external\" cannot be a default: each pool names its strategy service",
        ));
    }
    Ok(Some(name))
}

impl Planning {
    pub fn defaults(&self) -> StrategyDefaults {
        let usual = StrategyDefaults::default();
        StrategyDefaults {
            strategy: self.default_strategy.unwrap_or(usual.strategy),
            shadow: self.default_shadow_strategy.or(usual.shadow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Planning, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_server_without_settings_plans_as_before() {
        let defaults = parse("").unwrap().defaults();
        assert_eq!(defaults, StrategyDefaults::default());
        assert_eq!(defaults.strategy, StrategyName::Weighted);
    }

    #[test]
    fn strategies_are_named_and_others_are_refused() {
        let text = "default_strategy = \"balanced\"\ndefault_shadow_strategy = \"weighted\"";
        let defaults = parse(text).unwrap().defaults();
        assert_eq!(defaults.strategy, StrategyName::Balanced);
        assert_eq!(defaults.shadow, Some(StrategyName::Weighted));
        let problem = parse("default_strategy = \"cheapest\"").unwrap_err();
        assert!(problem.contains("unknown variant `cheapest`"), "{problem}");
        assert!(problem.contains("`balanced`"), "{problem}");
        let problem = parse("default_shadow_strategy = \"external\"").unwrap_err();
        assert!(
            problem.contains("each pool names its strategy service"),
            "{problem}"
        );
        let problem = parse("strategy = \"balanced\"").unwrap_err();
        assert!(problem.contains("unknown field `strategy`"), "{problem}");
    }
}
