//! What is wrong with a worker configuration, where, and which rules have to do with it.

use std::fmt;

use rules::{Attributes, Evaluator};

/// So many are told at once.
const MAX_PROBLEMS: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The evaluation in which it shows; `None`: in the document itself.
    pub presented: Option<Attributes>,
    /// A JSON pointer into the document, or into the result of the evaluation.
    pub pointer: String,
    pub message: String,
    /// The ids of the rules involved.
    pub rules: Vec<String>,
    /// In how many further evaluations the very same is wrong.
    pub n_like_it: usize,
}

/// At least one, if it is an error; bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    listed: Vec<Problem>,
    n_more: usize,
    is_outage: bool,
}

impl Problem {
    pub(super) fn at(pointer: &str, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Is the same wrong, by the same rules, in another evaluation?
    fn is_like(&self, other: &Self) -> bool {
        self.presented.is_some()
            && other.presented.is_some()
            && (&self.pointer, &self.message, &self.rules)
                == (&other.pointer, &other.message, &other.rules)
    }

    pub(super) fn when(mut self, presented: &Attributes) -> Self {
        self.presented = Some(presented.clone());
        self
    }

    pub(super) fn by(mut self, rules: Vec<String>) -> Self {
        self.rules = rules;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(presented) = &self.presented {
            match self.n_like_it {
                0 => write!(f, "with {presented}: ")?,
                more => write!(f, "with {presented} and {more} more: ")?,
            }
        }
        if !self.pointer.is_empty() {
            write!(f, "{}: ", self.pointer)?;
        }
        f.write_str(&self.message)?;
        if !self.rules.is_empty() {
            let rules: Vec<String> = self.rules.iter().map(|id| format!("{id:?}")).collect();
            let noun = if rules.len() == 1 { "rule" } else { "rules" };
            write!(f, " ({noun} {})", rules.join(", "))?;
        }
        Ok(())
    }
}

impl Problems {
    pub fn add(&mut self, problem: Problem) {
        if let Some(known) = self.listed.iter_mut().find(|known| known.is_like(&problem)) {
            known.n_like_it += 1;
            return;
        }
        match self.listed.len() < MAX_PROBLEMS {
            true => self.listed.push(problem),
            false => self.n_more += 1,
        }
    }

    /// Whether further ones will only be counted.
    pub(super) fn are_enough(&self) -> bool {
        self.listed.len() >= MAX_PROBLEMS
    }

    pub(super) fn add_unseen(&mut self) {
        self.n_more += 1;
    }

    pub(super) fn add_rules(&mut self, wrong: &rules::Problems) {
        for problem in wrong.list() {
            self.add(Problem {
                presented: None,
                pointer: format!("/rules{}", problem.path),
                message: problem.message.clone(),
                rules: problem.rule_id.iter().cloned().collect(),
                n_like_it: 0,
            });
        }
    }

    /// A provider could not say what there is; that may be otherwise in a moment.
    pub(super) fn add_outage(&mut self, problem: Problem) {
        self.is_outage = true;
        self.add(problem);
    }

    /// Is it worth trying again as it is?
    pub fn is_outage(&self) -> bool {
        self.is_outage
    }

    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.listed.iter()
    }

    /// Nothing, if nothing is wrong.
    pub(super) fn into_result(self) -> Result<(), Self> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(self),
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self {
            listed: vec![problem],
            ..Self::default()
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.listed.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.n_more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Problems {}

/// The pointer to a member of what this pointer points to.
pub(super) fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// So many rules are named for one problem, the last ones to have had to do with it.
const MAX_RULES: usize = 5;

/// The rules that had to do with a value, or, if there is no such value, with the nearest one around it.
pub fn rules_behind(evaluator: &Evaluator, presented: &Attributes, pointer: &str) -> Vec<String> {
    let mut pointer = pointer;
    while !pointer.is_empty() {
        let steps = evaluator.explain(presented, pointer).steps;
        if !steps.is_empty() {
            let skipped = steps.len().saturating_sub(MAX_RULES);
            let ids = steps.into_iter().skip(skipped).map(|step| step.rule_id);
            return ids.collect();
        }
        pointer = pointer.rsplit_once('/').map_or("", |(around, _)| around);
    }
    Vec::new()
}
