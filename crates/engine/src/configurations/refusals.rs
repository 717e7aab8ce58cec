//! Refusals of pools of a worker configuration: equal errors of many pools and places once.

use std::collections::BTreeSet;
use std::fmt;

use domain::configuration::{Compilation, WorkerType, keep_common, rules_behind};
use rules::{Attributes, IdList};

/// At most this many different errors are reported.
const MAX_REPORTED: usize = 20;

/// Why a pool is refused.
#[derive(Debug)]
pub struct PoolRefusal {
    pub(super) worker_type: WorkerType,
    pub(super) by: Refuser,
    pub(super) errors: Vec<RefusedValue>,
}

/// The part of the program that refuses a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refuser {
    Server,
    Provider { id: String, schema: String },
}

/// An error at a value of one evaluation.
#[derive(Clone, Debug)]
pub(super) struct RefusedValue {
    pub(super) attributes: Attributes,
    pub(super) pointer: String,
    pub(super) message: String,
    /// The rules behind the value.
    pub(super) rules: Vec<String>,
}

impl PoolRefusal {
    /// The pool has invalid values at these pointers, by our own rules.
    pub(super) fn by_server(
        compilation: &Compilation,
        worker_type: &WorkerType,
        attributes: &Attributes,
        invalid: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let errors = invalid.into_iter().map(|(pointer, message)| RefusedValue {
            rules: rules_behind(compilation.evaluator(), attributes, &pointer),
            attributes: attributes.clone(),
            pointer,
            message,
        });
        Self {
            worker_type: worker_type.clone(),
            by: Refuser::Server,
            errors: errors.collect(),
        }
    }
}

/// The refusals of all pools.
#[derive(Default)]
pub(super) struct Refusals {
    /// Errors without a place.
    texts: BTreeSet<String>,
    groups: Vec<Group>,
    /// The number of further errors.
    n_more: usize,
}

/// One error in one or more evaluations.
struct Group {
    by: Refuser,
    first: RefusedValue,
    n_evaluations: usize,
    worker_types: BTreeSet<WorkerType>,
}

impl Refusals {
    pub(super) fn add_text(&mut self, text: String) {
        if self.texts.len() < MAX_REPORTED || self.texts.contains(&text) {
            self.texts.insert(text);
        } else {
            self.n_more += 1;
        }
    }

    pub(super) fn add(&mut self, refusal: PoolRefusal) {
        for error in refusal.errors {
            let known = self.groups.iter_mut().find(|group| {
                group.by == refusal.by
                    && group.first.pointer == error.pointer
                    && group.first.message == error.message
            });
            if let Some(group) = known {
                group.n_evaluations += 1;
                group.worker_types.insert(refusal.worker_type.clone());
                keep_common(&mut group.first.rules, &error.rules);
            } else if self.groups.len() < MAX_REPORTED {
                self.groups.push(Group {
                    by: refusal.by.clone(),
                    first: error,
                    n_evaluations: 1,
                    worker_types: BTreeSet::from([refusal.worker_type.clone()]),
                });
            } else {
                self.n_more += 1;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.groups.is_empty()
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in &self.texts {
            write!(f, "{text}\n\n")?;
        }
        let mut reported: Vec<&Refuser> = Vec::new();
        for group in &self.groups {
            if reported.contains(&&group.by) {
                continue;
            }
            reported.push(&group.by);
            let same = self.groups.iter().filter(|other| other.by == group.by);
            write_title(f, &group.by, &same.clone().collect::<Vec<_>>())?;
            for group in same {
                writeln!(f, "* {group}")?;
            }
            writeln!(f)?;
        }
        if self.n_more > 0 {
            write!(f, "{} more errors.\n\n", self.n_more)?;
        }
        f.write_str("Nothing was changed.")
    }
}

fn write_title(f: &mut fmt::Formatter<'_>, by: &Refuser, groups: &[&Group]) -> fmt::Result {
    let refused: BTreeSet<&WorkerType> = groups
        .iter()
        .flat_map(|group| &group.worker_types)
        .collect();
    let one = match refused.iter().next() {
        Some(one) if refused.len() == 1 => format!("the worker type {one}"),
        Some(_) | None => format!("{} worker types", refused.len()),
    };
    match by {
        Refuser::Server => writeln!(f, "Invalid values of {one}:"),
        Refuser::Provider { id, schema } => {
            writeln!(f, "The provider {id} refuses {one} (schema {schema}):")
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RefusedValue {
            attributes,
            pointer,
            message,
            rules,
        } = &self.first;
        write!(f, "with {attributes}")?;
        match self.n_evaluations - 1 {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        match self.worker_types.len() {
            1 => {}
            several => write!(f, ", of {several} worker types")?,
        }
        write!(f, ": {pointer} {message}")?;
        match rules.len() {
            0 => Ok(()),
            1 => write!(f, " (rule {})", IdList(rules)),
            _ => write!(f, " (rules {})", IdList(rules)),
        }
    }
}

impl fmt::Display for PoolRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the worker type {} is refused for {} errors",
            self.worker_type,
            self.errors.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn refusal(pool: usize, zone: &str, pointer: &str, rules: &[&str]) -> PoolRefusal {
        let worker_type = format!("w{pool}");
        let attributes = [("workerType", worker_type.as_str()), ("zone", zone)];
        PoolRefusal {
            worker_type: worker_type.parse().unwrap(),
            by: Refuser::Provider {
                id: "p".to_owned(),
                schema: "s.json".to_owned(),
            },
            errors: vec![RefusedValue {
                attributes: attributes.into_iter().collect(),
                pointer: pointer.to_owned(),
                message: "must be 1".to_owned(),
                rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            }],
        }
    }

    #[test]
    fn equal_errors_are_reported_once_with_the_rules_that_all_have() {
        let mut refusals = Refusals::default();
        for pool in 0..30 {
            for zone in ["a", "b"] {
                refusals.add(refusal(pool, zone, "/p/x", &["all", zone]));
            }
        }
        refusals.add(refusal(3, "a", "/p/y", &[]));
        let expected = "The provider p refuses 30 worker types (schema s.json):\n\
            * with workerType=w0, zone=a and 59 more, of 30 worker types: /p/x must be 1 (rule \"all\")\n\
            * with workerType=w3, zone=a: /p/y must be 1\n\nNothing was changed.";
        assert_eq!(refusals.to_string(), expected);
    }

    #[test]
    fn the_number_of_different_errors_is_limited() {
        for count in sizes_around(
            "engine::configurations::refusals::MAX_REPORTED",
            MAX_REPORTED,
        ) {
            let (mut errors, mut texts) = (Refusals::default(), Refusals::default());
            for at in 0..count {
                errors.add(refusal(0, "a", &format!("/p/{at}"), &[]));
                texts.add_text(format!("text {at}"));
            }
            let more = count.saturating_sub(MAX_REPORTED);
            for refusals in [errors, texts] {
                let text = refusals.to_string();
                assert_eq!(text.contains(&format!("{more} more errors.")), more > 0);
            }
        }
    }
}
