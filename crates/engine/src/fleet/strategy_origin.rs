//! The origins of a pool's strategies: the pool, its worker configuration, or the server.

use std::fmt;

use domain::configuration::Configuration;
use domain::id::ConfigurationId;
use domain::plan::{BadSettings, Settings, StrategyDefaults, StrategyName};
use domain::pool::Pool;
use store::Tx;

/// The strategies of a pool with their origins.
pub struct ExplainedStrategies {
    /// `None`: the config of the pool is invalid for planning.
    pub strategy: Option<ChosenStrategy>,
    /// `None`: the pool has no shadow.
    pub shadow: Option<ChosenStrategy>,
    /// Why a shadow that was chosen does not plan.
    pub shadow_problem: Option<BadSettings>,
}

pub struct ChosenStrategy {
    pub strategy: StrategyName,
    pub origin: StrategyOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyOrigin {
    Pool,
    WorkerConfiguration {
        id: ConfigurationId,
        /// The rule that sets it, if the configuration can be read.
        rule: Option<String>,
    },
    /// The server's settings.
    Default,
}

impl StrategyOrigin {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::WorkerConfiguration { .. } => "worker-configuration",
            Self::Default => "default",
        }
    }
}

impl fmt::Display for StrategyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("chosen by the pool"),
            Self::WorkerConfiguration { id, rule } => {
                write!(f, "chosen by the worker configuration {id}")?;
                match rule {
                    Some(rule) => write!(f, ", rule {rule:?}"),
                    None => Ok(()),
                }
            }
            Self::Default => f.write_str("the default of the server"),
        }
    }
}

impl fmt::Display for ChosenStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.strategy, self.origin)
    }
}

/// Reads the worker configuration of the pool only if one of its rules chose.
pub fn explain_strategies(
    tx: &mut Tx<'_>,
    pool: &Pool,
    defaults: StrategyDefaults,
) -> store::Result<ExplainedStrategies> {
    let config = &pool.definition.config;
    let parsed = Settings::parse_shadow(config, defaults);
    let choice = defaults.choose(config).ok();
    let (shadow, shadow_problem) = match parsed {
        Ok(settings) => (settings.map(|settings| settings.strategy), None),
        Err(problem) => (None, choice.and(Some(problem))),
    };
    let mut explained = ExplainedStrategies {
        strategy: None,
        shadow: None,
        shadow_problem,
    };
    if let Some(strategy) = choice.map(|choice| choice.strategy) {
        let origin = origin(tx, pool, "strategy")?;
        explained.strategy = Some(ChosenStrategy { strategy, origin });
    }
    if let Some(strategy) = shadow {
        let origin = origin(tx, pool, "shadowStrategy")?;
        explained.shadow = Some(ChosenStrategy { strategy, origin });
    }
    Ok(explained)
}

fn origin(tx: &mut Tx<'_>, pool: &Pool, key: &str) -> store::Result<StrategyOrigin> {
    if !pool.definition.config.contains_key(key) {
        return Ok(StrategyOrigin::Default);
    }
    let Some(id) = &pool.worker_configuration_id else {
        return Ok(StrategyOrigin::Pool);
    };
    let stored = store::configurations::get(tx, id)?;
    let parsed = stored.and_then(|stored| Configuration::parse(&stored.document).ok());
    Ok(StrategyOrigin::WorkerConfiguration {
        id: id.clone(),
        rule: parsed.and_then(|it| it.rule_that_sets(&pool.id, &format!("/{key}"))),
    })
}
