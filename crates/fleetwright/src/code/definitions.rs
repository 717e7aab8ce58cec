//! The definitions in files: items with their places, and the owned patterns.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::WorkerType;
use domain::time::Timestamp;
use serde_json::Value;

use super::kind::Kind;
use super::ownership::Ownership;
use crate::rule_lines::RuleLines;

/// One item in a file.
#[derive(Debug)]
pub(super) struct Item {
    /// The file, and the position in it.
    pub(super) place: String,
    /// The file, `-` for standard input.
    pub(super) file: String,
    /// The position in the file, as a JSON pointer.
    pub(super) pointer: String,
    /// All writable fields, without the id.
    pub(super) content: Value,
}

/// All definitions of a folder.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) items: BTreeMap<(Kind, String), Item>,
    /// Without it, only defined items are changed, and nothing is removed.
    pub(super) owns: Option<Ownership>,
}

impl Item {
    /// The lines of the rules of a worker configuration.
    pub(super) fn rule_lines(&self) -> Option<RuleLines> {
        RuleLines::read(&self.file, &self.pointer, &self.content)
    }
}

impl Definitions {
    /// Whether items of this kind may be written or removed.
    pub(super) fn concerns(&self, kind: Kind) -> bool {
        self.items.keys().any(|(known, _)| *known == kind)
            || self.owns.as_ref().is_some_and(|owns| owns.any(kind))
    }

    /// Removes expired overrides, and returns their ids and places.
    pub(super) fn without_ended(&mut self, now: Timestamp) -> Vec<(String, String)> {
        let has_ended = |kind: Kind, item: &Item| {
            let until = item.content["until"].as_str();
            let until = until.and_then(|text| text.parse::<Timestamp>().ok());
            kind == Kind::Override && until.is_some_and(|until| until <= now)
        };
        let ended = self
            .items
            .extract_if(.., |(kind, _), item| has_ended(*kind, item));
        ended.map(|((_, id), item)| (id, item.place)).collect()
    }

    /// The pools compiled from worker configurations of the folder, with the configurations' ids.
    pub(super) fn compiled(&self) -> BTreeMap<String, &str> {
        let configurations = self
            .items
            .iter()
            .filter(|((kind, _), _)| *kind == Kind::WorkerConfiguration);
        configurations
            .flat_map(|((_, id), item)| {
                worker_types(&item.content)
                    .into_iter()
                    .map(move |pool| (pool, id.as_str()))
            })
            .collect()
    }
}

/// The ids of the pools of a worker configuration.
pub(super) fn worker_types(content: &Value) -> BTreeSet<String> {
    let named = content["workerTypes"].as_array().into_iter().flatten();
    named
        .filter_map(|name| name.as_str()?.parse::<WorkerType>().ok())
        .map(|worker_type| worker_type.pool_id().to_string())
        .collect()
}
