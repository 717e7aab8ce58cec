//! The choice of a pool's strategies: by its config, or else by the server's settings.

use serde_json::{Map, Value};

use super::{BadSettings, ExternalStrategy, Settings, StrategyName};

/// Keys of a pool's config that only planning uses. Providers do not need to know them.
pub const PLANNING_KEYS: [&str; 9] = [
    "strategy",
    "shadowStrategy",
    SERVICE_KEY,
    FALLBACK_KEY,
    "minPrice",
    "maxPrice",
    "waitPrice",
    "literal",
    "foresight",
];
pub(super) const SERVICE_KEY: &str = "externalStrategy";
pub(super) const FALLBACK_KEY: &str = "fallbackStrategy";
const STRATEGY_KEY: &str = "strategy";
const SHADOW_KEY: &str = "shadowStrategy";
/// The value of `shadowStrategy` for pools that have none, whatever the server's settings are.
const NO_SHADOW: &str = "none";

/// The strategies of pools whose config names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategyDefaults {
    pub strategy: StrategyName,
    pub shadow: Option<StrategyName>,
}

impl Default for StrategyDefaults {
    fn default() -> Self {
        Self {
            strategy: StrategyName::Weighted,
            shadow: None,
        }
    }
}

/// The strategies of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategyChoice {
    pub strategy: StrategyName,
    /// The same, or the fallback of a strategy service.
    pub own: StrategyName,
    /// `None`: none is chosen, or the one that decides anyway.
    pub shadow: Option<StrategyName>,
}

impl StrategyDefaults {
    /// The choice for a pool with this config. An invalid shadow counts as none.
    pub fn choose(self, config: &Map<String, Value>) -> Result<StrategyChoice, BadSettings> {
        let strategy = self.strategy_of(config)?;
        let shadow = self.shadow_of(config).ok().flatten();
        Ok(StrategyChoice {
            strategy,
            own: own_strategy(config, strategy)?,
            shadow: shadow.filter(|shadow| *shadow != strategy),
        })
    }

    fn strategy_of(self, config: &Map<String, Value>) -> Result<StrategyName, BadSettings> {
        let Some(found) = config.get(STRATEGY_KEY) else {
            return Ok(self.strategy);
        };
        name(found).ok_or_else(|| BadSettings::Strategy(found.to_string()))
    }

    fn shadow_of(self, config: &Map<String, Value>) -> Result<Option<StrategyName>, BadSettings> {
        match config.get(SHADOW_KEY) {
            None => Ok(self.shadow),
            Some(found) if found == NO_SHADOW => Ok(None),
            // A service would plan what it is never asked to do.
            Some(found) => match name(found).filter(|name| *name != StrategyName::External) {
                Some(shadow) => Ok(Some(shadow)),
                None => Err(BadSettings::UnknownShadow(found.to_string())),
            },
        }
    }
}

fn name(found: &Value) -> Option<StrategyName> {
    found.as_str().and_then(|name| name.parse().ok())
}

/// The strategy of our own that decides: for a strategy service, what decides without its answer.
fn own_strategy(
    config: &Map<String, Value>,
    strategy: StrategyName,
) -> Result<StrategyName, BadSettings> {
    match strategy {
        StrategyName::External => ExternalStrategy::parse_fallback(config),
        StrategyName::Weighted | StrategyName::AwsProvisioner | StrategyName::Balanced => {
            Ok(strategy)
        }
    }
}

impl StrategyChoice {
    /// Whether one of the strategies learns from launches, workers and tasks.
    pub fn learns(self) -> bool {
        self.own.learns() || self.shadow_learns()
    }

    pub fn shadow_learns(self) -> bool {
        self.shadow.is_some_and(StrategyName::learns)
    }
}

impl Settings {
    /// The settings of a pool on a server with these defaults.
    pub fn parse_with(
        config: &Map<String, Value>,
        defaults: StrategyDefaults,
    ) -> Result<Self, BadSettings> {
        Self::parse_for(config, defaults.strategy_of(config)?)
    }

    /// The settings of the pool's shadow: what they were if it decided. `None`: there is no shadow.
    pub fn parse_shadow(
        config: &Map<String, Value>,
        defaults: StrategyDefaults,
    ) -> Result<Option<Self>, BadSettings> {
        let Some(shadow) = defaults.shadow_of(config)? else {
            return Ok(None);
        };
        if shadow == defaults.strategy_of(config)? {
            return Ok(None);
        }
        let settings = Self::parse_for(config, shadow);
        settings.map(Some).map_err(|bad| BadSettings::Shadow {
            shadow,
            problem: bad.to_string(),
        })
    }

    /// Checks the config of a pool before it is written, whatever the server's defaults are.
    pub fn check(config: &Map<String, Value>) -> Result<(), BadSettings> {
        Self::parse(config)?;
        Self::parse_shadow(config, StrategyDefaults::default()).map(drop)
    }
}

/// Whether the config has a key that only planning uses.
pub fn has_planning_keys(config: &Map<String, Value>) -> bool {
    PLANNING_KEYS.iter().any(|key| config.contains_key(*key))
}

/// Removes what only planning uses, so that a provider can check the rest. With a strategy of its
/// own, this includes the ratio of the pool: its range depends on the strategy.
pub fn remove_planning_keys(config: &mut Map<String, Value>) -> Map<String, Value> {
    let ratio = config.contains_key(STRATEGY_KEY).then_some("scalingRatio");
    let keys = PLANNING_KEYS.into_iter().chain(ratio);
    let removed = keys.filter_map(|key| config.remove_entry(key));
    removed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(config: Value) -> Map<String, Value> {
        config.as_object().unwrap().clone()
    }

    const SERVER: StrategyDefaults = StrategyDefaults {
        strategy: StrategyName::Balanced,
        shadow: Some(StrategyName::Weighted),
    };

    #[test]
    fn a_pool_goes_before_the_server() {
        let chosen = |defaults: StrategyDefaults, config| {
            let choice = defaults.choose(&object(config)).unwrap();
            let shadow = choice.shadow.map_or("-", StrategyName::as_str);
            format!("{} {shadow}", choice.strategy)
        };
        let usual = StrategyDefaults::default();
        assert_eq!(chosen(usual, json!({})), "weighted -");
        assert_eq!(chosen(SERVER, json!({})), "balanced weighted");
        let own = json!({"strategy": "weighted", "shadowStrategy": "balanced"});
        assert_eq!(chosen(usual, own.clone()), "weighted balanced");
        assert_eq!(chosen(SERVER, own), "weighted balanced");
        assert_eq!(
            chosen(SERVER, json!({"shadowStrategy": "none"})),
            "balanced -"
        );
        // The same strategy would show nothing.
        assert_eq!(
            chosen(SERVER, json!({"strategy": "weighted"})),
            "weighted -"
        );
    }

    #[test]
    fn a_shadow_that_no_pool_can_have_is_named_and_does_not_count() {
        let problem = |config| {
            let config = object(config);
            assert_eq!(SERVER.choose(&config).unwrap().shadow, None);
            Settings::check(&config).unwrap_err().to_string()
        };
        assert_eq!(
            problem(json!({"shadowStrategy": "cheapest"})),
            "shadowStrategy: \"cheapest\" is not a strategy; use \"none\", \"weighted\", \
             \"aws-provisioner\" or \"balanced\""
        );
        assert_eq!(
            problem(json!({"shadowStrategy": 1})),
            "shadowStrategy: 1 is not a strategy; use \"none\", \"weighted\", \
             \"aws-provisioner\" or \"balanced\""
        );
        let negative = json!({"strategy": "aws-provisioner", "scalingRatio": -0.2,
            "shadowStrategy": "weighted"});
        let config = object(negative);
        assert_eq!(
            Settings::check(&config).unwrap_err().to_string(),
            "shadowStrategy: weighted does not accept the settings of the pool: scalingRatio must \
             be a number from 0 to 100, not -0.2"
        );
        // A pool that was written before plans as without it.
        assert!(Settings::parse_with(&config, SERVER).is_ok());
    }

    #[test]
    fn a_shadow_has_the_settings_that_it_would_decide_by() {
        let config =
            object(json!({"maxCapacity": 5, "waitPrice": 2, "shadowStrategy": "balanced"}));
        let shadow = Settings::parse_shadow(&config, StrategyDefaults::default());
        let shadow = shadow.unwrap().unwrap();
        assert_eq!(shadow.strategy, StrategyName::Balanced);
        assert_eq!((shadow.max_capacity, shadow.wait_price), (5, 2.0));
        let without = object(json!({"maxCapacity": 5}));
        let none = Settings::parse_shadow(&without, StrategyDefaults::default());
        assert_eq!(none, Ok(None));
    }

    #[test]
    fn providers_do_not_see_what_only_planning_uses() {
        let mut config = object(
            json!({"maxCapacity": 5, "strategy": "balanced", "literal": true,
            "shadowStrategy": "weighted", "minPrice": 1, "maxPrice": 2, "waitPrice": 3,
            "scalingRatio": 9}),
        );
        assert!(has_planning_keys(&config));
        let removed = remove_planning_keys(&mut config);
        assert_eq!(config, object(json!({"maxCapacity": 5})));
        assert_eq!(removed.len(), 7);
        let mut config = object(json!({"scalingRatio": 9}));
        assert!(!has_planning_keys(&config));
        assert!(remove_planning_keys(&mut config).is_empty());
    }
}
