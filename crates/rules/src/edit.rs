//! Edits of a rule set: add, replace, remove or move one rule.

use crate::problem::{Problems, did_you_mean};
use crate::rule::Rule;
use crate::set::RuleSet;

/// The position of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before all other rules.
    First,
    /// After all other rules, so that it overrides them.
    Last,
    /// Before the rule with this id.
    Before(String),
    /// After the rule with this id.
    After(String),
}

/// Why an edit failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EditError {
    /// The set has no rule with this id.
    #[error("no rule has the ruleId {rule_id:?}{hint}")]
    NotFound {
        /// The id that no rule has.
        rule_id: String,
        /// A rule with a similar id: `, did you mean "ec2-ami"?`, or empty.
        hint: String,
    },
    /// The set already has a rule with this id.
    #[error("a rule {0:?} exists already: replace it, or give the new rule another ruleId")]
    Duplicate(String),
    /// A rule cannot go before or after itself.
    #[error("rule {0:?} cannot be moved next to itself")]
    NextToItself(String),
    /// The set would become too large.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

impl RuleSet {
    /// The set with one more rule. Fails if a rule with this id exists, no rule has the id of the
    /// position, or the set would be too large.
    pub fn add(&self, rule: Rule, at: Position) -> Result<Self, EditError> {
        if self.get(rule.id()).is_some() {
            return Err(EditError::Duplicate(rule.id().to_owned()));
        }
        let mut rules = self.rules().to_vec();
        let index = self.index_of(&at, &rules)?;
        rules.insert(index, rule);
        Ok(Self::with_sets(rules, self.sets().clone())?)
    }

    /// The set with this rule in place of the rule with its id. Fails if no rule has this id, or
    /// the set would be too large.
    pub fn replace(&self, rule: Rule) -> Result<Self, EditError> {
        let index = self.find(rule.id(), self.rules())?;
        let mut rules = self.rules().to_vec();
        rules[index] = rule;
        Ok(Self::with_sets(rules, self.sets().clone())?)
    }

    /// The set without the rule with this id. Fails if no rule has this id.
    pub fn remove(&self, id: &str) -> Result<Self, EditError> {
        let index = self.find(id, self.rules())?;
        let mut rules = self.rules().to_vec();
        rules.remove(index);
        Ok(Self::with_sets(rules, self.sets().clone())?)
    }

    /// The set with this rule in another position. Fails if no rule has this id or the id of the
    /// position.
    pub fn move_to(&self, id: &str, at: Position) -> Result<Self, EditError> {
        let index = self.find(id, self.rules())?;
        if matches!(&at, Position::Before(other) | Position::After(other) if other == id) {
            return Err(EditError::NextToItself(id.to_owned()));
        }
        let mut rules = self.rules().to_vec();
        let rule = rules.remove(index);
        let index = self.index_of(&at, &rules)?;
        rules.insert(index, rule);
        Ok(Self::with_sets(rules, self.sets().clone())?)
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
        found.ok_or_else(|| EditError::NotFound {
            rule_id: id.to_owned(),
            hint: did_you_mean(id, self.rules().iter().map(Rule::id)),
        })
    }
}
