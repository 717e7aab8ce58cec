//! Errors in a worker configuration, each with its pointer and the rules involved.

use std::fmt;

use rules::{Attributes, EvaluationError, Evaluator};

/// Maximum number of errors that are listed.
const MAX_PROBLEMS: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The evaluation with the error; `None`: the error is in the document itself.
    pub attributes: Option<Attributes>,
    /// A JSON pointer into the document, or into the result of the evaluation.
    pub pointer: String,
    pub message: String,
    /// The ids of the rules involved.
    pub rules: Vec<String>,
    /// The number of further evaluations with the same error.
    pub n_similar: usize,
}

/// A list of errors: at least one when returned as an error, and limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Those about missing providers come first: other errors may follow from them.
    listed: Vec<Problem>,
    n_missing_providers: usize,
    n_more: usize,
    is_outage: bool,
}

impl Problem {
    pub fn at(pointer: &str, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Whether the other is the same error in another evaluation.
    fn is_like(&self, other: &Self) -> bool {
        self.attributes.is_some()
            && other.attributes.is_some()
            && (&self.pointer, &self.message) == (&other.pointer, &other.message)
    }

    /// Counts the same error in another evaluation.
    fn join(&mut self, other: &Self) {
        self.n_similar += 1;
        keep_common(&mut self.rules, &other.rules);
    }

    pub(super) fn with_attributes(mut self, attributes: &Attributes) -> Self {
        self.attributes = Some(attributes.clone());
        self
    }
}

/// The rules that all evaluations with an error have in common cause it, if there are any.
pub fn keep_common(rules: &mut Vec<String>, others: &[String]) {
    if rules.iter().any(|rule| others.contains(rule)) {
        rules.retain(|rule| others.contains(rule));
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(attributes) = &self.attributes {
            match self.n_similar {
                0 => write!(f, "with {attributes}: ")?,
                more => write!(f, "with {attributes} and {more} more: ")?,
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
            known.join(&problem);
            return;
        }
        match self.listed.len() < MAX_PROBLEMS {
            true => self.listed.push(problem),
            false => self.n_more += 1,
        }
    }

    /// Adds a provider that does not exist. Each is listed once, whichever rules opt in to it.
    pub(super) fn add_missing_provider(&mut self, problem: Problem) {
        let known = self.listed[..self.n_missing_providers]
            .iter_mut()
            .find(|known| known.pointer == problem.pointer);
        if let Some(known) = known {
            known.n_similar += 1;
            return;
        }
        self.listed.insert(self.n_missing_providers, problem);
        self.n_missing_providers += 1;
        if self.listed.len() > MAX_PROBLEMS {
            self.listed.pop();
            self.n_missing_providers = self.n_missing_providers.min(self.listed.len());
            self.n_more += 1;
        }
    }

    pub fn add_all(&mut self, others: Self) {
        others
            .listed
            .into_iter()
            .for_each(|problem| self.add(problem));
        self.n_more += others.n_more;
        self.is_outage |= others.is_outage;
    }

    /// Adds an error in an evaluation, with the rules behind it. Does not look for these if the
    /// error will only be counted.
    pub(super) fn add_at(
        &mut self,
        evaluator: &Evaluator,
        attributes: &Attributes,
        pointer: &str,
        message: impl Into<String>,
    ) {
        if self.listed.len() >= MAX_PROBLEMS {
            self.n_more += 1;
            return;
        }
        self.add(Problem {
            rules: rules_behind(evaluator, attributes, pointer),
            ..Problem::at(pointer, message).with_attributes(attributes)
        });
    }

    /// Adds the errors of the rules or of the sets, which are at this pointer.
    pub(super) fn add_rules(&mut self, at: &str, wrong: &rules::Problems) {
        for problem in wrong.list() {
            self.add(Problem {
                pointer: format!("{at}{}", problem.path),
                message: problem.message.clone(),
                rules: problem.rule_id.iter().cloned().collect(),
                ..Problem::default()
            });
        }
    }

    /// Adds the errors of an evaluation in the values of these keys. Other values are not used.
    pub(super) fn add_evaluation(
        &mut self,
        attributes: &Attributes,
        errors: &[EvaluationError],
        is_used: impl Fn(&str) -> bool,
    ) {
        for error in errors {
            let key = error.pointer.split('/').nth(1).unwrap_or_default();
            if is_used(&key.replace("~1", "/").replace("~0", "~")) {
                self.add(Problem {
                    rules: vec![error.rule_id.clone()],
                    ..Problem::at(&error.pointer, error.message.as_str())
                        .with_attributes(attributes)
                });
            }
        }
    }

    /// Adds an error of a provider that did not work. A later attempt may succeed.
    pub(super) fn add_outage(&mut self, problem: Problem) {
        self.is_outage = true;
        self.add(problem);
    }

    /// Whether the same configuration may succeed later.
    pub fn is_outage(&self) -> bool {
        self.is_outage
    }

    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.listed.iter()
    }

    /// `Ok` if there are no errors. Others may follow from missing providers, and are left out if
    /// there are any.
    pub(crate) fn into_result(mut self) -> Result<(), Self> {
        if self.n_missing_providers > 0 {
            self.listed.truncate(self.n_missing_providers);
            self.n_more = 0;
        }
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

/// The pointer to a member of the value at this pointer.
pub(crate) fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Maximum number of rules that are named for an error: the last ones involved.
const MAX_RULES: usize = 5;

/// The rules involved in a value or, if the value is absent, in the nearest enclosing value.
pub fn rules_behind(evaluator: &Evaluator, attributes: &Attributes, pointer: &str) -> Vec<String> {
    let mut pointer = pointer;
    while !pointer.is_empty() {
        let steps = evaluator.explain(attributes, pointer).steps;
        if !steps.is_empty() {
            let skipped = steps.len().saturating_sub(MAX_RULES);
            let ids = steps.into_iter().skip(skipped).map(|step| step.rule_id);
            return ids.collect();
        }
        pointer = pointer.rsplit_once('/').map_or("", |(around, _)| around);
    }
    Vec::new()
}
