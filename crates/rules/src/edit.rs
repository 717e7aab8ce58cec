//! Edits of one rule: each gives a new set and leaves the others' rules alone.

use crate::problem::{Problems, did_you_mean};
use crate::rule::Rule;
use crate::set::RuleSet;

/// Where a rule goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before all others.
    First,
    /// After all others, so that it wins.
    Last,
    /// Before the rule with this id.
    Before(String),
    /// After the rule with this id.
    After(String),
}

/// Why an edit was not made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EditError {
    /// The set has no rule with this id.
    #[error("there is no rule {rule_id:?}{hint}")]
    NotThere {
        /// The id.
        rule_id: String,
        /// A rule that is nearly called so.
        hint: String,
    },
    /// The set has a rule with this id already.
    #[error("there is a rule {0:?} already: replace it, or give the new one another ruleId")]
    Duplicate(String),
    /// A rule cannot go before or after itself.
    #[error("rule {0:?} cannot be moved next to itself")]
    NextToItself(String),
    /// The set would become too large.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

impl RuleSet {
    /// With one more rule.
    ///
    /// # Errors
    ///
    /// If there is a rule with its id, or none with that of the position, or the set would be too large.
    pub fn add(&self, rule: Rule, at: Position) -> Result<Self, EditError> {
        if self.get(rule.id()).is_some() {
            return Err(EditError::Duplicate(rule.id().to_owned()));
        }
        let mut rules = self.rules().to_vec();
        let index = self.index_of(&at, &rules)?;
        rules.insert(index, rule);
        Ok(Self::from_rules(rules)?)
    }

    /// With this rule in the place of the one with its id.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or the set would be too large.
    pub fn replace(&self, rule: Rule) -> Result<Self, EditError> {
        let index = self.find(rule.id(), self.rules())?;
        let mut rules = self.rules().to_vec();
        rules[index] = rule;
        Ok(Self::from_rules(rules)?)
    }

    /// Without the rule with this id.
    ///
    /// # Errors
    ///
    /// If there is no such rule.
    pub fn remove(&self, id: &str) -> Result<Self, EditError> {
        let index = self.find(id, self.rules())?;
        let mut rules = self.rules().to_vec();
        rules.remove(index);
        Ok(Self::from_rules(rules)?)
    }

    /// With the rule with this id in another place.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or none with the id of the position.
    pub fn move_to(&self, id: &str, at: Position) -> Result<Self, EditError> {
        let index = self.find(id, self.rules())?;
        if matches!(&at, Position::Before(other) | Position::After(other) if other == id) {
            return Err(EditError::NextToItself(id.to_owned()));
        }
        let mut rules = self.rules().to_vec();
        let rule = rules.remove(index);
        let index = self.index_of(&at, &rules)?;
        rules.insert(index, rule);
        Ok(Self::from_rules(rules)?)
    }

    fn index_of(&self, at: &Position, rules: &[Rule]) -> Result<usize, EditError> {
        match at {
            Position::First => Ok(0),
            Position::Last => Ok(rules.len()),
            Position::Before(id) => self.find(id, rules),
            Position::After(id) => Ok(self.find(id, rules)? + 1),
        }
    }

    fn find(&self, id: &str, rules: &[Rule]) -> Result<usize, EditError> {
        let found = rules.iter().position(|rule| rule.id() == id);
        found.ok_or_else(|| EditError::NotThere {
            rule_id: id.to_owned(),
            hint: did_you_mean(id, self.rules().iter().map(Rule::id)),
        })
    }
}
