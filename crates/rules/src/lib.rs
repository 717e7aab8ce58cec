//! Rule sets: configuration as a list of small rules, each with conditions and values.
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod assign;
mod attributes;
mod bit_set;
mod cache;
mod conditions;
mod diff;
mod edit;
mod elements;
mod evaluated;
mod evaluator;
mod explain;
mod format;
pub mod limits;
mod lint;
mod origins;
mod pattern;
mod patterns;
mod problem;
mod references;
mod resolve;
mod results;
mod rule;
mod schema;
mod set;
mod sets;
mod shadowed;
mod size;
mod table;
mod trace;

pub use assign::assign;
pub use attributes::Attributes;
pub use conditions::{Conditions, Mapping};
pub use diff::{RuleSetDiff, longest_ascending};
pub use edit::{EditError, Position};
pub use elements::Elements;
pub use evaluated::{Evaluated, EvaluationError};
pub use evaluator::Evaluator;
pub use explain::{Action, Explanation, ReferencedValue, Step};
pub use format::format;
pub use lint::{Finding, IdList, Obstacle, lint, lint_without_evaluations, without_description};
pub use origins::{Evaluation, Origin, Origins, OverriddenStep};
pub use pattern::{BadPattern, Pattern};
pub use patterns::{Alternative, Negation, Patterns, SetReference};
pub use problem::{Problem, Problems, did_you_mean};
pub use rule::Rule;
pub use schema::SCHEMA;
pub use set::RuleSet;
pub use sets::{NamedSet, Sets};
