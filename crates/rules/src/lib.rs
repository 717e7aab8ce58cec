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
mod evaluator;
mod explain;
mod format;
pub mod limits;
mod lint;
mod origins;
mod pattern;
mod problem;
mod results;
mod rule;
mod schema;
mod set;
mod shadowed;
mod size;
mod table;
mod trace;

pub use assign::assign;
pub use attributes::Attributes;
pub use conditions::{Conditions, Mapping, Patterns};
pub use diff::{RuleSetDiff, longest_ascending};
pub use edit::{EditError, Position};
pub use evaluator::Evaluator;
pub use explain::{Action, Explanation, Step};
pub use format::format;
pub use lint::{Finding, IdList, Obstacle, lint, lint_without_evaluations, without_description};
pub use origins::{Evaluation, Origin, Origins, OverriddenStep};
pub use pattern::{BadPattern, Pattern};
pub use problem::{Problem, Problems, did_you_mean};
pub use rule::Rule;
pub use schema::SCHEMA;
pub use set::RuleSet;
