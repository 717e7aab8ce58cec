//! What files define: each thing with its place, and what the files own.

use std::collections::{BTreeMap, BTreeSet};

use domain::configuration::WorkerType;
use domain::time::Timestamp;
use serde_json::Value;

use super::kind::Kind;
use super::owns::Owns;

/// One thing as a file has it.
#[derive(Debug)]
pub(super) struct Item {
    /// Which file, and where in it.
    pub(super) place: String,
    /// All that can be written, without the name.
    pub(super) content: Value,
}

/// All that a folder wants.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) items: BTreeMap<(Kind, String), Item>,
    /// Without it, exactly the items are touched, and nothing is removed.
    pub(super) owns: Option<Owns>,
}

impl Wanted {
    /// Whether things of this kind are written or removed.
    pub(super) fn concerns(&self, kind: Kind) -> bool {
        self.items.keys().any(|(known, _)| *known == kind)
            || self.owns.as_ref().is_some_and(|owns| owns.any(kind))
    }

    /// Takes out overrides that have ended by themselves, and returns what they are called and where they stand.
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

    /// The pools that follow from worker configurations of the folder, and from which.
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

/// The pools of a worker configuration, by their whole names.
pub(super) fn worker_types(content: &Value) -> BTreeSet<String> {
    let named = content["workerTypes"].as_array().into_iter().flatten();
    named
        .filter_map(|name| name.as_str()?.parse::<WorkerType>().ok())
        .map(|worker_type| worker_type.pool_id().to_string())
        .collect()
}
