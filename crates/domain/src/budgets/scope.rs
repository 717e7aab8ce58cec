//! The scopes of budgets: pools, the pools of an owner, or a provider.

use std::fmt;
use std::str::FromStr;

use crate::id::{BadName, PoolId, ProviderId};
use crate::pool::Pool;

/// Whose money a budget limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    Pools(PoolPattern),
    /// The pools of this owner.
    Owner(String),
    /// The machines of this provider, in all pools.
    Provider(ProviderId),
}

/// A pool (`a/b`), all pools that begin alike (`a/*`), or every pool (`*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPattern(String);

impl PoolPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, pool: &PoolId) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => pool.as_str().starts_with(start),
            None => self.0 == pool.as_str(),
        }
    }

    /// The pool, if it matches only one.
    pub fn pool_id(&self) -> Option<PoolId> {
        self.0.parse().ok()
    }
}

impl FromStr for PoolPattern {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_pattern = match text.strip_suffix("/*") {
            // The first part of a pool id.
            Some(first) => format!("{first}/a").parse::<PoolId>().is_ok(),
            None => text == "*" || text.parse::<PoolId>().is_ok(),
        };
        let text = text.to_owned();
        match is_pattern {
            true => Ok(Self(text)),
            false => Err(BadName {
                text,
                what: "neither a pool (a/b) nor pools (a/* or *)",
            }),
        }
    }
}

impl BudgetScope {
    /// Whether it limits any machine of this pool.
    pub fn concerns(&self, pool: &Pool) -> bool {
        match self {
            Self::Pools(pattern) => pattern.matches(&pool.id),
            Self::Owner(owner) => *owner == pool.definition.owner,
            Self::Provider(id) => pool.has_provider(id),
        }
    }

    /// Whether it limits machines of this pool, owner and provider.
    pub fn has(&self, pool: &PoolId, owner: &str, provider: &ProviderId) -> bool {
        match self {
            Self::Pools(pattern) => pattern.matches(pool),
            Self::Owner(name) => name == owner,
            Self::Provider(id) => id == provider,
        }
    }

    /// The provider, if only its machines are limited.
    pub fn provider_id(&self) -> Option<&ProviderId> {
        match self {
            Self::Provider(id) => Some(id),
            Self::Pools(_) | Self::Owner(_) => None,
        }
    }
}

impl fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pools(pattern) if pattern.0 == "*" => f.write_str("every pool"),
            Self::Pools(pattern) => f.write_str(&pattern.0),
            Self::Owner(owner) => write!(f, "owner {owner}"),
            Self::Provider(id) => write!(f, "provider {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_pool_or_the_beginning_of_pools() {
        let matches = |pattern: &str, pool: &str| {
            let pattern: PoolPattern = pattern.parse().unwrap();
            pattern.matches(&pool.parse().unwrap())
        };
        assert!(matches("a/b", "a/b") && !matches("a/b", "a/bc"));
        assert!(matches("a/*", "a/b") && !matches("a/*", "ab/b"));
        assert!(matches("*", "a/b") && matches("*", "c/d"));
        for bad in ["", "a", "a*", "*/b", "a/b*", "a/*/*", "**", "/*", "a/b/c"] {
            assert!(bad.parse::<PoolPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_pattern_of_one_pool_names_a_pool() {
        let pool = |text: &str| text.parse::<PoolPattern>().unwrap().pool_id();
        assert_eq!(pool("a/b"), "a/b".parse().ok());
        assert_eq!((pool("a/*"), pool("*")), (None, None));
    }
}
