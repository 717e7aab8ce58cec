//! The settings of a pool's config that planning uses.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::strategy_choice::{FALLBACK_KEY, SERVICE_KEY};
use super::{Settings, StrategyDefaults, StrategyName};
use crate::id::StrategyServiceId;

/// A maximum price that no price reaches.
pub const NO_MAX_PRICE: f64 = 1e9;
/// Higher ratios are refused as typing errors.
pub(super) const MAX_RATIO: f64 = 100.0;
/// Higher prices of waiting are refused as typing errors.
const MAX_WAIT_PRICE: f64 = 1e6;
/// Larger capacities are refused as typing errors. The limit also keeps sums far from overflow.
const MAX_CAPACITY: u64 = 1_000_000_000;

/// The pool's config has invalid settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error("{key} must be {wanted}, not {found}")]
    Value {
        key: &'static str,
        wanted: String,
        found: String,
    },
    #[error(
        "{0} is not a strategy; use {names}",
        names = names(&StrategyName::ALL)
    )]
    Strategy(String),
    #[error(
        "shadowStrategy: {0} is not a strategy; use \"none\", {names}",
        names = names_of_own_strategies()
    )]
    UnknownShadow(String),
    #[error("shadowStrategy: {shadow} does not accept the settings of the pool: {problem}")]
    Shadow {
        shadow: StrategyName,
        problem: String,
    },
}

/// `"one", "two" or "three"`.
fn names_of_own_strategies() -> String {
    let own = StrategyName::ALL.into_iter();
    let own: Vec<_> = own.filter(|name| *name != StrategyName::External).collect();
    names(&own)
}

fn names(strategies: &[StrategyName]) -> String {
    let names = strategies.iter().map(|name| format!("\"{name}\""));
    let names: Vec<String> = names.collect();
    match names.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl Settings {
    /// Parses the config of a pool on a server without defaults of its own.
    pub fn parse(config: &Map<String, Value>) -> Result<Self, BadSettings> {
        Self::parse_with(config, StrategyDefaults::default())
    }

    /// Parses the config of a pool for a strategy. Without limits nothing is launched. The default
    /// ratio of each strategy starts a unit for every waiting task.
    pub(super) fn parse_for(
        config: &Map<String, Value>,
        strategy: StrategyName,
    ) -> Result<Self, BadSettings> {
        let external = match strategy {
            StrategyName::External => Some(ExternalStrategy::parse(config)?),
            StrategyName::Weighted | StrategyName::AwsProvisioner | StrategyName::Balanced => None,
        };
        let (default_ratio, min_ratio) = {
            let own = external.as_ref().map_or(strategy, |it| it.fallback);
            let strategy = own.strategy();
            (strategy.default_ratio(), strategy.min_ratio())
        };
        Ok(Self {
            min_capacity: capacity(config, "minCapacity")?,
            max_capacity: capacity(config, "maxCapacity")?,
            scaling_ratio: number(config, "scalingRatio", default_ratio, min_ratio, MAX_RATIO)?,
            learns_ratio: !config.contains_key("scalingRatio"),
            wait_price: number(config, "waitPrice", usual_wait_price(), 0.0, MAX_WAIT_PRICE)?,
            strategy,
            min_price: number(config, "minPrice", 0.0, 0.0, NO_MAX_PRICE)?,
            max_price: number(config, "maxPrice", NO_MAX_PRICE, 0.0, NO_MAX_PRICE)?,
            literal: flag(config, "literal")?,
            foresight: flag(config, "foresight")?,
            external,
        })
    }

    /// More waiting tasks than this change no plan, as the maximum is wanted already. Counting can
    /// stop there.
    pub fn most_pending(&self) -> u64 {
        let most = self.own_strategy().most_pending(self);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; what is too large becomes the largest number"
        )]
        let most = most.ceil() as u64;
        most.saturating_add(1)
    }

    /// The effective minimum: never above the maximum.
    pub(super) fn least(&self) -> u64 {
        self.min_capacity.min(self.max_capacity)
    }
}

/// The service of the strategy `external`, and what decides without its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalStrategy {
    pub service: StrategyServiceId,
    /// Never `external`.
    pub fallback: StrategyName,
}

impl ExternalStrategy {
    fn parse(config: &Map<String, Value>) -> Result<Self, BadSettings> {
        let text = |key| config.get(key).unwrap_or(&Value::Null);
        let service = text(SERVICE_KEY)
            .as_str()
            .and_then(|name| name.parse().ok());
        let wanted = "the name of a strategy service, which the strategy \"external\" needs";
        let service =
            service.ok_or_else(|| bad(SERVICE_KEY, wanted.to_owned(), text(SERVICE_KEY)))?;
        let fallback = Self::parse_fallback(config)?;
        Ok(Self { service, fallback })
    }

    pub(super) fn parse_fallback(config: &Map<String, Value>) -> Result<StrategyName, BadSettings> {
        let Some(found) = config.get(FALLBACK_KEY) else {
            return Ok(StrategyName::Balanced);
        };
        let fallback = found.as_str().and_then(|name| name.parse().ok());
        let fallback = fallback.filter(|name| *name != StrategyName::External);
        fallback.ok_or_else(|| bad(FALLBACK_KEY, names_of_own_strategies(), found))
    }
}

/// Dollars that an hour of waiting costs.
pub(super) fn usual_wait_price() -> f64 {
    1.0
}

fn capacity(config: &Map<String, Value>, key: &'static str) -> Result<u64, BadSettings> {
    let Some(found) = config.get(key) else {
        return Ok(0);
    };
    let whole = found.as_u64().or_else(|| {
        // JavaScript prints 5.0 as 5, other languages do not.
        let text = found.as_f64().filter(|number| *number >= 0.0)?.to_string();
        text.parse().ok()
    });
    whole.filter(|units| *units <= MAX_CAPACITY).ok_or_else(|| {
        bad(
            key,
            format!("a whole number from 0 to {MAX_CAPACITY}"),
            found,
        )
    })
}

fn flag(config: &Map<String, Value>, key: &'static str) -> Result<bool, BadSettings> {
    match config.get(key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(bad(key, "true or false".to_owned(), other)),
    }
}

fn number(
    config: &Map<String, Value>,
    key: &'static str,
    usual: f64,
    least: f64,
    most: f64,
) -> Result<f64, BadSettings> {
    let Some(found) = config.get(key) else {
        return Ok(usual);
    };
    found
        .as_f64()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| bad(key, format!("a number from {least} to {most}"), found))
}

fn bad(key: &'static str, wanted: String, found: &Value) -> BadSettings {
    BadSettings::Value {
        key,
        wanted,
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(config: Value) -> Result<Settings, String> {
        Settings::parse(config.as_object().unwrap()).map_err(|bad| bad.to_string())
    }

    #[test]
    fn a_config_that_says_nothing_launches_nothing() {
        let settings = parse(json!({})).unwrap();
        let expected = Settings {
            min_capacity: 0,
            max_capacity: 0,
            scaling_ratio: 1.0,
            learns_ratio: true,
            wait_price: 1.0,
            strategy: StrategyName::Weighted,
            min_price: 0.0,
            max_price: NO_MAX_PRICE,
            literal: false,
            external: None,
            foresight: false,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn each_strategy_calls_a_unit_for_every_waiting_task_by_its_own_ratio() {
        let ratio = |strategy| parse(json!({"strategy": strategy})).unwrap().scaling_ratio;
        assert_eq!((ratio("weighted"), ratio("aws-provisioner")), (1.0, 0.0));
    }

    #[test]
    fn everything_that_can_be_said_is_heard() {
        let config = json!({"minCapacity": 1, "maxCapacity": 5.0, "scalingRatio": -0.2, "minPrice": 0.1, "waitPrice": 2.5,
            "maxPrice": 8, "strategy": "aws-provisioner", "literal": true,
            "foresight": true, "lifecycle": {}});
        let settings = parse(config).unwrap();
        let expected = Settings {
            min_capacity: 1,
            max_capacity: 5,
            scaling_ratio: -0.2,
            learns_ratio: false,
            wait_price: 2.5,
            strategy: StrategyName::AwsProvisioner,
            min_price: 0.1,
            max_price: 8.0,
            literal: true,
            external: None,
            foresight: true,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_pool_with_a_service_has_the_ratio_of_its_fallback() {
        let with = |fallback: &str| {
            let config = json!({"strategy": "external", "externalStrategy": "brain",
                "fallbackStrategy": fallback});
            parse(config).unwrap()
        };
        assert_eq!(with("aws-provisioner").scaling_ratio, 0.0);
        let settings = with("weighted");
        assert_eq!(settings.scaling_ratio, 1.0);
        assert_eq!(settings.strategy, StrategyName::External);
        assert_eq!(settings.own_strategy_name(), StrategyName::Weighted);
        let usual = parse(json!({"strategy": "external", "externalStrategy": "brain"})).unwrap();
        let external = usual.external.unwrap();
        assert_eq!(external.service.as_str(), "brain");
        assert_eq!(external.fallback, StrategyName::Balanced);
    }

    #[test]
    fn what_cannot_be_planned_by_is_named() {
        let problem = |config| parse(config).unwrap_err();
        let cases = [
            (
                json!({"minCapacity": -1}),
                "minCapacity must be a whole number from 0 to 1000000000, not -1",
            ),
            (
                json!({"maxCapacity": 1.5}),
                "maxCapacity must be a whole number from 0 to 1000000000, not 1.5",
            ),
            (
                json!({"maxCapacity": 1e30}),
                "maxCapacity must be a whole number from 0 to 1000000000, not 1e+30",
            ),
            (
                json!({"scalingRatio": -0.5}),
                "scalingRatio must be a number from 0 to 100, not -0.5",
            ),
            (
                json!({"maxPrice": "much"}),
                "maxPrice must be a number from 0 to 1000000000, not \"much\"",
            ),
            (
                json!({"literal": 1}),
                "literal must be true or false, not 1",
            ),
            (
                json!({"foresight": "yes"}),
                "foresight must be true or false, not \"yes\"",
            ),
            (
                json!({"strategy": "cheapest"}),
                "\"cheapest\" is not a strategy; use \"weighted\", \"aws-provisioner\", \"balanced\" or \"external\"",
            ),
            (
                json!({"strategy": "external"}),
                "externalStrategy must be the name of a strategy service, which the strategy \"external\" needs, not null",
            ),
            (
                json!({"strategy": "external", "externalStrategy": "a b"}),
                "externalStrategy must be the name of a strategy service, which the strategy \"external\" needs, not \"a b\"",
            ),
            (
                json!({"strategy": "external", "externalStrategy": "x", "fallbackStrategy": "external"}),
                "fallbackStrategy must be \"weighted\", \"aws-provisioner\" or \"balanced\", not \"external\"",
            ),
            (
                json!({"strategy": "external", "externalStrategy": "x", "fallbackStrategy": 1}),
                "fallbackStrategy must be \"weighted\", \"aws-provisioner\" or \"balanced\", not 1",
            ),
        ];
        for (config, expected) in cases {
            assert_eq!(problem(config), expected);
        }
    }
}
